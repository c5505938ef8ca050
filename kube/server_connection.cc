#include "kube/server_connection.h"

#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

namespace holdfast::kube {
namespace {

constexpr size_t kChunk = 16 << 10;
constexpr size_t kMostUnsent = 1 << 20;  // of an answer: a worker waits for the peer only beyond this
constexpr Duration kLook = std::chrono::milliseconds(100);

bool IsStuck(const Standing& s) { return s.phase != Phase::kIdle || !s.proven; }

}  // namespace

bool MayYield(const Standing& s) { return s.phase != Phase::kReady && s.phase != Phase::kServing; }

bool YieldsBefore(const Standing& a, const Standing& b) {
  if (!MayYield(a)) return false;
  if (!MayYield(b)) return true;
  if (IsStuck(a) != IsStuck(b)) return IsStuck(a);
  return a.since < b.since;
}

ServerConnection::ServerConnection(int socket, SSL_CTX* context, std::string peer_address, int peer_port, Clock& clock)
    : fd(socket), peer(std::move(peer_address)), peer_port_(peer_port), clock_(clock) {
  standing = {.phase = context != nullptr ? Phase::kHandshake : Phase::kIdle, .since = clock.Mono()};
  if (context == nullptr) return;
  ssl_ = SSL_new(context);
  if (ssl_ == nullptr || SSL_set_fd(ssl_, fd) != 1) {
    broken_ = true;
    return;
  }
  SSL_set_accept_state(ssl_);
  SSL_set_mode(ssl_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
}

ServerConnection::~ServerConnection() {
  SSL_free(ssl_);
  close(fd);
}

namespace {
ServerConnection::Progress Meaning(SSL* ssl, int result) {
  const int error = SSL_get_error(ssl, result);
  ERR_clear_error();
  if (error == SSL_ERROR_WANT_READ) return ServerConnection::Progress::kRead;
  if (error == SSL_ERROR_WANT_WRITE) return ServerConnection::Progress::kWrite;
  return ServerConnection::Progress::kEnded;
}
bool TryAgain() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }
}  // namespace

ServerConnection::Progress ServerConnection::Handshake() {
  if (broken_) return Progress::kEnded;
  if (ssl_ == nullptr) return Progress::kDone;
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_);
  return result == 1 ? Progress::kDone : Meaning(ssl_, result);
}

ServerConnection::Progress ServerConnection::Receive(char* out, size_t size, size_t* got) {
  *got = 0;
  if (ssl_ != nullptr) {
    ERR_clear_error();
    const int result = SSL_read_ex(ssl_, out, size, got);
    return result == 1 ? Progress::kDone : Meaning(ssl_, result);
  }
  const ssize_t n = recv(fd, out, size, 0);
  if (n > 0) *got = static_cast<size_t>(n);
  return n > 0 ? Progress::kDone : n < 0 && TryAgain() ? Progress::kRead : Progress::kEnded;
}

ServerConnection::Progress ServerConnection::Fill(size_t limit) {
  std::array<char, kChunk> chunk;
  while (input.size() < limit) {
    size_t got = 0;
    const Progress progress = Receive(chunk.data(), std::min(chunk.size(), limit - input.size()), &got);
    if (progress != Progress::kDone) return progress;
    input.append(chunk.data(), got);
  }
  return Progress::kDone;
}

// Bounded, so that one peer does not keep the loop.
ServerConnection::Progress ServerConnection::DropInput() {
  std::array<char, kChunk> chunk;
  for (int i = 0; i < 16; ++i) {
    size_t got = 0;
    const Progress progress = Receive(chunk.data(), chunk.size(), &got);
    if (progress != Progress::kDone) return progress;
  }
  return Progress::kRead;
}

ServerConnection::Progress ServerConnection::Send(const char* bytes, size_t size, size_t* sent) {
  while (*sent < size) {
    size_t n = 0;
    if (ssl_ != nullptr) {
      ERR_clear_error();
      const int result = SSL_write_ex(ssl_, bytes + *sent, size - *sent, &n);
      if (result != 1) return Meaning(ssl_, result);
    } else {
      const ssize_t wrote = send(fd, bytes + *sent, size - *sent, MSG_NOSIGNAL);
      if (wrote < 0) return TryAgain() ? Progress::kWrite : Progress::kEnded;
      n = static_cast<size_t>(wrote);
    }
    *sent += n;
  }
  return Progress::kDone;
}

ServerConnection::Progress ServerConnection::SendKept() {
  const Progress progress = Send(output_.data(), output_.size(), &sent_);
  if (progress != Progress::kDone) return progress;
  output_.clear();
  sent_ = 0;
  return progress;
}

ServerConnection::Progress ServerConnection::Flush() { return broken_ ? Progress::kEnded : SendKept(); }

void ServerConnection::EndOutput() {
  if (ssl_ != nullptr && !broken_) SSL_shutdown(ssl_);
  ERR_clear_error();
  shutdown(fd, SHUT_WR);
}

void ServerConnection::Shutdown() { shutdown(fd, SHUT_RDWR); }

void ServerConnection::Begin(const RequestHead& of, const WorkerLimits& limits) {
  request = of;
  limits_ = limits;
  read_ = from_input_ = 0;
  body_until_ = clock_.Mono() + limits.body;
  answer_until_ = MonoTime::max();
}

bool ServerConnection::End() {
  const size_t all = request.bytes + request.body_bytes;
  const bool whole = read_ == all || input.size() >= all;  // the rest came, though nobody asked for it
  input.erase(0, read_ == all ? from_input_ : std::min(all, input.size()));
  return whole && !broken_;
}

bool ServerConnection::Wait(Progress what, MonoTime deadline) const {
  const MonoTime until = std::min(deadline, clock_.Mono() + limits_.silence);
  while (clock_.Mono() < until) {
    const Duration slice = std::min(kLook, until - clock_.Mono());
    pollfd ready = {.fd = fd, .events = static_cast<short>(what == Progress::kRead ? POLLIN : POLLOUT), .revents = 0};
    const int n = poll(&ready, 1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(slice).count()));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
  }
  return false;
}

ssize_t ServerConnection::read(char* out, size_t size) {
  size = std::min(size, request.bytes + request.body_bytes - read_);
  if (size == 0) return 0;
  if (from_input_ < input.size()) {
    const size_t n = std::min(size, input.size() - from_input_);
    memcpy(out, input.data() + from_input_, n);
    from_input_ += n;
    read_ += n;
    return static_cast<ssize_t>(n);
  }
  while (!broken_ && clock_.Mono() < body_until_) {
    size_t got = 0;
    const Progress progress = Receive(out, size, &got);
    if (progress == Progress::kDone) {
      read_ += got;
      return static_cast<ssize_t>(got);
    }
    if (progress == Progress::kEnded || !Wait(progress, body_until_)) break;
  }
  broken_ = true;
  return -1;
}

ssize_t ServerConnection::write(const char* bytes, size_t size) {
  if (broken_) return -1;
  if (answer_until_ == MonoTime::max()) answer_until_ = clock_.Mono() + limits_.answer;
  for (size_t at = 0;;) {
    Progress progress = SendKept();
    if (progress == Progress::kDone) progress = Send(bytes, size, &at);
    if (progress == Progress::kDone) break;
    if (progress != Progress::kEnded && output_.size() - sent_ + size - at <= kMostUnsent) {
      output_.append(bytes + at, size - at);
      break;
    }
    if (progress == Progress::kEnded || !Wait(progress, answer_until_)) {
      broken_ = true;
      return -1;
    }
  }
  return static_cast<ssize_t>(size);
}

void ServerConnection::get_remote_ip_and_port(std::string& ip, int& port) const {
  ip = peer;
  port = peer_port_;
}

void ServerConnection::get_local_ip_and_port(std::string& ip, int& port) const {
  ip = "";
  port = 0;
}

}  // namespace holdfast::kube
