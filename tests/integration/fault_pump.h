// Moves the bytes of one connection through FaultProxy: non-blocking, a round at a time.
#pragma once

#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <memory>
#include <string>

#include "base/clock.h"
#include "tests/integration/http_heads.h"

namespace holdfast::testing {

constexpr int kTickMs = 10;  // how long a round may wait, and so how soon the test's wishes are seen
constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

using SslContext = std::shared_ptr<SSL_CTX>;

// One end of a connection, with or without TLS.
class Side {
 public:
  Side(int fd, const SslContext& context, bool server) : fd_(fd) {
    if (!context) return;
    ssl_ = SSL_new(context.get());
    SSL_set_mode(ssl_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_set_fd(ssl_, fd);
    server ? SSL_set_accept_state(ssl_) : SSL_set_connect_state(ssl_);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;
  ~Side() {
    SSL_free(ssl_);
    close(fd_);
  }
  void ResetOnClose() {
    linger now{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }
  enum class Moved { kSome, kNone, kEnd };
  Moved Read(std::string* into, size_t limit) {
    char buffer[16384];
    const size_t size = std::min(sizeof buffer, limit);
    ssize_t n = ssl_ != nullptr ? SSL_read(ssl_, buffer, static_cast<int>(size)) : recv(fd_, buffer, size, 0);
    if (n > 0) into->append(buffer, static_cast<size_t>(n));
    return Judge(n);
  }
  Moved Write(std::string* from) {
    ssize_t n = ssl_ != nullptr ? SSL_write(ssl_, from->data(), static_cast<int>(from->size()))
                                : send(fd_, from->data(), from->size(), MSG_NOSIGNAL);
    if (n > 0) from->erase(0, static_cast<size_t>(n));
    return Judge(n);
  }
  bool Pending() const { return ssl_ != nullptr && SSL_pending(ssl_) > 0; }
  int fd() const { return fd_; }

 private:
  Moved Judge(ssize_t n) const {
    if (n > 0) return Moved::kSome;
    if (ssl_ == nullptr) return n < 0 && (errno == EAGAIN || errno == EINTR) ? Moved::kNone : Moved::kEnd;
    int error = SSL_get_error(ssl_, static_cast<int>(n));
    return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? Moved::kNone : Moved::kEnd;
  }
  const int fd_;
  SSL* ssl_ = nullptr;
};

// What one connection carries, both ways, and how far it may.
class Pump {
 public:
  Pump(Side* client, Side* upstream, HttpHeads* heads) : client_(client), upstream_(upstream), heads_(heads) {}
  // One round. False: an end closed the connection.
  bool Step(size_t rate, size_t* budget) {
    using Moved = Side::Moved;
    Wait(rate);
    if (!to_upstream_.empty() && upstream_->Write(&to_upstream_) == Moved::kEnd) return false;
    if (!to_client_.empty() && client_->Write(&to_client_) == Moved::kEnd) return false;
    if (to_upstream_.empty()) {
      std::string* into = heads_ != nullptr ? &from_client_ : &to_upstream_;
      if (client_->Read(into, kNoLimit) == Moved::kEnd) return false;
      if (heads_ != nullptr) heads_->Feed(&from_client_, &to_upstream_, &to_client_);
    }
    if (to_client_.empty()) {
      const size_t limit = std::min(*budget, Allowance(rate));
      if (limit > 0 && upstream_->Read(&to_client_, limit) == Moved::kEnd) return false;
      if (*budget != kNoLimit) *budget -= to_client_.size();
      if (rate != kNoLimit) allowance_ -= static_cast<double>(to_client_.size());
    }
    return true;
  }
  bool Flushed() const { return to_client_.empty(); }

 private:
  void Wait(size_t rate) {
    if (client_->Pending() || (upstream_->Pending() && rate == kNoLimit)) return;
    short from_upstream = rate == kNoLimit && to_client_.empty() ? POLLIN : 0;
    if (!to_upstream_.empty()) from_upstream |= POLLOUT;
    short from_client = to_upstream_.empty() ? POLLIN : 0;
    if (!to_client_.empty()) from_client |= POLLOUT;
    pollfd both[2] = {{client_->fd(), from_client, 0}, {upstream_->fd(), from_upstream, 0}};
    poll(both, 2, kTickMs);
  }
  size_t Allowance(size_t rate) {
    if (rate == kNoLimit) return kNoLimit;
    const MonoTime now = Clock::Real().Mono();
    if (last_ != MonoTime()) allowance_ += std::chrono::duration<double>(now - last_).count() * static_cast<double>(rate);
    last_ = now;
    allowance_ = std::min(allowance_, std::max(1.0, static_cast<double>(rate)));
    return static_cast<size_t>(allowance_);
  }

  Side* const client_;
  Side* const upstream_;
  HttpHeads* const heads_;  // null: the bytes are not looked at
  std::string from_client_, to_upstream_, to_client_;
  double allowance_ = 0;
  MonoTime last_{};
};

}  // namespace holdfast::testing
