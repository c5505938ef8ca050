// The hub API's own HTTPS port, in the shell of kube/http_server.h, whose limits hold. A call that waits has a thread while it does: half
// of them at most, so that others are always served. /openapi.yaml is for everybody.
#pragma once

#include <memory>

#include "controller/hub_api.h"

namespace holdfast::controller {

// docs/hub-api.yaml.
std::string_view HubOpenApi();

class HubServer {
 public:
  static constexpr int kThreads = 32, kMaxWaiters = 16;
  explicit HubServer(HubApi& api);
  ~HubServer();
  Status SetCertificate(const std::string& cert_chain_pem, const std::string& key_pem);  // before or while running
  Status Start(const std::string& address, int port);                                    // needs a certificate; port 0: any
  int port() const;
  void Stop();  // calls that wait are told to ask again

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast::controller
