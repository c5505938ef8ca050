#include "storage/server/server.h"

#include <arpa/inet.h>
#include <sys/stat.h>

#include <atomic>
#include <charconv>

#include "base/file.h"
#include "base/log.h"
#include "kube/http_server.h"
#include "storage/limits.h"
#include "storage/server/routes.h"
#include "storage/server/upkeep.h"

namespace holdfast::storage {
namespace {

// Agents keep eight idle connections each. A body is read only after its sender was found to be one who may send it.
const kube::HttpServerOptions kShell{.threads = 48,
                                     .max_connections = 2048,
                                     .body_first = std::nullopt,
                                     .body = std::chrono::seconds(60),
                                     .answer = std::chrono::seconds(60),
                                     .silence = std::chrono::seconds(10),
                                     .idle = std::chrono::seconds(30)};
constexpr Duration kLastAnswers = std::chrono::seconds(1);  // to those whose requests have ended when it stops
constexpr Duration kLookAgain = std::chrono::seconds(1);

// What changes when a file is replaced.
std::string Version(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return "";
  return std::to_string(info.st_ino) + " " + std::to_string(info.st_size) + " " + std::to_string(info.st_mtim.tv_sec) + "." +
         std::to_string(info.st_mtim.tv_nsec);
}

}  // namespace

struct StoreServer::Impl {
  Impl(LocalStore& store, Fence& fence, std::unique_ptr<Authenticator> given, std::unique_ptr<Authorizer> of_nodes, AllowList list,
       ServerOptions opts, Clock& time)
      : authenticator(std::move(given)),
        authorizer(std::move(of_nodes)),
        allowed(std::move(list)),
        options(std::move(opts)),
        clock(time),
        routes(store, fence, authenticator.get(), authorizer.get(), allowed, time),
        store(store) {}

  const std::unique_ptr<Authenticator> authenticator;
  const std::unique_ptr<Authorizer> authorizer;
  const AllowList allowed;
  const ServerOptions options;
  Clock& clock;
  kube::TlsServerState tls;
  Routes routes;
  LocalStore& store;
  std::unique_ptr<kube::HttpServer> server;
  std::jthread keeper;
  std::optional<Upkeep> upkeep;
  std::string certificate_version;
  std::atomic<bool> serving{false};
  int port = 0;

  Status LoadCertificate();
  Status AwaitCertificate(std::stop_token stop);
  void Keep(std::stop_token stop);
};

Status StoreServer::Impl::LoadCertificate() {
  const std::string version = Version(options.tls_cert_file) + "/" + Version(options.tls_key_file);
  if (version == certificate_version) return Status::Ok();
  HF_ASSIGN_OR_RETURN(std::string chain, ReadFile(options.tls_cert_file, 1 << 20));
  HF_ASSIGN_OR_RETURN(std::string key, ReadFile(options.tls_key_file, 1 << 20));
  HF_RETURN_IF_ERROR(tls.SetCertificate(chain, key).With(options.tls_cert_file));
  certificate_version = version;
  LogInfo("certificate loaded", {{"file", options.tls_cert_file}});
  return Status::Ok();
}

Status StoreServer::Impl::AwaitCertificate(std::stop_token stop) {
  for (bool told = false;; told = true) {
    Status loaded = LoadCertificate();
    if (loaded.ok()) return loaded;
    if (!told) LogWarning("waiting for the TLS certificate", {{"error", loaded.ToString()}});
    if (!clock.Sleep(kLookAgain, stop)) return Status(Code::kCancelled, "stopped while waiting for " + options.tls_cert_file);
  }
}

// Certificates are replaced while we run.
void StoreServer::Impl::Keep(std::stop_token stop) {
  std::string told;
  while (clock.Sleep(kLookAgain, stop)) {
    if (options.tls_cert_file.empty()) continue;
    Status loaded = LoadCertificate();
    if (!loaded.ok() && loaded.message() != told) LogWarning("the old certificate stays in use", {{"error", loaded.ToString()}});
    told = loaded.message();
  }
}

StoreServer::StoreServer(LocalStore& store, Fence& fence, std::unique_ptr<Authenticator> authenticator,
                         std::unique_ptr<Authorizer> authorizer, AllowList allowed, ServerOptions options, Clock& clock)
    : impl_(std::make_unique<Impl>(store, fence, std::move(authenticator), std::move(authorizer), std::move(allowed), std::move(options),
                                   clock)) {}

StoreServer::~StoreServer() { Stop(); }

Status StoreServer::Start(std::stop_token stop) {
  const ServerOptions& options = impl_->options;
  const bool with_tls = !options.tls_cert_file.empty() || !options.tls_key_file.empty();
  if (!impl_->authenticator && !IsLoopback(options.address)) {
    return Status(
        Code::kInvalidArgument,
        "--auth=none lets everyone read and delete every checkpoint: it is for loopback addresses only, not for " + options.address);
  }
  if (impl_->authenticator && !with_tls)
    return Status(Code::kInvalidArgument, "tokens do not travel in the clear: give --tls-cert-file and --tls-key-file");
  if (impl_->authenticator && impl_->allowed.empty()) return Status(Code::kInvalidArgument, "nobody may use this store: give --allow");
  if (with_tls) HF_RETURN_IF_ERROR(impl_->AwaitCertificate(stop));
  auto server = std::make_unique<kube::HttpServer>(options.shell.value_or(kShell), with_tls ? &impl_->tls : nullptr);
  impl_->routes.AddTo(server->routes());
  server->routes().set_payload_max_length(kMaxManifestBytes);
  HF_RETURN_IF_ERROR(server->Start(options.address, options.port));
  impl_->server = std::move(server);
  impl_->port = impl_->server->port();
  impl_->serving = true;
  impl_->keeper = std::jthread([this](std::stop_token token) { impl_->Keep(token); });
  impl_->upkeep.emplace(impl_->store, UpkeepOptions{.tighten_after = options.tighten_after, .scrub = options.scrub}, impl_->clock);
  LogInfo("serving",
          {{"address", options.address}, {"port", impl_->port}, {"tls", with_tls}, {"authentication", impl_->authenticator != nullptr}});
  return Status::Ok();
}

int StoreServer::port() const { return impl_->port; }
bool StoreServer::serving() const { return impl_->serving; }
Metrics& StoreServer::metrics() { return impl_->routes.metrics(); }

void StoreServer::Stop() {
  if (!impl_->server) return;
  impl_->keeper.request_stop();
  impl_->upkeep->RequestStop();
  impl_->serving = false;
  impl_->server->StopListening();
  if (!impl_->routes.Drain(impl_->options.drain)) LogWarning("requests were cut off");
  impl_->server->Stop(kLastAnswers);
  impl_->keeper.join();
  impl_->upkeep.reset();
  impl_->server.reset();
  LogInfo("stopped serving");
}

Result<std::pair<std::string, int>> ParseAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  int port = -1;
  if (colon != std::string::npos) {
    auto [end, error] = std::from_chars(text.data() + colon + 1, text.data() + text.size(), port);
    if (error != std::errc() || end != text.data() + text.size()) port = -1;
  }
  if (port < 0 || port > 65535)
    return Status(Code::kInvalidArgument, "\"" + text + "\" is not an address: write 0.0.0.0:8443 or [::]:8443");
  std::string host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return std::make_pair(host.empty() ? "0.0.0.0" : host, port);
}

bool IsLoopback(const std::string& address) {
  in_addr four;
  if (inet_pton(AF_INET, address.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24) == 127;
  return address == "::1" || address == "localhost";
}

}  // namespace holdfast::storage
