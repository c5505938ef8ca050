#include "runtime/network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "runtime/namespaces.h"
#include "runtime/netlink.h"

namespace holdfast::runtime {
namespace {

constexpr int kLoopback = 1;  // lo's index in every network namespace
constexpr size_t kMaxMessages = 1 << 20;
constexpr uint32_t kDestroyable = ((1u << (TCP_CLOSING + 1)) - 1) & ~(1u << TCP_LISTEN) & ~(1u << TCP_CLOSE) & ~1u;

struct Binary {
  int family = 0;
  unsigned char bytes[16] = {};
  size_t size() const { return family == AF_INET ? 4 : 16; }
};

bool ToBinary(const std::string& text, Binary* address) {
  address->family = text.find(':') == std::string::npos ? AF_INET : AF_INET6;
  return inet_pton(address->family, text.c_str(), address->bytes) == 1;
}

int ChangeLoopback(Netlink& netlink, const Binary& address, uint16_t type, uint16_t flags) {
  ifaddrmsg body{};
  body.ifa_family = static_cast<uint8_t>(address.family);
  body.ifa_prefixlen = static_cast<uint8_t>(address.size() * 8);
  body.ifa_index = kLoopback;
  body.ifa_flags = address.family == AF_INET6 ? IFA_F_NODAD : 0;  // usable at once
  std::string request = NetlinkRequest(type, static_cast<uint16_t>(NLM_F_ACK | flags), body);
  AppendAttribute(&request, IFA_LOCAL, address.bytes, address.size());
  AppendAttribute(&request, IFA_ADDRESS, address.bytes, address.size());
  return netlink.Talk(std::move(request));
}

}  // namespace

bool IsAddress(const std::string& text) {
  Binary address;
  return ToBinary(text, &address);
}

Result<std::vector<std::string>> GlobalAddresses(const std::string& netns_path) {
  HF_ASSIGN_OR_RETURN(Netlink netlink, Netlink::Open(netns_path, NETLINK_ROUTE));
  std::vector<std::string> addresses;
  int error = netlink.Talk(NetlinkRequest(RTM_GETADDR, NLM_F_DUMP, ifaddrmsg{}), [&](const nlmsghdr* message) {
    const auto* body = reinterpret_cast<const ifaddrmsg*>(NLMSG_DATA(message));
    if (message->nlmsg_type != RTM_NEWADDR || body->ifa_scope != RT_SCOPE_UNIVERSE || body->ifa_index == kLoopback) return;
    if (body->ifa_family != AF_INET && body->ifa_family != AF_INET6) return;
    const void *local = nullptr, *address = nullptr;
    int left = static_cast<int>(IFA_PAYLOAD(message));
    for (const rtattr* a = IFA_RTA(body); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
      if (RTA_PAYLOAD(a) < (body->ifa_family == AF_INET ? 4u : 16u)) continue;
      if (a->rta_type == IFA_LOCAL) local = RTA_DATA(a);
      if (a->rta_type == IFA_ADDRESS) address = RTA_DATA(a);
    }
    if (local == nullptr) local = address;
    char text[INET6_ADDRSTRLEN];
    if (local != nullptr && inet_ntop(body->ifa_family, local, text, sizeof text) != nullptr) addresses.emplace_back(text);
  });
  if (error != 0) return NetlinkFailed("list addresses", error);
  std::stable_partition(addresses.begin(), addresses.end(), [](const std::string& a) { return a.find(':') == std::string::npos; });
  return addresses;
}

Status AddLoopbackAddress(const std::string& netns_path, const std::string& address) {
  Binary binary;
  if (!ToBinary(address, &binary)) return Status(Code::kInvalidArgument, "not an address: " + address);
  HF_ASSIGN_OR_RETURN(Netlink netlink, Netlink::Open(netns_path, NETLINK_ROUTE));
  int error = ChangeLoopback(netlink, binary, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);
  return error == 0 || error == EEXIST ? Status::Ok() : NetlinkFailed("add " + address + " to lo", error);
}

Status RemoveLoopbackAddress(const std::string& netns_path, const std::string& address) {
  Binary binary;
  if (!ToBinary(address, &binary)) return Status(Code::kInvalidArgument, "not an address: " + address);
  HF_ASSIGN_OR_RETURN(Netlink netlink, Netlink::Open(netns_path, NETLINK_ROUTE));
  int error = ChangeLoopback(netlink, binary, RTM_DELADDR, 0);
  return error == 0 || error == EADDRNOTAVAIL ? Status::Ok() : NetlinkFailed("remove " + address + " from lo", error);
}

Result<int> ResetConnections(const std::string& netns_path, const std::string& address) {
  Binary binary;
  if (!ToBinary(address, &binary)) return Status(Code::kInvalidArgument, "not an address: " + address);
  unsigned char mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  memcpy(mapped + 12, binary.bytes, 4);
  HF_ASSIGN_OR_RETURN(Netlink netlink, Netlink::Open(netns_path, NETLINK_SOCK_DIAG));
  std::vector<inet_diag_req_v2> found;
  for (int family : {AF_INET, AF_INET6}) {
    const unsigned char* wanted = family == AF_INET6 && binary.family == AF_INET ? mapped : binary.bytes;
    if (family == AF_INET && binary.family == AF_INET6) continue;
    inet_diag_req_v2 query{};
    query.sdiag_family = static_cast<uint8_t>(family);
    query.sdiag_protocol = IPPROTO_TCP;
    query.idiag_states = kDestroyable;
    int error = netlink.Talk(NetlinkRequest(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, query), [&](const nlmsghdr* message) {
      if (message->nlmsg_type != SOCK_DIAG_BY_FAMILY || message->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) return;
      const auto* socket = reinterpret_cast<const inet_diag_msg*>(NLMSG_DATA(message));
      if (socket->idiag_family != family || memcmp(socket->id.idiag_src, wanted, family == AF_INET ? 4 : 16) != 0) return;
      inet_diag_req_v2 target = query;
      target.idiag_states = 0;
      target.id = socket->id;
      found.push_back(target);
    });
    if (error != 0) return NetlinkFailed("list TCP connections", error);
  }
  int reset = 0;
  for (const inet_diag_req_v2& target : found) {
    int error = netlink.Talk(NetlinkRequest(SOCK_DESTROY, NLM_F_ACK, target));
    if (error == 0) ++reset;
    if (error != 0 && error != ENOENT) return NetlinkFailed("reset a TCP connection", error);  // ENOENT: it closed by itself meanwhile
  }
  return reset;
}

Status TurnOffMultipathTcp(const std::string& netns_path) {
  // The files of /proc/sys/net are those of the namespace that the thread stands in when it opens them.
  HF_ASSIGN_OR_RETURN(InNamespace inside, InNamespace::Enter(netns_path, CLONE_NEWNET));
  int fd = open("/proc/sys/net/mptcp/enabled", O_WRONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return Status::Ok();
  const bool written = fd >= 0 && write(fd, "0\n", 2) == 2;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (written) return Status::Ok();
  return Status(Code::kInternal, "cannot write net.mptcp.enabled in " + netns_path + ": " + std::generic_category().message(error));
}

}  // namespace holdfast::runtime
