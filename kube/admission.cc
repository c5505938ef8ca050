#include "kube/admission.h"

#include "base/log.h"
#include "kube/admission_review.h"
#include "kube/http_server.h"
#include "kube/metrics.h"
#include "kube/tls_certificate.h"

namespace holdfast::kube {
namespace {

constexpr size_t kMaxBodyBytes = 7 << 20;  // an object may be 3 MiB, and an update carries two
// An API server has given up by the end of head and body; idle: longer than the 90 s after which it drops a connection by itself, since
// closing first would race with its next request.
const HttpServerOptions kReviews{.threads = 64,
                                 .max_connections = 1024,
                                 .body_first = kMaxBodyBytes,
                                 .head = std::chrono::seconds(10),
                                 .body = std::chrono::seconds(15),
                                 .idle = std::chrono::seconds(100)};
const HttpServerOptions kPages{.threads = 8, .max_connections = 256, .body_first = 64 << 10, .head = std::chrono::seconds(5)};

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
  TlsServerState tls{};
  std::map<std::string, Handler> handlers{};
  std::map<std::string, Page> pages{};
  std::unique_ptr<HttpServer> server{};

  Status Start(const HttpServerOptions& options, const std::string& address, int port, bool with_tls);
  void AddRoutes(httplib::Server& routes, bool with_tls);
};

void AdmissionServer::Impl::AddRoutes(httplib::Server& routes, bool with_tls) {
  for (const auto& [path, page] : pages) {
    routes.Get(Literal(path), [&page = page](const httplib::Request&, httplib::Response& response) {
      auto [status, body] = page();
      response.status = status;
      response.set_content(body, "text/plain; version=0.0.4; charset=utf-8");
    });
  }
  routes.set_exception_handler([](const httplib::Request& request, httplib::Response& response, const std::exception_ptr&) {
    LogError("a page threw", {{"path", request.path}});
    response.status = 500;
  });
  if (!with_tls) return;
  for (const auto& [path, handler] : handlers) {
    routes.Post(Literal(path), [this, &path = path, &handler = handler](const httplib::Request& request, httplib::Response& response) {
      Answer(path, handler, metrics, request, response);
    });
  }
}

Status AdmissionServer::Impl::Start(const HttpServerOptions& options, const std::string& address, int port, bool with_tls) {
  if (server) return {Code::kFailedPrecondition, "this server runs already"};
  server = std::make_unique<HttpServer>(options, with_tls ? &tls : nullptr);
  AddRoutes(server->routes(), with_tls);
  server->routes().set_payload_max_length(kMaxBodyBytes);
  Status started = server->Start(address, port);
  if (!started.ok()) server.reset();
  return started;
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
  return impl_->Start(kReviews, address, port, /*with_tls=*/true);
}

Status AdmissionServer::StartPlain(const std::string& address, int port) { return impl_->Start(kPages, address, port, /*with_tls=*/false); }

int AdmissionServer::port() const { return impl_->server ? impl_->server->port() : 0; }

void AdmissionServer::Stop() { impl_->server.reset(); }

}  // namespace holdfast::kube
