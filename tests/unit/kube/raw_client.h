// Peers that do not do as they should.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace holdfast::kube {

// A client that sends what the test says, byte by byte if it likes; with TLS after Handshake.
class RawClient {
 public:
  // `from`: its own address, any of 127.0.0.0/8.
  explicit RawClient(int port, const char* from = "127.0.0.1") : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, from, &address.sin_addr);
    if (bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{20, 0};
    for (int way : {SO_RCVTIMEO, SO_SNDTIMEO}) setsockopt(socket_, SOL_SOCKET, way, &limit, sizeof limit);
    connected_ = connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawClient() {
    SSL_free(ssl_);
    close(socket_);
  }
  bool Handshake() {
    static const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
    ssl_ = SSL_new(context.get());
    SSL_set_fd(ssl_, socket_);
    return connected_ && SSL_connect(ssl_) == 1;
  }
  bool Write(const std::string& text) {
    if (ssl_ == nullptr) return send(socket_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
    return SSL_write(ssl_, text.data(), static_cast<int>(text.size())) == static_cast<int>(text.size());
  }
  // An answer with its body, or less when the server ended the connection.
  std::string Read() {
    std::string text;
    char buffer[4096];
    while (!text.ends_with("\r\n\r\nok")) {
      const ssize_t got = ssl_ != nullptr ? SSL_read(ssl_, buffer, sizeof buffer) : recv(socket_, buffer, sizeof buffer, 0);
      if (got <= 0) break;
      text.append(buffer, static_cast<size_t>(got));
    }
    return text;
  }
  int socket() const { return socket_; }
  bool connected() const { return connected_; }

 private:
  const int socket_;
  bool connected_ = false;
  SSL* ssl_ = nullptr;
};

// Many of them, of three kinds: a request of which a line comes now and then, a handshake of which a byte does, and a connection on which
// nothing was ever asked. They trickle from their first moment on; those that the server ends stay away.
class TricklingPeers {
 public:
  TricklingPeers(int port, size_t count, bool with_tls = true) {
    signal(SIGPIPE, SIG_IGN);
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    trickle_ = std::jthread([this](const std::stop_token& stop) {
      while (Clock::Real().Sleep(std::chrono::milliseconds(100), stop)) Trickle();
    });
    for (size_t i = 0; i < count; ++i) {
      auto peer = std::make_unique<RawClient>(port);
      // Whoever does not get a handshake any more goes on with half ones.
      const Kind kind = refused_ ? Kind::kHandshake : static_cast<Kind>(i % 3);
      const bool served = peer->connected() && (!with_tls || kind == Kind::kHandshake || peer->Handshake());
      refused_ = refused_ || !served;
      if (!peer->connected()) return;
      if (!served) continue;
      fcntl(peer->socket(), F_SETFL, O_NONBLOCK);
      if (kind == Kind::kHead) peer->Write("POST /mutate HTTP/1.1\r\nHost: x\r\n");
      if (kind == Kind::kHandshake) peer->Write(with_tls ? std::string("\x16\x03\x01\x02\x00", 5) : "GET");  // of 512 bytes
      std::lock_guard lock(mutex_);
      peers_.emplace_back(kind, std::move(peer));
    }
  }
  // All of them, and each that wanted one had its handshake.
  bool Connected() const { return !refused_; }

 private:
  enum class Kind { kHead, kHandshake, kIdle };
  void Trickle() {
    std::lock_guard lock(mutex_);
    for (const auto& [kind, peer] : peers_) {
      if (kind == Kind::kHead) peer->Write("X-A: b\r\n");
      if (kind == Kind::kHandshake) peer->Write("\x01");
    }
  }

  bool refused_ = false;
  std::mutex mutex_;
  std::vector<std::pair<Kind, std::unique_ptr<RawClient>>> peers_;
  std::jthread trickle_;
};

}  // namespace holdfast::kube
