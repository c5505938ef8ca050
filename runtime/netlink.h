// One request and its answers over a netlink socket of another network namespace.
#pragma once

#include <linux/netlink.h>

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace holdfast::runtime {

// Belongs to the namespace it was opened in, wherever we stand afterwards.
class Netlink {
 public:
  static Result<Netlink> Open(const std::string& netns_path, int protocol);
  Netlink(Netlink&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Netlink& operator=(Netlink&&) = delete;
  ~Netlink();

  // Sends one request and reads to its end, at most 5 s for each answer. 0, or the errno of the answer. `each` sees the messages of a dump.
  int Talk(std::string request, const std::function<void(const nlmsghdr*)>& each = nullptr);
  // Sends messages that only work together (nftables wants its changes in one piece); the last of them must ask for an acknowledgement.
  int TalkBatch(const std::vector<std::string>& requests);

 private:
  explicit Netlink(int fd) : fd_(fd) {}
  int Receive(const std::function<void(const nlmsghdr*)>& each);
  int fd_;
  uint32_t sequence_ = 0;
};

Status NetlinkFailed(const std::string& what, int error);

template <class Body>
std::string NetlinkRequest(uint16_t type, uint16_t flags, const Body& body) {
  nlmsghdr header{};
  header.nlmsg_type = type;
  header.nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
  std::string request(reinterpret_cast<const char*>(&header), NLMSG_HDRLEN);
  request.append(reinterpret_cast<const char*>(&body), sizeof body);
  request.resize(NLMSG_ALIGN(request.size()));
  return request;
}

void AppendAttribute(std::string* request, uint16_t type, const void* data, size_t size);

}  // namespace holdfast::runtime
