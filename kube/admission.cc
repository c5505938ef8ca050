#include "kube/admission.h"

#include <cerrno>
#include <system_error>
#include <thread>

#include "base/log.h"
#include "kube/admission_review.h"
#include "kube/connection_queue.h"
#include "kube/metrics.h"
#include "kube/tls_certificate.h"

namespace holdfast::kube {
namespace {

constexpr size_t kMaxBodyBytes = 7 << 20;  // an object may be 3 MiB, and an update carries two
constexpr time_t kPeerTimeoutSeconds = 5;
constexpr Duration kRequestLimit = std::chrono::seconds(15);  // an API server has given up by then
constexpr Duration kLookEvery = std::chrono::milliseconds(250);
// Longer than the 90 s after which the API server drops an idle connection: closing first would race with its next request.
constexpr time_t kKeepAliveSeconds = 100;
constexpr size_t kThreads = 64;      // one a connection; an API server keeps at most 25 idle ones
constexpr size_t kMaxWaiting = 256;  // more connections wait in the kernel's backlog

// httplib's routes are regular expressions.
std::string Literal(const std::string& path) {
  std::string out;
  for (char c : path) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

AdmissionResponse Decide(const std::string& path, const AdmissionServer::Handler& handler, const AdmissionRequest& review, bool* threw) {
  std::string what = "no std::exception";
  try {
    return handler(review);
  } catch (const std::exception& e) {
    what = e.what();
  } catch (...) {
  }
  *threw = true;
  LogError("an admission handler threw, allowing the request",
           {{"path", path}, {"object", review.ns + "/" + review.name}, {"error", what}});
  return {};
}

void Answer(const std::string& path, const AdmissionServer::Handler& handler, RuntimeMetrics* metrics, const httplib::Request& request,
            httplib::Response& response) {
  const MonoTime start = Clock::Real().Mono();
  WebhookMetrics* of_path = metrics != nullptr ? &metrics->Webhook(path) : nullptr;
  if (of_path != nullptr) of_path->in_flight.Increment();
  int code = 400;
  Result<AdmissionRequest> review = ReadAdmissionReview(request.body);
  if (review.ok()) {
    bool threw = false;
    const AdmissionResponse verdict = Decide(path, handler, *review, &threw);
    code = threw ? 500 : verdict.allowed ? 200 : verdict.code != 0 ? verdict.code : 403;
    response.set_content(WriteAdmissionReview(review->uid, verdict), "application/json");
  } else {
    response.status = 400;
    response.set_content(review.status().message() + "\n", "text/plain");
  }
  if (of_path == nullptr) return;
  of_path->in_flight.Decrement();
  of_path->seconds.Observe(std::chrono::duration<double>(Clock::Real().Mono() - start).count());
  metrics->WebhookRequest(path, code);
}

}  // namespace

struct AdmissionServer::Impl {
  RuntimeMetrics* const metrics;
  TlsServerState tls{};  // before the server: connections use it until they are gone
  std::map<std::string, Handler> handlers{};
  std::map<std::string, Page> pages{};
  std::unique_ptr<httplib::Server> server{};
  std::atomic<ConnectionQueue*> queue{nullptr};  // the listener's
  std::thread listener{};
  std::jthread keeper{};
  int port = 0;

  Status Start(std::unique_ptr<httplib::Server> fresh, const std::string& address, int wanted, bool with_tls);
  void AddRoutes(bool with_tls);
  void Keep(const std::stop_token& stop);
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
    server->Post(Literal(path), [this, &path = path, &handler = handler](const httplib::Request& request, httplib::Response& response) {
      Answer(path, handler, metrics, request, response);
    });
  }
  server->set_logger([](const httplib::Request&, const httplib::Response&) { TlsServerState::RequestDone(); });
}

Status AdmissionServer::Impl::Start(std::unique_ptr<httplib::Server> fresh, const std::string& address, int wanted, bool with_tls) {
  if (server) return {Code::kFailedPrecondition, "this server runs already"};
  if (!fresh->is_valid()) return {Code::kInternal, "cannot set up TLS"};
  server = std::move(fresh);
  AddRoutes(with_tls);
  server->new_task_queue = [this] {
    auto* fresh_queue = new ConnectionQueue(kThreads, kMaxWaiting);
    queue = fresh_queue;
    return fresh_queue;
  };
  server->set_payload_max_length(kMaxBodyBytes);
  server->set_read_timeout(kPeerTimeoutSeconds);
  server->set_write_timeout(kPeerTimeoutSeconds);
  server->set_tcp_nodelay(true);
  // Plain connections cannot be ended from outside, so Stop would wait for idle ones.
  server->set_keep_alive_max_count(with_tls ? size_t{1} << 30 : 1);
  server->set_keep_alive_timeout(with_tls ? kKeepAliveSeconds : kPeerTimeoutSeconds);
  server->set_exception_handler([](const httplib::Request& request, httplib::Response& response, const std::exception_ptr&) {
    LogError("a page threw", {{"path", request.path}});
    response.status = 500;
  });
  server->set_socket_options(OwnPort);
  if (wanted == 0) {
    port = server->bind_to_any_port(address);
  } else {
    port = server->bind_to_port(address, wanted) ? wanted : -1;
  }
  if (port <= 0) {
    server.reset();
    port = 0;
    return {Code::kUnavailable,
            "cannot listen on " + address + ":" + std::to_string(wanted) + ": " + std::generic_category().message(errno)};
  }
  listener = std::thread([this] { server->listen_after_bind(); });
  // Until it runs, stop() would be ignored.
  while (!server->is_running()) std::this_thread::yield();
  if (with_tls) keeper = std::jthread([this](const std::stop_token& stop) { Keep(stop); });
  return Status::Ok();
}

// Threads are for those who ask something.
void AdmissionServer::Impl::Keep(const std::stop_token& stop) {
  while (Clock::Real().Sleep(kLookEvery, stop)) {
    if (size_t cut = tls.CutSlow(kRequestLimit); cut > 0) LogWarning("cut off clients that did not finish their request", {{"count", cut}});
    ConnectionQueue* now = queue;
    if (now != nullptr && now->waiting() > 0) tls.CutIdle(now->waiting());
  }
}

AdmissionServer::AdmissionServer(RuntimeMetrics* metrics) : impl_(new Impl{.metrics = metrics}) {}

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
  impl_->keeper = {};  // before the queue goes
  impl_->server->stop();
  impl_->tls.ShutDownConnections();
  impl_->listener.join();
  impl_->server.reset();
  impl_->port = 0;
}

}  // namespace holdfast::kube
