#include "runtime/netlink.h"

#include <linux/rtnetlink.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "runtime/namespaces.h"

namespace holdfast::runtime {
namespace {

constexpr size_t kMaxMessages = 1 << 20;

}  // namespace

Result<Netlink> Netlink::Open(const std::string& netns_path, int protocol) {
  HF_ASSIGN_OR_RETURN(InNamespace inside, InNamespace::Enter(netns_path, CLONE_NEWNET));
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
  if (fd < 0) return NetlinkFailed("open a socket", errno);
  timeval timeout{5, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  return Netlink(fd);
}

Netlink::~Netlink() {
  if (fd_ >= 0) close(fd_);
}

int Netlink::Talk(std::string request, const std::function<void(const nlmsghdr*)>& each) {
  auto* header = reinterpret_cast<nlmsghdr*>(request.data());
  header->nlmsg_len = static_cast<uint32_t>(request.size());
  header->nlmsg_seq = ++sequence_;
  if (send(fd_, request.data(), request.size(), 0) < 0) return errno;
  return Receive(each);
}

int Netlink::TalkBatch(const std::vector<std::string>& requests) {
  ++sequence_;
  std::string all;
  for (std::string request : requests) {
    auto* header = reinterpret_cast<nlmsghdr*>(request.data());
    header->nlmsg_len = static_cast<uint32_t>(request.size());
    header->nlmsg_seq = sequence_;
    all += request;
  }
  if (send(fd_, all.data(), all.size(), 0) < 0) return errno;
  return Receive(nullptr);
}

int Netlink::Receive(const std::function<void(const nlmsghdr*)>& each) {
  alignas(nlmsghdr) char buffer[32768];
  for (size_t messages = 0; messages < kMaxMessages;) {
    ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : EPIPE;
    auto left = static_cast<uint32_t>(n);
    for (auto* message = reinterpret_cast<nlmsghdr*>(buffer); NLMSG_OK(message, left); message = NLMSG_NEXT(message, left)) {
      ++messages;
      if (message->nlmsg_seq != sequence_) continue;
      if (message->nlmsg_type == NLMSG_DONE) return 0;
      if (message->nlmsg_type == NLMSG_ERROR) return -reinterpret_cast<const nlmsgerr*>(NLMSG_DATA(message))->error;
      if (each) each(message);
    }
  }
  return EMSGSIZE;
}

Status NetlinkFailed(const std::string& what, int error) {
  return Status(error == ENOENT ? Code::kNotFound : Code::kInternal,
                "netlink: cannot " + what + ": " + std::generic_category().message(error));
}

void AppendAttribute(std::string* request, uint16_t type, const void* data, size_t size) {
  rtattr attribute{static_cast<uint16_t>(RTA_LENGTH(size)), type};
  request->append(reinterpret_cast<const char*>(&attribute), sizeof attribute);
  request->append(static_cast<const char*>(data), size);
  request->resize(NLMSG_ALIGN(request->size()));
}

}  // namespace holdfast::runtime
