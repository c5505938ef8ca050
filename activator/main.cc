// holdfast-activator: takes connections to Services whose workloads sleep, wakes these, and forwards.
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "activator/app.h"
#include "base/log.h"
#include "base/stop_signals.h"
#include "base/time_format.h"
#include "kube/config.h"
#include "kube/credentials.h"

namespace {

using namespace holdfast;  // NOLINT(google-build-using-namespace): main

CLI::Validator DurationFlag() {
  return CLI::Validator([](std::string& text) { return ParseDuration(text) ? std::string() : "not a duration such as 30s or 1h: " + text; },
                        "DURATION");
}

// A connection has two file descriptors at most, a port one.
bool AllowDescriptors(const activator::AppOptions& options) {
  const rlim_t needed =
      2 * (options.limits.total + options.limits.refusals) + static_cast<rlim_t>(options.last_port - options.first_port) + 256;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max < needed) return false;
  limit.rlim_cur = std::max(limit.rlim_cur, needed);
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  activator::AppOptions options;
  const char* pod = getenv("POD_NAME");  // NOLINT(concurrency-mt-unsafe): nothing here calls setenv
  options.identity = pod != nullptr ? pod : "holdfast-activator";
  std::string kubeconfig, log_level = "info", idle = "1h", drain = "25s";
  CLI::App app("Holdfast's activator: takes connections to Services whose workloads sleep, wakes these, and forwards.");
  app.set_version_flag("--version", std::string("holdfast-activator ") + HOLDFAST_VERSION);
  app.add_option("--kubeconfig", kubeconfig, "Reach the API server as this file says (default: as a pod, else $KUBECONFIG)");
  app.add_option("--first-port", options.first_port, "Of those that the controller allots to Services")
      ->check(CLI::Range(1024, 65535))
      ->capture_default_str();
  app.add_option("--last-port", options.last_port, "The last of them")->check(CLI::Range(1024, 65535))->capture_default_str();
  app.add_option("--listen", options.listen, "Address of the port for metrics")->capture_default_str();
  app.add_option("--metrics-port", options.metrics_port, "HTTP: /metrics, /healthz, /readyz")->capture_default_str();
  app.add_option("--max-connections", options.limits.total, "At a time; further requests are answered 503")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--max-connections-per-service", options.limits.per_service, "Of them to one Service")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--idle-limit", idle, "A forwarded connection on which nothing moves for so long is closed")
      ->check(DurationFlag())
      ->capture_default_str();
  app.add_option("--drain", drain, "For connections to end when it is told to end")->check(DurationFlag())->capture_default_str();
  app.add_option("--log-level", log_level, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  LogLevel level = LogLevel::kInfo;
  if (ParseLogLevel(log_level, &level)) SetLogLevel(level);
  options.limits.idle = *ParseDuration(idle);
  options.drain = *ParseDuration(drain);
  if (options.last_port < options.first_port) {
    std::cerr << "holdfast-activator: --last-port is below --first-port\n";
    return 2;
  }
  if (!AllowDescriptors(options)) {
    std::cerr << "holdfast-activator: the limit of open files is too low for so many ports and connections: raise it, or lower "
                 "--max-connections\n";
    return 2;
  }
  auto config = kube::LoadConfig(kubeconfig);
  Status usable = config.status();
  if (usable.ok()) usable = kube::ExpiredForGood(*config, Clock::Real().Wall()).With("kubeconfig " + kubeconfig);
  if (!usable.ok()) {
    std::cerr << "holdfast-activator: " << usable.message() << "\n";
    return 2;
  }
  config->user_agent = "holdfast-activator/" HOLDFAST_VERSION;

  const StopSignals stop;
  options.api_server = config->server;
  Status status;
  {
    activator::App activator(kube::MakeCurlTransport(std::move(*config)), options);
    status = activator.Run(stop.token());
  }
  if (status.ok()) return 0;
  LogError("holdfast-activator ends", {{"error", status.ToString()}});
  return 1;
}
