#include "runtime/network_lock.h"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/rtnetlink.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/file.h"
#include "runtime/netlink.h"

namespace holdfast::runtime {
namespace {

struct Table {
  uint8_t family;
  std::string name;
};

uint16_t Message(int message) { return static_cast<uint16_t>(NFNL_SUBSYS_NFTABLES << 8 | message); }

std::string Batch(int type) {
  nfgenmsg body{AF_UNSPEC, NFNETLINK_V0, htons(NFNL_SUBSYS_NFTABLES)};
  return NetlinkRequest(static_cast<uint16_t>(type), 0, body);
}

}  // namespace

Result<int> RemoveNetworkLock(const std::string& netns_path) {
  HF_ASSIGN_OR_RETURN(Netlink netlink, Netlink::Open(netns_path, NETLINK_NETFILTER));
  std::vector<Table> tables;
  nfgenmsg any{NFPROTO_UNSPEC, NFNETLINK_V0, 0};
  int error = netlink.Talk(NetlinkRequest(Message(NFT_MSG_GETTABLE), NLM_F_DUMP, any), [&](const nlmsghdr* message) {
    const auto* body = reinterpret_cast<const nfgenmsg*>(NLMSG_DATA(message));
    auto left = static_cast<int>(NLMSG_PAYLOAD(message, sizeof *body));
    for (auto* a = reinterpret_cast<const rtattr*>(reinterpret_cast<const char*>(body) + NLMSG_ALIGN(sizeof *body)); RTA_OK(a, left);
         a = RTA_NEXT(a, left)) {
      if ((a->rta_type & NLA_TYPE_MASK) != NFTA_TABLE_NAME) continue;
      const char* text = static_cast<const char*>(RTA_DATA(a));
      std::string name(text, strnlen(text, RTA_PAYLOAD(a)));
      if (name == "CRIU" || name.starts_with("CRIU-")) tables.push_back({body->nfgen_family, std::move(name)});
    }
  });
  if (error == EPROTONOSUPPORT || error == EINVAL) return 0;  // a kernel without nftables
  if (error != 0) return NetlinkFailed("list nftables tables", error);
  for (const Table& table : tables) {
    nfgenmsg body{table.family, NFNETLINK_V0, 0};
    std::string request = NetlinkRequest(Message(NFT_MSG_DELTABLE), NLM_F_ACK, body);
    AppendAttribute(&request, NFTA_TABLE_NAME, table.name.c_str(), table.name.size() + 1);
    error = netlink.TalkBatch({Batch(NFNL_MSG_BATCH_BEGIN), request, Batch(NFNL_MSG_BATCH_END)});
    if (error != 0 && error != ENOENT) return NetlinkFailed("remove CRIU's nftables table", error);
  }
  return static_cast<int>(tables.size());
}

int EndSocketRepair(const std::vector<int>& pids) {
  constexpr int kOffWithoutProbe = -1;  // TCP_REPAIR_OFF_NO_WP: nothing was changed, so there is nothing to tell the peer
  int ended = 0;
  for (int pid : pids) {
    const std::string dir = "/proc/" + std::to_string(pid) + "/fd";
    Result<std::vector<std::string>> names = ListDir(dir);
    const int process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (process < 0 || !names.ok()) {
      if (process >= 0) close(process);
      continue;
    }
    for (const std::string& name : *names) {
      char target[16] = {};
      if (readlink((dir + "/" + name).c_str(), target, sizeof target - 1) < 0 || !std::string_view(target).starts_with("socket:")) continue;
      const int fd = static_cast<int>(syscall(SYS_pidfd_getfd, process, atoi(name.c_str()), 0));
      if (fd < 0) continue;
      int repair = 0;
      socklen_t size = sizeof repair;
      if (getsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &repair, &size) == 0 && repair == 1 &&
          setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &kOffWithoutProbe, sizeof kOffWithoutProbe) == 0) {
        ++ended;
      }
      close(fd);
    }
    close(process);
  }
  return ended;
}

}  // namespace holdfast::runtime
