#include "kube/admission.h"

#define CPPHTTPLIB_OPENSSL_SUPPORT  // as the library was built
#include <httplib.h>

#include <deque>
#include <regex>
#include <thread>

#include "base/log.h"
#include "kube/admission_review.h"
#include "kube/tls_certificate.h"

namespace holdfast::kube {
namespace {

constexpr size_t kMaxBodyBytes = 7 << 20;  // an object may be 3 MiB, and an update carries two
constexpr time_t kPeerTimeoutSeconds = 5;
// Longer than the 90 s after which the API server drops an idle connection: closing first would race with its next request.
constexpr time_t kKeepAliveSeconds = 100;
constexpr size_t kThreads = 64;      // one a connection; an API server keeps at most 25 idle ones
constexpr size_t kMaxWaiting = 256;  // more connections wait in the kernel's backlog

// httplib's own pool has no bound.
class ConnectionQueue final : public httplib::TaskQueue {
 public:
  explicit ConnectionQueue(size_t threads) {
    for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
  }
  void enqueue(std::function<void()> serve) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_.size() < kMaxWaiting; });
    waiting_.push_back(std::move(serve));
    changed_.notify_all();
  }
  void shutdown() override {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !waiting_.empty() || closing_; });
      if (waiting_.empty()) return;
      std::function<void()> serve = std::move(waiting_.front());
      waiting_.pop_front();
      changed_.notify_all();
      lock.unlock();
      serve();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  std::vector<std::thread> threads_;
  bool closing_ = false;
};

// httplib's routes are regular expressions.
std::string Literal(const std::string& path) {
  std::string out;
  for (char c : path) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

void Answer(const std::string& path, const AdmissionServer::Handler& handler, const httplib::Request& request,
            httplib::Response& response) {
  Result<AdmissionRequest> review = ReadAdmissionReview(request.body);
  if (!review.ok()) {
    response.status = 400;
    response.set_content(review.status().message() + "\n", "text/plain");
    return;
  }
  AdmissionResponse verdict;
  try {
    verdict = handler(*review);
  } catch (const std::exception& e) {
    LogError("an admission handler threw, allowing the request",
             {{"path", path}, {"object", review->ns + "/" + review->name}, {"error", e.what()}});
    verdict = {};
  } catch (...) {
    LogError("an admission handler threw, allowing the request", {{"path", path}, {"object", review->ns + "/" + review->name}});
    verdict = {};
  }
  response.set_content(WriteAdmissionReview(review->uid, verdict), "application/json");
}

}  // namespace

struct AdmissionServer::Impl {
  TlsServerState tls;  // first: connections use it until they are gone
  std::map<std::string, Handler> handlers;
  std::map<std::string, Page> pages;
  std::unique_ptr<httplib::Server> server;
  std::thread listener;
  int port = 0;

  Status Start(std::unique_ptr<httplib::Server> fresh, const std::string& address, int wanted, bool with_tls);
  void AddRoutes(bool with_tls);
};

void AdmissionServer::Impl::AddRoutes(bool with_tls) {
  for (const auto& [path, page] : pages) {
    server->Get(Literal(path), [&page = page](const httplib::Request&, httplib::Response& response) {
      auto [status, body] = page();
      response.status = status;
      response.set_content(body, "text/plain; version=0.0.4; charset=utf-8");
    });
  }
  if (!with_tls) return;
  for (const auto& [path, handler] : handlers) {
    server->Post(Literal(path), [&path = path, &handler = handler](const httplib::Request& request, httplib::Response& response) {
      Answer(path, handler, request, response);
    });
  }
}

Status AdmissionServer::Impl::Start(std::unique_ptr<httplib::Server> fresh, const std::string& address, int wanted, bool with_tls) {
  if (server) return {Code::kFailedPrecondition, "this server runs already"};
  if (!fresh->is_valid()) return {Code::kInternal, "cannot set up TLS"};
  server = std::move(fresh);
  AddRoutes(with_tls);
  server->new_task_queue = [] { return new ConnectionQueue(kThreads); };
  server->set_payload_max_length(kMaxBodyBytes);
  server->set_read_timeout(kPeerTimeoutSeconds);
  server->set_write_timeout(kPeerTimeoutSeconds);
  server->set_tcp_nodelay(true);
  // Plain connections cannot be ended from outside, so Stop would wait for idle ones.
  server->set_keep_alive_max_count(with_tls ? size_t{1} << 30 : 1);
  server->set_keep_alive_timeout(with_tls ? kKeepAliveSeconds : kPeerTimeoutSeconds);
  server->set_exception_handler([](const httplib::Request& request, httplib::Response& response, std::exception_ptr) {
    LogError("a page threw", {{"path", request.path}});
    response.status = 500;
  });
  if (wanted == 0) {
    port = server->bind_to_any_port(address);
  } else {
    port = server->bind_to_port(address, wanted) ? wanted : -1;
  }
  if (port <= 0) {
    server.reset();
    port = 0;
    return {Code::kUnavailable, "cannot listen on " + address + ":" + std::to_string(wanted) + ": " + strerror(errno)};
  }
  listener = std::thread([this] { server->listen_after_bind(); });
  // Until it runs, stop() would be ignored.
  while (!server->is_running()) std::this_thread::yield();
  return Status::Ok();
}

AdmissionServer::AdmissionServer() : impl_(new Impl) {}

AdmissionServer::~AdmissionServer() { Stop(); }

void AdmissionServer::Handle(const std::string& path, Handler handler) { impl_->handlers[path] = std::move(handler); }

void AdmissionServer::Serve(const std::string& path, Page page) { impl_->pages[path] = std::move(page); }

Status AdmissionServer::SetCertificate(const std::string& cert_chain_pem, const std::string& key_pem) {
  return impl_->tls.SetCertificate(cert_chain_pem, key_pem);
}

Status AdmissionServer::Start(const std::string& address, int port) {
  if (!impl_->tls.HasCertificate()) return {Code::kFailedPrecondition, "an admission server needs a certificate before it starts"};
  auto server = std::make_unique<httplib::SSLServer>([this](SSL_CTX& context) { return impl_->tls.Install(&context); });
  return impl_->Start(std::move(server), address, port, /*with_tls=*/true);
}

Status AdmissionServer::StartPlain(const std::string& address, int port) {
  return impl_->Start(std::make_unique<httplib::Server>(), address, port, /*with_tls=*/false);
}

int AdmissionServer::port() const { return impl_->port; }

void AdmissionServer::Stop() {
  if (!impl_->server) return;
  impl_->server->stop();
  impl_->tls.ShutDownConnections();
  impl_->listener.join();
  impl_->server.reset();
  impl_->port = 0;
}

}  // namespace holdfast::kube
