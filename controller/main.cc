// holdfast-controller: decides about Checkpoints, holds evictions back, hands checkpoints to successors.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "base/log.h"
#include "base/time_format.h"
#include "controller/app.h"
#include "kube/credentials.h"

namespace {

using namespace holdfast;  // NOLINT(google-build-using-namespace): main

CLI::Validator DurationFlag() {
  return CLI::Validator(
      [](std::string& text) { return ParseDuration(text) ? std::string() : "not a duration such as 100s or 2m: " + text; }, "DURATION");
}

std::string Environment(const char* name, const std::string& otherwise) {
  const char* value = getenv(name);
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
  std::string kubeconfig, log_level = "info", deadline = "100s";
  CLI::App app("Holdfast's controller: decides about Checkpoints, holds evictions back, hands checkpoints to the pods that come next.");
  app.set_version_flag("--version", std::string("holdfast-controller ") + HOLDFAST_VERSION);
  app.add_option("--namespace", options.ns, "Namespace of its lease, certificates and Services")->capture_default_str();
  app.add_option("--kubeconfig", kubeconfig, "Reach the API server as this file says (default: as a pod, else $KUBECONFIG)");
  app.add_option("--store-url", options.store_url, "The checkpoint store, https://…; without it nothing stored is ever deleted");
  app.add_option("--store-ca-file", options.store_ca_file, "CA of the store's certificate (read again when it changes)");
  app.add_option("--store-token-file", options.store_token_file, "Token for the store")->capture_default_str();
  app.add_option("--wait-image", options.wait_image, "Image of the init container that waits for a pod's checkpoint")->required();
  app.add_option("--wait-command", options.wait_command, "Its command")->capture_default_str();
  app.add_option("--listen", options.listen, "Address of both ports")->capture_default_str();
  app.add_option("--webhook-port", options.webhook_port, "HTTPS: /mutate-pods and /evictions")->capture_default_str();
  app.add_option("--metrics-port", options.metrics_port, "HTTP: /metrics, /healthz, /readyz")->capture_default_str();
  app.add_option("--webhook-host", options.webhook_hosts, "A further name or address in the webhooks' certificate (may be given again)");
  app.add_option("--mutating-webhook-configuration", options.mutating_configuration, "Gets our CA")->capture_default_str();
  app.add_option("--validating-webhook-configuration", options.validating_configuration, "Gets our CA")->capture_default_str();
  app.add_option("--own-user", options.own_username, "User whose evictions pass (default: who the API server says we are)");
  app.add_option("--drain-deadline", deadline, "How long an eviction is held back at most")->check(DurationFlag())->capture_default_str();
  app.add_option("--max-drains-per-node", options.max_drains_per_node, "Pods of one node that are frozen at the same time")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_flag("--leader-elect,!--no-leader-elect", options.leader_elect, "One of several replicas decides (default: yes)");
  app.add_option("--log-level", log_level, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  LogLevel level = LogLevel::kInfo;
  if (ParseLogLevel(log_level, &level)) SetLogLevel(level);
  options.drain_deadline = *ParseDuration(deadline);

  auto config = kube::LoadConfig(kubeconfig);
  Status usable = config.status();
  if (usable.ok()) usable = kube::ExpiredForGood(*config, Clock::Real().Wall()).With("kubeconfig " + kubeconfig);
  if (!usable.ok()) {
    std::cerr << "holdfast-controller: " << usable.message() << "\n";
    return 2;
  }
  config->user_agent = "holdfast-controller/" HOLDFAST_VERSION;

  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // all threads inherit it; the one below takes them
  signal(SIGPIPE, SIG_IGN);
  std::stop_source stop;
  std::jthread waiter([&] {
    const timespec tick{0, 200'000'000};
    while (!stop.stop_requested()) {
      if (sigtimedwait(&signals, nullptr, &tick) > 0) stop.request_stop();
    }
  });
  Status status;
  {
    options.api_server = config->server;
    controller::App controller(kube::MakeCurlTransport(std::move(*config)), options);
    status = controller.Run(stop.get_token());
  }
  stop.request_stop();
  if (status.ok()) return 0;
  LogError("holdfast-controller ends", {{"error", status.ToString()}});
  return 1;
}
