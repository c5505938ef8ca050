// One thread accepts, and each connection has one that moves its bytes: non-blocking sockets, a poll of at most 10 ms, and in every round a
// look at what the test wants now.
#include "tests/integration/fault_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "tests/integration/fault_pump.h"
#include "tests/unit/kube/test_certificate.h"

namespace holdfast::testing {
namespace {

struct FreeContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using Context = SslContext;

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
  impl_->acceptor = std::jthread([impl = impl_.get()](const std::stop_token& stop) {
    // OpenSSL writes to what the other end has closed. For this thread and those that it starts: whom we test has to see to itself.
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    impl->Accept(stop);
  });
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
