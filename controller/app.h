// The holdfast-controller process, less its command line: so tests can run several of them.
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "kube/http.h"

namespace holdfast::controller {

struct AppOptions {
  std::string ns = "holdfast-system";
  std::string api_server;    // its URL, for metrics
  std::string identity;      // of the lease: the pod's name
  std::string own_username;  // empty: asked of the API server
  std::string store_url, store_ca_file, store_token_file = "/var/run/secrets/kubernetes.io/serviceaccount/token";
  std::string wait_image, wait_command = "holdfast-wait";
  std::string listen = "0.0.0.0";
  int webhook_port = 9443, metrics_port = 8080;  // 0: any
  std::vector<std::string> webhook_hosts;        // further names in the webhooks' certificate
  std::string mutating_configuration = "holdfast", validating_configuration = "holdfast";
  Duration drain_deadline = std::chrono::seconds(100);
  int max_drains_per_node = 4;
  bool leader_elect = true;
  Duration lease_duration = std::chrono::seconds(15), renew_deadline = std::chrono::seconds(10), renew_every = std::chrono::seconds(2);
};

class App {
 public:
  App(std::shared_ptr<kube::Transport> api_server, AppOptions options);
  ~App();
  // Until `stop`, or the lease is lost, which is an error: another replica may lead already, and a fresh process is the cleanest way back.
  Status Run(std::stop_token stop);
  bool ready() const;  // as /readyz
  bool leading() const;
  int webhook_port() const;  // once ready
  int metrics_port() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast::controller
