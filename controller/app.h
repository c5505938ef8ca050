// The holdfast-controller process, less its command line: so tests can run several of them.
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "api/stores.h"
#include "base/clock.h"
#include "base/status.h"
#include "kube/http.h"
#include "reconcilers/onrequest/step.h"
#include "reconcilers/suspendedworkload/target.h"

namespace holdfast::controller {

struct AppOptions {
  std::string ns = "holdfast-system";
  std::string api_server;                 // its URL, for metrics
  std::string identity;                   // of the lease: the pod's name
  std::string own_username;               // empty: asked of the API server
  std::vector<api::StoreAddress> stores;  // none: nothing stored is ever deleted
  std::string store_ca_file, store_token_file = "/var/run/secrets/kubernetes.io/serviceaccount/token";
  std::string wait_image, wait_command = "holdfast-wait";
  std::string listen = "0.0.0.0";
  int webhook_port = 9443, metrics_port = 8080;  // 0: any
  std::vector<std::string> webhook_hosts;        // further names in the webhooks' certificate
  std::string mutating_configuration = "holdfast", validating_configuration = "holdfast";
  std::string store_kek_secret{};  // made where there is none; empty: by somebody else
  Duration drain_deadline = std::chrono::seconds(100);
  bool on_stop = false;  // reconcilers/stop decides about stopped pods
  int max_drains_per_node = 4;
  int64_t namespace_quota_bytes = 0;                      // of namespaces without the annotation holdfast.dev/quota; 0: none
  int volume_high_percent = 85, volume_low_percent = 75;  // above high, retention deletes down to low; high 0: never
  reconcilers::suspendedworkload::Prices prices{};
  bool bare_pods = false;  // a SuspendedWorkload may name a pod that nothing owns: we delete it, and make it again
  reconcilers::onrequest::PortRange activator_ports{};  // none: there is no activator
  int hub_port = -1;                                    // HTTPS: the hub API (hub_server.h); -1: none, 0: any
  std::string hub_audience = "holdfast-hub";            // of its callers' tokens
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
  int hub_port() const;  // 0: none

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast::controller
