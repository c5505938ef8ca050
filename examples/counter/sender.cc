#include "counter/sender.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>

namespace counter {
namespace {

constexpr size_t kMaxWaiting = 36000;  // half an hour at 20 a second, about 4 MB
constexpr size_t kBatchBytes = size_t{64} * 1024;
constexpr int kConnectMs = 1000, kSendMs = 5000;

}  // namespace

Sender::Sender(const std::string& address, uint64_t nonce, uint64_t mib) : address_(address), nonce_(nonce), mib_(mib) {
  if (address_.empty()) return;
  if (pipe2(wake_, O_NONBLOCK | O_CLOEXEC) != 0) return;
  thread_ = std::thread([this] { Run(); });
}

Sender::~Sender() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) {
    (void)!write(wake_[1], "x", 1);
    thread_.join();
  }
  for (int fd : wake_) {
    if (fd >= 0) close(fd);
  }
}

void Sender::Add(const Line& line) {
  if (!thread_.joinable()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stop_ || waiting_.size() < kMaxWaiting; });
  reached_ = line.count;
  waiting_.push_back({line.count, line.Text()});
  (void)!write(wake_[1], "x", 1);  // a full pipe wakes as well
}

int64_t Sender::reconnects() {
  std::lock_guard lock(mutex_);
  return connections_ > 0 ? connections_ - 1 : 0;
}

// The address is resolved each time: a Service may have been made anew.
int Sender::Connect() {
  const size_t colon = address_.rfind(':');
  if (colon == std::string::npos) return -1;
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_family = AF_INET;
  if (getaddrinfo(address_.substr(0, colon).c_str(), address_.c_str() + colon + 1, &hints, &found) != 0) return -1;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int error = fd < 0 ? errno : 0;
  if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
    pollfd ready{fd, POLLOUT, 0};
    socklen_t size = sizeof error;
    error = errno != EINPROGRESS ? errno : poll(&ready, 1, kConnectMs) != 1 ? ETIMEDOUT : 0;
    if (error == 0) getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  }
  freeaddrinfo(found);
  if (error != 0) {
    if (fd >= 0) close(fd);
    return -1;
  }
  // Data that nobody acknowledges for 5 s: the connection is dead, however silent.
  const int on = 1, timeout_ms = 5000;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
  return fd;
}

bool Sender::SendAll(int fd, const std::string& text) {
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t n = send(fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n > 0) {
      sent += n;
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    pollfd ready{fd, POLLOUT, 0};
    if (n < 0 && errno == EAGAIN && poll(&ready, 1, kSendMs) == 1) continue;
    return false;
  }
  return true;
}

bool Sender::Serve(int fd) {
  std::string in;
  uint64_t sent = 0;  // last count sent on this connection
  bool greeted = false;
  {
    std::lock_guard lock(mutex_);
    ++connections_;
    in.reserve(kMaxLineBytes);
    sent = reached_;
  }
  if (!SendAll(fd, Hello{nonce_, mib_, sent}.Text())) return false;
  for (;;) {
    pollfd ready[2] = {{fd, POLLIN, 0}, {wake_[0], POLLIN, 0}};
    if (poll(ready, 2, greeted ? -1 : kSendMs) == 0) return false;  // connected, but nobody answers
    char data[4096];
    if (ready[1].revents) (void)!read(wake_[0], data, sizeof data);
    if (ready[0].revents) {
      const ssize_t n = recv(fd, data, sizeof data, 0);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
      if (n > 0) in.append(data, n);
      if (in.size() > sizeof data) return false;
    }
    std::string out;
    {
      std::lock_guard lock(mutex_);
      if (stop_) return true;
      for (size_t end; (end = in.find('\n')) != std::string::npos; in.erase(0, end + 1)) {
        unsigned long long last = 0;
        if (sscanf(in.c_str(), "ACK %llu", &last) != 1) return false;
        if (!greeted) sent = last;
        greeted = true;
        while (!waiting_.empty() && waiting_.front().count <= last) waiting_.pop_front();
        changed_.notify_all();
      }
      if (greeted) {
        // Lines are in order of count, one each.
        size_t at = waiting_.empty() || sent < waiting_.front().count ? 0 : sent - waiting_.front().count + 1;
        for (; at < waiting_.size() && out.size() < kBatchBytes; ++at) {
          out += waiting_[at].text;
          sent = waiting_[at].count;
        }
      }
    }
    if (!SendAll(fd, out)) return false;
  }
}

void Sender::Run() {
  for (;;) {
    const int fd = Connect();
    if (fd >= 0) {
      const bool done = Serve(fd);
      close(fd);
      if (done) return;
      fprintf(stderr, "witness: connection lost, connecting again\n");
    }
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, std::chrono::milliseconds(200), [this] { return stop_; })) return;
  }
}

}  // namespace counter
