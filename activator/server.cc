#include "activator/server.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"

namespace holdfast::activator {
namespace {

using Socket = kube::EventLoop::Socket;

constexpr int kBacklog = 512, kAcceptedAtOnce = 64;
constexpr Duration kNoDescriptors = std::chrono::milliseconds(100);

// Of both address families where the kernel has them. -1 with errno.
int ListenOn(int32_t port) {
  const int on = 1, off = 0;
  for (const int family : {AF_INET6, AF_INET}) {
    const int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in6 six{};
    sockaddr_in four{};
    six.sin6_family = AF_INET6;
    four.sin_family = AF_INET;
    six.sin6_port = four.sin_port = htons(static_cast<uint16_t>(port));
    if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    const auto* at = family == AF_INET6 ? reinterpret_cast<const sockaddr*>(&six) : reinterpret_cast<const sockaddr*>(&four);
    if (bind(fd, at, family == AF_INET6 ? sizeof six : sizeof four) == 0 && listen(fd, kBacklog) == 0) return fd;
    const int error = errno;
    close(fd);
    errno = error;
    if (error == EADDRINUSE) return -1;
  }
  return -1;
}

std::string ServiceKey(const Route& route) { return route.ns + "/" + route.service; }

}  // namespace

Server::Server(kube::EventLoop& loop, World& world, Limits limits, Clock& clock)
    : limits_(limits), host_{loop, world, limits_, clock}, again_(loop, [this] {
        for (auto& [port, listener] : listeners_) listener.socket->Watch(Socket::kRead);
      }) {
  host_.gone = [this](Connection* connection) {
    const auto found = std::find_if(connections_.begin(), connections_.end(), [&](const auto& one) { return one.get() == connection; });
    if (found == connections_.end()) return;
    if (connection->refused()) {
      --refused_;
    } else if (auto count = by_service_.find(ServiceKey(connection->route())); --count->second == 0) {
      by_service_.erase(count);
    }
    connections_.erase(found);
  };
}

Server::~Server() {
  for (auto& [port, listener] : listeners_) Close(&listener);
}

void Server::Close(Listener* listener) {
  listener->socket.reset();
  close(listener->fd);
}

bool Server::SetRoutes(const std::map<int32_t, Route>& routes) {
  for (auto at = listeners_.begin(); at != listeners_.end();) {
    auto wanted = routes.find(at->first);
    if (wanted != routes.end() && wanted->second == at->second.route) {
      ++at;
      continue;
    }
    Close(&at->second);
    at = listeners_.erase(at);
  }
  bool all = true;
  for (const auto& [port, route] : routes) {
    if (!listeners_.contains(port)) all &= Listen(port, route);
  }
  return all;
}

bool Server::Listen(int32_t port, const Route& route) {
  const int fd = ListenOn(port);
  if (fd < 0) {
    LogError("cannot listen",
             {{"port", port}, {"service", ServiceKey(route)}, {"error", strerror(errno)}});  // NOLINT(concurrency-mt-unsafe)
    return false;
  }
  Listener& listener = listeners_[port];
  listener.route = route;
  listener.fd = fd;
  listener.socket = std::make_unique<Socket>(host_.loop, fd, [this, at = &listener](int) { Accept(at); });
  listener.socket->Watch(Socket::kRead);
  return true;
}

void Server::Accept(Listener* listener) {
  for (int i = 0; i < kAcceptedAtOnce; ++i) {
    const int fd = accept4(listener->fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      Admit(listener->route, fd);
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      for (auto& [port, other] : listeners_) other.socket->Watch(0);
      again_.Start(kNoDescriptors);
    }
    if (errno != ECONNABORTED && errno != EINTR) return;
  }
}

void Server::Admit(const Route& route, int fd) {
  const auto of_service = by_service_.find(ServiceKey(route));
  const bool full =
      connections_.size() - refused_ >= limits_.total || (of_service != by_service_.end() && of_service->second >= limits_.per_service);
  if (full && refused_ >= limits_.refusals) {
    host_.world.Count(Outcome::kRefused, Duration(0));
    close(fd);
    return;
  }
  if (full) {
    ++refused_;
  } else {
    ++by_service_[ServiceKey(route)];
  }
  connections_.push_back(std::make_unique<Connection>(host_, route, fd, full));
}

void Server::Consider() {
  // Each may destroy itself, and no other.
  for (auto at = connections_.begin(); at != connections_.end();) (*at++)->Consider();
}

size_t Server::waiting() const {
  return static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(), [](const auto& one) { return one->waits(); }));
}

int32_t Server::PortOf(const Route& route) const {
  for (const auto& [port, listener] : listeners_) {
    if (!(listener.route == route)) continue;
    sockaddr_in6 at{};
    socklen_t size = sizeof at;
    if (getsockname(listener.fd, reinterpret_cast<sockaddr*>(&at), &size) == 0) return ntohs(at.sin6_port);
  }
  return 0;
}

}  // namespace holdfast::activator
