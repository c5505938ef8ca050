// holdfast-controller: decides about Checkpoints, holds evictions back, hands checkpoints to successors.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "base/log.h"
#include "base/stop_signals.h"
#include "base/time_format.h"
#include "controller/app.h"
#include "kube/credentials.h"

namespace {

using namespace holdfast;  // NOLINT(google-build-using-namespace): main

CLI::Validator DurationFlag() {
  return CLI::Validator(
      [](std::string& text) { return ParseDuration(text) ? std::string() : "not a duration such as 100s or 2m: " + text; }, "DURATION");
}

CLI::Validator PortRangeFlag() {
  return CLI::Validator(
      [](std::string& text) {
        return reconcilers::onrequest::ParsePortRange(text) ? std::string()
                                                            : "not a range of ports within 1024-65535 such as 20000-21999: " + text;
      },
      "FIRST-LAST");
}

CLI::Validator PriceFlag() {
  return CLI::Validator(
      [](std::string& text) {
        return reconcilers::suspendedworkload::ParsePrice(text) ? std::string() : "not a price such as 0.04, from 0 to 999999999: " + text;
      },
      "PRICE");
}

CLI::Validator CurrencyFlag() {
  return CLI::Validator(
      [](std::string& text) {
        const bool letters = std::all_of(text.begin(), text.end(), [](unsigned char c) { return isalpha(c) != 0; });
        return letters && !text.empty() && text.size() <= 8 ? std::string() : "not one to eight letters such as USD: " + text;
      },
      "CURRENCY");
}

std::string Environment(const char* name, const std::string& otherwise) {
  const char* value = getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here calls setenv
  return value != nullptr && *value != '\0' ? value : otherwise;
}

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

int main(int argc, char** argv) {
  controller::AppOptions options;
  options.ns = Environment("POD_NAMESPACE", options.ns);
  options.identity = Environment("POD_NAME", HostName() + "-" + std::to_string(getpid()));
  std::string kubeconfig, log_level = "info", deadline = "100s", activator_ports;
  CLI::App app("Holdfast's controller: decides about Checkpoints, holds evictions back, hands checkpoints to the pods that come next.");
  app.set_version_flag("--version", std::string("holdfast-controller ") + HOLDFAST_VERSION);
  app.add_option("--namespace", options.ns, "Namespace of its lease, certificates and Services")->capture_default_str();
  app.add_option("--kubeconfig", kubeconfig, "Reach the API server as this file says (default: as a pod, else $KUBECONFIG)");
  std::vector<std::string> store_urls;
  app.add_option("--store-url", store_urls,
                 "The checkpoint store, https://host:port; of several, one NAME=URL each; without it nothing stored is ever deleted")
      ->allow_extra_args(false);
  app.add_option("--store-ca-file", options.store_ca_file, "CA of the store's certificate (read again when it changes)");
  app.add_option("--store-token-file", options.store_token_file, "Token for the store")->capture_default_str();
  app.add_option("--store-kek-secret", options.store_kek_secret,
                 "Secret with the store's key, made where there is none (default: not made)");
  app.add_option("--wait-image", options.wait_image, "Image of the init container that waits for a pod's checkpoint")->required();
  app.add_option("--wait-command", options.wait_command, "Its command")->capture_default_str();
  app.add_option("--listen", options.listen, "Address of all ports")->capture_default_str();
  app.add_option("--webhook-port", options.webhook_port, "HTTPS: /mutate-pods and /evictions")->capture_default_str();
  app.add_option("--metrics-port", options.metrics_port, "HTTP: /metrics, /healthz, /readyz")->capture_default_str();
  app.add_option("--hub-port", options.hub_port, "HTTPS: the hub API (docs/hub-api.yaml); -1: none")
      ->check(CLI::Range(-1, 65535))
      ->capture_default_str();
  app.add_option("--hub-audience", options.hub_audience, "Audience of its callers' tokens; empty: the API server's")->capture_default_str();
  app.add_option("--webhook-host", options.webhook_hosts, "A further name or address in the webhooks' certificate (may be given again)");
  app.add_option("--mutating-webhook-configuration", options.mutating_configuration, "Gets our CA")->capture_default_str();
  app.add_option("--validating-webhook-configuration", options.validating_configuration, "Gets our CA")->capture_default_str();
  app.add_option("--own-user", options.own_username, "User whose evictions pass (default: who the API server says we are)");
  app.add_option("--drain-deadline", deadline, "How long a pod's eviction is held back at most, once its turn has come")
      ->check(DurationFlag())
      ->capture_default_str();
  app.add_flag("--on-stop", options.on_stop, "Checkpoint also pods that something else than a drain stops; for agents with the same flag");
  app.add_option("--max-drains-per-node", options.max_drains_per_node, "Pods of one node that are frozen at the same time")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option(
         "--namespace-quota", options.namespace_quota_bytes,
         "Bytes that the Checkpoints of a namespace may take, such as 50Gi, where it has no annotation holdfast.dev/quota; 0: no limit")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--volume-high-mark", options.volume_high_percent,
                 "Percent of the store's volume from which retention deletes checkpoints that are not protected; 0: never")
      ->check(CLI::Range(0, 100))
      ->capture_default_str();
  app.add_option("--volume-low-mark", options.volume_low_percent, "Percent down to which it deletes then")
      ->check(CLI::Range(0, 100))
      ->capture_default_str();
  app.add_option("--activator-ports", activator_ports,
                 "TCP ports of holdfast-activator, such as 20000-21999; without it there is none, and requests wake nobody")
      ->check(PortRangeFlag());
  std::map<std::string, std::string> prices;
  for (const char* flag : {"--price-cpu", "--price-memory-gib", "--price-gpu"}) {
    app.add_option(flag, prices[flag], "Of one for an hour, such as 0.04: what a sleeping workload saves is told by it")
        ->check(PriceFlag());
  }
  app.add_option("--currency", options.prices.currency, "Of these prices, one to eight letters")
      ->check(CurrencyFlag())
      ->capture_default_str();
  app.add_flag("--bare-pods", options.bare_pods,
               "Suspend also pods that nothing owns: they are deleted, and made again; needs RBAC to create and delete pods");
  app.add_flag("--leader-elect,!--no-leader-elect", options.leader_elect, "One of several replicas decides (default: yes)");
  app.add_option("--log-level", log_level, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  LogLevel level = LogLevel::kInfo;
  if (ParseLogLevel(log_level, &level)) SetLogLevel(level);
  options.drain_deadline = *ParseDuration(deadline);
  options.prices.cpu = reconcilers::suspendedworkload::ParsePrice(prices["--price-cpu"]);
  options.prices.memory_gib = reconcilers::suspendedworkload::ParsePrice(prices["--price-memory-gib"]);
  options.prices.gpu = reconcilers::suspendedworkload::ParsePrice(prices["--price-gpu"]);
  if (!activator_ports.empty()) options.activator_ports = *reconcilers::onrequest::ParsePortRange(activator_ports);
  if (options.volume_low_percent > options.volume_high_percent && options.volume_high_percent > 0) {
    std::cerr << "holdfast-controller: --volume-low-mark is above --volume-high-mark\n";
    return 2;
  }

  auto stores = api::ParseStores(store_urls);
  if (!stores.ok()) {
    std::cerr << "holdfast-controller: " << stores.status().message() << "\n";
    return 2;
  }
  options.stores = std::move(*stores);

  auto config = kube::LoadConfig(kubeconfig);
  Status usable = config.status();
  if (usable.ok()) usable = kube::ExpiredForGood(*config, Clock::Real().Wall()).With("kubeconfig " + kubeconfig);
  if (!usable.ok()) {
    std::cerr << "holdfast-controller: " << usable.message() << "\n";
    return 2;
  }
  config->user_agent = "holdfast-controller/" HOLDFAST_VERSION;

  const StopSignals stop;
  Status status;
  {
    options.api_server = config->server;
    controller::App controller(kube::MakeCurlTransport(std::move(*config)), options);
    status = controller.Run(stop.token());
  }
  if (status.ok()) return 0;
  LogError("holdfast-controller ends", {{"error", status.ToString()}});
  return 1;
}
