// Who gets a place among the connections, and who gives way.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "kube/http_server_loop.h"

namespace holdfast::kube {
namespace {

constexpr int kAcceptAtOnce = 64;

std::pair<std::string, int> NameOf(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &four.sin_addr, text, sizeof text);
    return {text, ntohs(four.sin_port)};
  }
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
  inet_ntop(AF_INET6, &six.sin6_addr, text, sizeof text);
  return {text, ntohs(six.sin6_port)};
}

}  // namespace

void HttpServerLoop::Accept() {
  for (int i = 0; i < kAcceptAtOnce && listener_ >= 0; ++i) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    const int fd = accept4(listener_, reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
      if (EndOne(nullptr)) continue;
      Watch(EPOLL_CTL_DEL, listener_, kListener, 0);  // until the next look at the time
      listening_ = false;
      return;
    }
    if (fd < 0) return;
    auto [peer, port] = NameOf(address);
    if (stopping_ || !MakeRoom(peer)) {
      close(fd);
      continue;
    }
    const int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    const uint64_t id = next_id_++;
    auto fresh = std::make_unique<ServerConnection>(fd, context_, peer, port, clock_);
    ++peers_[peer].connections;
    connections_.emplace(id, std::move(fresh));
    Watch(EPOLL_CTL_ADD, fd, id, EPOLLIN);
  }
}

bool HttpServerLoop::MakeRoom(const std::string& peer) {
  auto known = peers_.find(peer);
  if (known != peers_.end() && known->second.connections >= max_per_peer_) return EndOne(&peer);
  return connections_.size() < options_.max_connections || EndOne(nullptr);
}

// Of `peer`, or of all.
bool HttpServerLoop::EndOne(const std::string* peer) {
  uint64_t chosen = 0;
  const ServerConnection* first = nullptr;
  for (const auto& [id, connection] : connections_) {
    if ((peer != nullptr && connection->peer != *peer) || !MayYield(connection->standing)) continue;
    if (first != nullptr && !YieldsBefore(connection->standing, first->standing)) continue;
    chosen = id;
    first = connection.get();
  }
  if (first == nullptr) return false;
  ++pushed_out_;
  Remove(chosen);
  return true;
}

void HttpServerLoop::Remove(uint64_t id) {
  auto found = connections_.find(id);
  auto peer = peers_.find(found->second->peer);
  if (--peer->second.connections == 0) peers_.erase(peer);
  connections_.erase(found);  // and with its descriptor it leaves epoll
}

}  // namespace holdfast::kube
