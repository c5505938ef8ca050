// An HTTPS server for AdmissionReview v1 and plain GET pages (/metrics, /healthz), in the shell of http_server.h. Certificates can be
// replaced while it runs. Limits: bodies of 7 MiB; a request has to be through, from its first byte to its last, within 25 s, however its
// peer dawdles, and no thread waits for that; pages without TLS have no bodies, and 256 connections at most.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "kube/resource.h"

namespace holdfast::kube {

struct AdmissionRequest {
  std::string uid, operation, ns, name, subresource, username;
  Resource resource;  // group, version, plural and kind of what was asked for
  bool dry_run = false;
  Json object, old_object, options;
};

struct AdmissionResponse {
  bool allowed = true;
  int code = 0;          // when not allowed: HTTP status, e.g. 429
  std::string reason{};  // metav1.StatusReason, e.g. TooManyRequests
  std::string message{};
  Json patch{};  // JSON patch; null: none
  std::vector<std::string> warnings{};
};

class RuntimeMetrics;

class AdmissionServer {
 public:
  using Handler = std::function<AdmissionResponse(const AdmissionRequest&)>;
  using Page = std::function<std::pair<int, std::string>()>;    // status and text/plain body
  explicit AdmissionServer(RuntimeMetrics* metrics = nullptr);  // `metrics`, if any, outlives it: time and outcome of each review
  ~AdmissionServer();
  void Handle(const std::string& path, Handler handler);  // a handler that throws: allowed, with a logged error (fail open)
  void Serve(const std::string& path, Page page);
  Status SetCertificate(const std::string& cert_chain_pem, const std::string& key_pem);  // before or while running
  Status Start(const std::string& address, int port);                                    // needs a certificate; port 0: any
  Status StartPlain(const std::string& address, int port);                               // pages only, without TLS
  int port() const;
  void Stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast::kube
