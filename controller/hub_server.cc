#include "controller/hub_server.h"

#include "base/log.h"
#include "kube/http_server.h"
#include "kube/tls_certificate.h"

namespace holdfast::controller {
namespace {

constexpr size_t kMaxBodyBytes = 16 << 10;  // nothing is read from them
const kube::HttpServerOptions kOptions{.threads = HubServer::kThreads,
                                       .max_connections = 256,
                                       .body_first = kMaxBodyBytes,
                                       .head = std::chrono::seconds(10),
                                       .body = std::chrono::seconds(10)};

HubRequest Read(const httplib::Request& request) {
  HubRequest read{.method = request.method, .path = request.path, .authorization = request.get_header_value("Authorization")};
  for (const auto& [name, value] : request.params) read.query.emplace(name, value);
  return read;
}

}  // namespace

struct HubServer::Impl {
  HubApi& api;
  kube::TlsServerState tls{};
  std::stop_source stop{};
  std::unique_ptr<kube::HttpServer> server{};

  void Answer(const httplib::Request& request, httplib::Response& response) {
    const HubAnswer answer = request.path == "/openapi.yaml" && request.method == "GET"
                                 ? HubAnswer{.type = "application/yaml", .body = std::string(HubOpenApi())}
                                 : api.Answer(Read(request), stop.get_token());
    response.status = answer.status;
    for (const auto& [name, value] : answer.headers) response.set_header(name, value);
    response.set_header("Cache-Control", "no-store");
    response.set_content(answer.body, answer.type);
  }
};

HubServer::HubServer(HubApi& api) : impl_(new Impl{.api = api}) {}

HubServer::~HubServer() { Stop(); }

Status HubServer::SetCertificate(const std::string& cert_chain_pem, const std::string& key_pem) {
  return impl_->tls.SetCertificate(cert_chain_pem, key_pem);
}

Status HubServer::Start(const std::string& address, int port) {
  if (!impl_->tls.HasCertificate()) return {Code::kFailedPrecondition, "the hub API needs a certificate before it starts"};
  impl_->server = std::make_unique<kube::HttpServer>(kOptions, &impl_->tls);
  httplib::Server& routes = impl_->server->routes();
  auto answer = [this](const httplib::Request& request, httplib::Response& response) { impl_->Answer(request, response); };
  routes.Get("/.*", answer).Post("/.*", answer).Put("/.*", answer).Patch("/.*", answer).Delete("/.*", answer).Options("/.*", answer);
  routes.set_exception_handler([](const httplib::Request& request, httplib::Response& response, const std::exception_ptr&) {
    LogError("a call of the hub API threw", {{"path", request.path}});
    response.status = 500;
  });
  routes.set_payload_max_length(kMaxBodyBytes);
  const Status started = impl_->server->Start(address, port);
  if (!started.ok()) impl_->server.reset();
  return started;
}

int HubServer::port() const { return impl_->server ? impl_->server->port() : 0; }

void HubServer::Stop() {
  impl_->stop.request_stop();
  impl_->server.reset();
}

}  // namespace holdfast::controller
