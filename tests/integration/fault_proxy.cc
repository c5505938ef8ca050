// One thread accepts, and each connection has one that moves its bytes: non-blocking sockets, a poll of at most 10 ms, and in every round a
// look at what the test wants now.
#include "tests/integration/fault_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <list>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "tests/integration/http_heads.h"
#include "tests/unit/kube/test_certificate.h"

namespace holdfast::testing {
namespace {

constexpr int kTickMs = 10;
constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

struct FreeContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using Context = std::shared_ptr<SSL_CTX>;

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

[[noreturn]] void Die(const std::string& why) {
  fprintf(stderr, "fault proxy: %s\n", why.c_str());
  abort();
}

Context ServerContext(const std::string& certificate_pem, const std::string& key_pem) {
  Context context(SSL_CTX_new(TLS_server_method()), FreeContext());
  BIO* bio = BIO_new_mem_buf(certificate_pem.data(), static_cast<int>(certificate_pem.size()));
  X509* x = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
  BIO_free(bio);
  bio = BIO_new_mem_buf(key_pem.data(), static_cast<int>(key_pem.size()));
  EVP_PKEY* key = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
  BIO_free(bio);
  if (SSL_CTX_use_certificate(context.get(), x) != 1 || SSL_CTX_use_PrivateKey(context.get(), key) != 1)
    Die("not a certificate and its key");
  X509_free(x);
  EVP_PKEY_free(key);
  return context;
}

// One end of a connection, with or without TLS.
class Side {
 public:
  Side(int fd, const Context& context, bool server) : fd_(fd) {
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

struct Connection {
  std::atomic<bool> frozen{false}, cut{false}, done{false};
  std::jthread thread{};  // last: it uses the others
};

}  // namespace

struct FaultProxy::Impl {
  const Mode mode;
  mutable std::mutex mutex{};
  // Guarded by `mutex`.
  kube::ClientConfig upstream{};
  std::string certificate_pem{};
  Context server_context{};
  bool frozen = false, refuse = false;
  size_t rate = kNoLimit, cut_after = kNoLimit;
  int cut_round = 0;  // counts the calls of CutAfter
  std::vector<Answer> answers{};
  std::vector<std::string> requests{};
  std::list<Connection> connections{};

  Context client_context{SSL_CTX_new(TLS_client_method()), FreeContext()};
  std::atomic<int> accepted{0};
  int listener = -1;
  uint16_t port = 0;
  std::jthread acceptor{};

  void Accept(const std::stop_token& stop);
  void Serve(int client, Connection* connection, const std::stop_token& stop);
  int ConnectUpstream(bool* tls);
  std::string OnRequest(const std::string& line);
};

namespace {

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

}  // namespace

int FaultProxy::Impl::ConnectUpstream(bool* tls) {
  std::string server;
  {
    std::lock_guard lock(mutex);
    server = upstream.server;
  }
  *tls = server.starts_with("https://");
  server.erase(0, server.find("://") + 3);
  const size_t colon = server.find(':');
  sockaddr_in address = Loopback(static_cast<uint16_t>(atoi(server.c_str() + colon + 1)));
  if (colon == std::string::npos || inet_pton(AF_INET, server.substr(0, colon).c_str(), &address.sin_addr) != 1) {
    Die("the upstream has no numeric address and port: " + server);
  }
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    close(fd);
    return -1;
  }
  fcntl(fd, F_SETFL, O_NONBLOCK);
  return fd;
}

// The answer that the test put up for this request, or nothing.
std::string FaultProxy::Impl::OnRequest(const std::string& line) {
  std::lock_guard lock(mutex);
  requests.push_back(line);
  for (Answer& answer : answers) {
    if (answer.times <= 0 || line.find(answer.match) == std::string::npos) continue;
    --answer.times;
    std::string text = "HTTP/1.1 " + std::to_string(answer.status) + " Made up\r\n";
    for (const auto& [name, value] : answer.headers) text += name + ": " + value + "\r\n";
    return text + "Content-Length: " + std::to_string(answer.body.size()) + "\r\n\r\n" + answer.body;
  }
  return "";
}

void FaultProxy::Impl::Serve(int fd, Connection* connection, const std::stop_token& stop) {
  Context server;
  {
    std::lock_guard lock(mutex);
    server = server_context;
  }
  const bool http = mode == Mode::kHttp;
  Side client(fd, http ? server : nullptr, true);
  bool tls = false;
  int up = ConnectUpstream(&tls);
  client.ResetOnClose();
  if (up < 0) return;
  Side upstream_side(up, http && tls ? client_context : nullptr, false);
  upstream_side.ResetOnClose();
  HttpHeads heads([this](const std::string& line) { return OnRequest(line); });
  Pump pump(&client, &upstream_side, http ? &heads : nullptr);
  size_t budget = kNoLimit;
  for (int round = 0; !stop.stop_requested() && !connection->cut;) {
    size_t rate_now = kNoLimit;
    bool frozen_now = connection->frozen;
    {
      std::lock_guard lock(mutex);
      rate_now = rate;
      frozen_now = frozen_now || frozen;
      if (round != cut_round) budget = cut_after;
      round = cut_round;
    }
    if (frozen_now) {
      Clock::Real().Sleep(std::chrono::milliseconds(kTickMs), stop);
      continue;
    }
    if (!pump.Step(rate_now, &budget)) return;
    if (budget == 0 && pump.Flushed()) return;
  }
}

void FaultProxy::Impl::Accept(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::list<Connection> over;  // joined without the lock
    {
      std::lock_guard lock(mutex);
      for (auto at = connections.begin(); at != connections.end();) {
        auto next = std::next(at);
        if (at->done) over.splice(over.end(), connections, at);
        at = next;
      }
    }
    over.clear();
    pollfd waiting{listener, POLLIN, 0};
    if (poll(&waiting, 1, kTickMs) <= 0) continue;
    int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) continue;
    ++accepted;
    std::lock_guard lock(mutex);
    if (refuse) {
      Side(fd, nullptr, true).ResetOnClose();
      continue;
    }
    Connection& connection = connections.emplace_back();
    connection.thread = std::jthread([this, fd, &connection](const std::stop_token& end) {
      Serve(fd, &connection, end);
      connection.done = true;
    });
  }
}

FaultProxy::FaultProxy(const kube::ClientConfig& upstream, Mode mode) : impl_(new Impl{.mode = mode}) {
  impl_->upstream = upstream;
  if (mode == Mode::kHttp) {
    auto made = kube::TestCertificate::Make("fault-proxy", 1);
    SetCertificate(made.certificate_pem, made.key_pem);
  }
  impl_->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  if (bind(impl_->listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(impl_->listener, 64) != 0 ||
      getsockname(impl_->listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    Die("cannot listen on loopback");
  }
  impl_->port = ntohs(address.sin_port);
  impl_->acceptor = std::jthread([impl = impl_.get()](const std::stop_token& stop) { impl->Accept(stop); });
}

FaultProxy::~FaultProxy() {
  impl_->acceptor.request_stop();
  impl_->acceptor.join();
  impl_->connections.clear();
  close(impl_->listener);
}

kube::ClientConfig FaultProxy::config() const {
  std::lock_guard lock(impl_->mutex);
  kube::ClientConfig config = impl_->upstream;
  const bool tls = impl_->mode == Mode::kHttp || config.server.starts_with("https://");
  config.server = (tls ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(impl_->port);
  if (impl_->mode == Mode::kHttp) {
    config.ca_file.clear();
    config.ca_pem = impl_->certificate_pem;
  }
  return config;
}

void FaultProxy::Freeze() {
  std::lock_guard lock(impl_->mutex);
  impl_->frozen = true;
}

void FaultProxy::FreezeOpen() {
  std::lock_guard lock(impl_->mutex);
  for (Connection& connection : impl_->connections) connection.frozen = true;
}

void FaultProxy::Throttle(size_t bytes_per_second) {
  std::lock_guard lock(impl_->mutex);
  impl_->rate = bytes_per_second;
}

void FaultProxy::CutAfter(size_t bytes) {
  std::lock_guard lock(impl_->mutex);
  impl_->cut_after = bytes;
  ++impl_->cut_round;
}

void FaultProxy::Refuse() {
  std::lock_guard lock(impl_->mutex);
  impl_->refuse = true;
}

void FaultProxy::Heal() {
  std::lock_guard lock(impl_->mutex);
  impl_->frozen = impl_->refuse = false;
  impl_->rate = impl_->cut_after = kNoLimit;
  ++impl_->cut_round;
}

void FaultProxy::CutAll() {
  std::lock_guard lock(impl_->mutex);
  for (Connection& connection : impl_->connections) connection.cut = true;
}

void FaultProxy::SetUpstream(const kube::ClientConfig& upstream) {
  std::lock_guard lock(impl_->mutex);
  impl_->upstream = upstream;
}

void FaultProxy::AddAnswer(Answer answer) {
  std::lock_guard lock(impl_->mutex);
  impl_->answers.push_back(std::move(answer));
}

void FaultProxy::SetCertificate(const std::string& certificate_pem, const std::string& key_pem) {
  Context context = ServerContext(certificate_pem, key_pem);
  std::lock_guard lock(impl_->mutex);
  impl_->certificate_pem = certificate_pem;
  impl_->server_context = std::move(context);
}

int FaultProxy::accepted() const { return impl_->accepted; }

int FaultProxy::open() const {
  std::lock_guard lock(impl_->mutex);
  int count = 0;
  for (const Connection& connection : impl_->connections) count += connection.done ? 0 : 1;
  return count;
}

std::vector<std::string> FaultProxy::requests() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->requests;
}

}  // namespace holdfast::testing
