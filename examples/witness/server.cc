#include "witness/server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <vector>

namespace witness {
namespace {

constexpr size_t kMaxPeers = 1000, kMaxBuffer = size_t{64} * 1024, kMaxRequest = 8192;
constexpr int64_t kHttpMs = 5000, kSilentMs = 60000;

int64_t NowMs(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

Times Now() { return {NowMs(CLOCK_MONOTONIC), NowMs(CLOCK_REALTIME)}; }

}  // namespace

Server::Server(uint16_t counter_port, uint16_t http_port) {
  counters_ = Listen(counter_port, &counter_port_);
  http_ = Listen(http_port, &http_port_);
}

Server::~Server() {
  for (const auto& [fd, peer] : peers_) close(fd);
  if (counters_ >= 0) close(counters_);
  if (http_ >= 0) close(http_);
}

int Server::Listen(uint16_t port, uint16_t* chosen) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  socklen_t size = sizeof at;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&at), size) != 0 || listen(fd, 64) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) != 0) {
    error_ = "cannot listen on port " + std::to_string(port) + ": " + std::generic_category().message(errno);
    if (fd >= 0) close(fd);
    return -1;
  }
  *chosen = ntohs(at.sin_port);
  return fd;
}

void Server::Accept(int listener, bool http) {
  for (;;) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    if (peers_.size() >= kMaxPeers) {
      close(fd);
      continue;
    }
    // A pod that is gone sends no farewell: ask after 5 s of silence, and give up 3 s later.
    const int on = 1, idle = 5, interval = 1, probes = 3;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    Peer& peer = peers_[fd];
    peer.http = http;
    peer.since_ms = NowMs(CLOCK_MONOTONIC);
  }
}

// Takes all that has arrived.
void Server::Read(int fd, Peer& peer) {
  char data[16384];
  while (!peer.broken && !peer.done) {
    const ssize_t n = recv(fd, data, sizeof data, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) {
      peer.broken = true;
      return;
    }
    peer.in.append(data, n);
    peer.since_ms = NowMs(CLOCK_MONOTONIC);
    if (peer.http) {
      if (peer.in.find("\r\n\r\n") != std::string::npos) OnRequest(peer);
      if (peer.in.size() > kMaxRequest) peer.broken = true;
      continue;
    }
    size_t begin = 0;
    for (size_t end; !peer.broken && (end = peer.in.find('\n', begin)) != std::string::npos; begin = end + 1) {
      OnLine(fd, peer, peer.in.substr(begin, end - begin));
    }
    peer.in.erase(0, begin);
    if (peer.in.size() > counter::kMaxLineBytes || peer.out.size() > kMaxBuffer) peer.broken = true;
  }
}

void Server::OnLine(int fd, Peer& peer, const std::string& line) {
  uint64_t last = 0;
  if (const auto hello = counter::Hello::Parse(line)) {
    peer.nonce = hello->nonce;
    // What the old connection still holds belongs before this one.
    for (auto& [other_fd, other] : peers_) {
      if (other_fd != fd && !other.http && other.nonce == hello->nonce) Read(other_fd, other);
    }
    last = history_.OnHello(fd, *hello);
  } else if (const auto count = counter::Line::Parse(line); count && count->nonce == peer.nonce) {
    last = history_.OnCount(fd, *count, Now());
  } else {
    peer.broken = true;
    return;
  }
  peer.out += "ACK " + std::to_string(last) + "\n";
}

void Server::OnRequest(Peer& peer) {
  const std::string request = peer.in.substr(0, peer.in.find("\r\n"));
  std::string status = "200 OK", body;
  if (request.starts_with("GET /report ")) {
    body = history_.Report().dump() + "\n";
  } else if (request.starts_with("GET /healthz ")) {
    body = "{}\n";
  } else if (request.starts_with("POST /reset ")) {
    history_.Reset();
    body = "{}\n";
  } else {
    status = "404 Not Found";
    body = "{\"error\":\"GET /report, POST /reset, GET /healthz\"}\n";
  }
  peer.out = "HTTP/1.1 " + status + "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
             "\r\nConnection: close\r\n\r\n" + body;
  peer.done = true;
}

void Server::Flush(int fd, Peer& peer) {
  while (!peer.out.empty()) {
    const ssize_t n = send(fd, peer.out.data(), peer.out.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) {
      peer.broken = true;
      return;
    }
    peer.out.erase(0, n);
  }
  if (peer.done) peer.broken = true;
}

void Server::RunOnce(int wait_ms) {
  std::vector<pollfd> polled{{counters_, POLLIN, 0}, {http_, POLLIN, 0}};
  for (const auto& [fd, peer] : peers_) polled.push_back({fd, static_cast<short>(POLLIN | (peer.out.empty() ? 0 : POLLOUT)), 0});
  if (poll(polled.data(), polled.size(), wait_ms) < 0) return;
  for (const pollfd& p : polled) {
    if (!p.revents) continue;
    if (p.fd == counters_ || p.fd == http_) {
      Accept(p.fd, p.fd == http_);
    } else if (const auto found = peers_.find(p.fd); found != peers_.end()) {
      Read(p.fd, found->second);
    }
  }
  const int64_t now = NowMs(CLOCK_MONOTONIC);
  for (auto it = peers_.begin(); it != peers_.end();) {
    auto& [fd, peer] = *it;
    if (!peer.broken) Flush(fd, peer);
    // A counter that is frozen is silent for long: keepalive tells whether it is gone. Who never introduced itself is not waited for.
    if (now - peer.since_ms > (peer.http ? kHttpMs : kSilentMs) && (peer.http || peer.nonce == 0)) peer.broken = true;
    if (peer.broken) {
      history_.OnClose(fd);
      close(fd);
      it = peers_.erase(it);
    } else {
      ++it;
    }
  }
}

}  // namespace witness
