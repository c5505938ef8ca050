#include "runtime/unix_peers.h"

#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>

#include "base/file.h"
#include "runtime/netlink.h"

namespace holdfast::runtime {
namespace {

constexpr size_t kMaxSockets = 200000;
constexpr std::string_view kPrefix = "socket:[";

struct Socket {
  uint32_t peer = 0;  // its inode; 0: none, or not accepted yet
  std::string name;   // "" when it has none; abstract ones begin with @
};

Result<std::map<uint32_t, Socket>> UnixSockets(const std::string& netns_path) {
  HF_ASSIGN_OR_RETURN(Netlink netlink, Netlink::Open(netns_path, NETLINK_SOCK_DIAG));
  std::map<uint32_t, Socket> sockets;
  unix_diag_req query{};
  query.sdiag_family = AF_UNIX;
  query.udiag_states = ~0u;
  query.udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_PEER;
  int error = netlink.Talk(NetlinkRequest(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, query), [&](const nlmsghdr* message) {
    if (message->nlmsg_type != SOCK_DIAG_BY_FAMILY || message->nlmsg_len < NLMSG_LENGTH(sizeof(unix_diag_msg))) return;
    if (sockets.size() >= kMaxSockets) return;
    const auto* body = reinterpret_cast<const unix_diag_msg*>(NLMSG_DATA(message));
    Socket& socket = sockets[body->udiag_ino];
    auto left = static_cast<int>(NLMSG_PAYLOAD(message, sizeof *body));
    for (auto* a = reinterpret_cast<const rtattr*>(reinterpret_cast<const char*>(body) + NLMSG_ALIGN(sizeof *body)); RTA_OK(a, left);
         a = RTA_NEXT(a, left)) {
      const auto* data = static_cast<const char*>(RTA_DATA(a));
      if (a->rta_type == UNIX_DIAG_PEER && RTA_PAYLOAD(a) >= sizeof socket.peer) memcpy(&socket.peer, data, sizeof socket.peer);
      if (a->rta_type == UNIX_DIAG_NAME && RTA_PAYLOAD(a) > 0) {
        socket.name.assign(data, RTA_PAYLOAD(a));
        if (socket.name[0] == '\0') socket.name[0] = '@';
        socket.name.resize(strnlen(socket.name.data(), socket.name.size()));
      }
    }
  });
  // A kernel without unix_diag has no CRIU either: it says so itself.
  return error == 0 || error == ENOENT ? Result<std::map<uint32_t, Socket>>(std::move(sockets)) : NetlinkFailed("list unix sockets", error);
}

// Calls see(pid, number of the descriptor, inode) for each socket of the processes, until it returns false.
template <class See>
void ForEachSocket(const std::vector<int>& pids, const std::string& proc, const See& see) {
  for (int pid : pids) {
    const std::string dir = proc + "/" + std::to_string(pid) + "/fd";
    for (const std::string& name : ListDir(dir).value_or({})) {
      char target[64] = {};
      if (readlink((dir + "/" + name).c_str(), target, sizeof target - 1) < 0 || !std::string_view(target).starts_with(kPrefix)) continue;
      if (!see(pid, name, static_cast<uint32_t>(strtoul(target + kPrefix.size(), nullptr, 10)))) return;
    }
  }
}

std::string Named(const Socket& socket) { return socket.name.empty() ? "" : " (" + socket.name + ")"; }

}  // namespace

Status CheckUnixPeers(const std::vector<int>& pids, const std::string& netns_path, const std::string& proc) {
  std::map<uint32_t, int> held;  // socket inode: a process that has it
  ForEachSocket(pids, proc, [&](int pid, const std::string&, uint32_t inode) {
    held.emplace(inode, pid);
    return held.size() < kMaxSockets;
  });
  if (held.empty()) return Status::Ok();
  HF_ASSIGN_OR_RETURN(const auto sockets, UnixSockets(netns_path));
  for (const auto& [inode, pid] : held) {
    auto own = sockets.find(inode);
    if (own == sockets.end() || own->second.peer == 0 || held.contains(own->second.peer)) continue;
    auto peer = sockets.find(own->second.peer);
    const Socket& named = own->second.name.empty() && peer != sockets.end() ? peer->second : own->second;
    return Status(Code::kUnsupported, "process " + std::to_string(pid) + " has a unix socket" + Named(named) +
                                          " connected to a process outside its container, which CRIU cannot dump (connect by TCP on "
                                          "loopback, or close it before a move)");
  }
  return Status::Ok();
}

Status CheckNothingSent(const std::vector<int>& pids, const std::string& netns_path, const std::string& proc) {
  constexpr std::string_view kKey = "\nscm_fds: ";
  HF_ASSIGN_OR_RETURN(const auto sockets, UnixSockets(netns_path));
  Status found;
  if (sockets.empty()) return found;
  ForEachSocket(pids, proc, [&](int pid, const std::string& fd, uint32_t inode) {
    auto socket = sockets.find(inode);
    if (socket == sockets.end()) return true;
    const std::string info = ReadFile(proc + "/" + std::to_string(pid) + "/fdinfo/" + fd, 4096).value_or("");
    const size_t at = info.find(kKey);
    if (at == std::string::npos || info.size() <= at + kKey.size() || info[at + kKey.size()] == '0') return true;
    found = Status(Code::kUnavailable, "process " + std::to_string(pid) + " was sent a file descriptor over a unix socket" +
                                           Named(socket->second) +
                                           " and has not received it yet, which CRIU cannot restore (receive it before a move)");
    return false;
  });
  return found;
}

}  // namespace holdfast::runtime
