// holdfast-agent: one process a node. Carries out Checkpoints of its node's pods and restores claimed ones.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "agent/agent.h"
#include "agent/doctor.h"
#include "agent/restore_node.h"
#include "base/log.h"
#include "base/time_format.h"

namespace {

using holdfast::agent::AgentOptions;

std::atomic<bool> told_to_stop = false;

void OnSignal(int) { told_to_stop = true; }

std::string CheckDuration(const std::string& text) {
  return holdfast::ParseDuration(text) ? "" : "\"" + text + "\" is no duration such as 5m or 90s";
}

std::string CheckUrl(const std::string& text) {
  return text.starts_with("http://") || text.starts_with("https://") ? ""
                                                                     : "\"" + text + "\" is no URL such as http://127.0.0.1:9400/metrics";
}

}  // namespace

int main(int argc, char** argv) {
  AgentOptions options;
  std::string mode = "run", log_level = "info", restore_patience = "1m";
  bool no_install = false;
  CLI::App app(
      "Takes and restores checkpoints of the pods on one Kubernetes node. Runs as a privileged DaemonSet pod with hostPID and\n"
      "hostNetwork; needs the node's /opt/holdfast, /run/holdfast, /var/lib/holdfast and /var/lib/kubelet at the same paths.");
  app.set_version_flag("--version", HOLDFAST_VERSION);
  app.add_option(
         "--mode", mode,
         "run | uninstall (takes the label off --node-name, or off every node) | restore-node (takes what was installed off this node "
         "as soon as no pod needs it)")
      ->check(CLI::IsMember({"run", "uninstall", "restore-node"}))
      ->capture_default_str();
  app.add_option("--node-name", options.node_name, "this node's name")->envname("NODE_NAME");
  app.add_option("--kubeconfig", options.kubeconfig, "instead of the pod's service account");
  app.add_option("--log-level", log_level, "debug | info | warning | error")->capture_default_str();
  app.add_option("--listen-address", options.listen_address, "of /metrics, /healthz and /readyz")->capture_default_str();
  app.add_option("--listen-port", options.listen_port)->capture_default_str();
  app.add_option("--workers", options.workers, "checkpoints of drains made at the same time, and as many of others")
      ->check(CLI::Range(1, 64))
      ->capture_default_str()
      ->take_last();
  app.add_flag("--on-stop", options.on_stop, "hold back the signals of pods that something else than a drain stops, and dump them instead");
  app.add_option(
         "--cache-bytes", options.cache_bytes,
         "checkpoints of so many bytes in all stay on this node, for pods that come back to it, while its disk has room; longer ones "
         "are taken off it while they are stored; 0: none stays")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option("--landing-memory-bytes", options.landing_memory_bytes,
                 "of the node's memory in which dumps may land, beside what other programs need; others land on its disk; 0: all do")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option("--landing-disk-bytes", options.landing_disk_bytes,
                 "of the node's disk that dumps may take in all until they are stored; 0: three quarters of its file system")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option(
         "--gpu-metrics-url", options.gpu_metrics_url,
         "http://host:port/metrics of this node's DCGM exporter, with its labels namespace and pod: how much the GPUs of pods are used")
      ->check(CheckUrl);
  app.add_option("--restore-patience", restore_patience, "how long a pod waits for a store that does not answer before an event says so")
      ->check(CheckDuration)
      ->capture_default_str();
  std::vector<std::string> store_urls;
  app.add_option("--store-url", store_urls,
                 "https://host:port of holdfast-store; of several, one NAME=URL each: a workload's checkpoints go to one of them, or to "
                 "the next one while that cannot take them. The name goes into status.manifest.store; of a URL alone it is \"default\"")
      ->allow_extra_args(false)
      ->envname("HOLDFAST_STORE_URL");
  app.add_option("--store-ca-file", options.store_ca_file, "that its certificate is verified with; default: the system's");
  app.add_option("--store-token-file", options.store_token_file, "default: the service account's token");
  app.add_option("--kubelet-ca-file", options.kubelet_ca_file, "that the kubelet's certificate is verified with; default: the cluster's");
  app.add_flag("--kubelet-insecure-skip-verify", options.kubelet_insecure, "for kubelets with self-signed certificates");
  app.add_option("--kubelet-token-file", options.kubelet_token_file, "default: the service account's token");
  app.add_option("--kubelet-root", options.kubelet_root)->capture_default_str();
  app.add_option("--runc-root", options.runc_root, "default: /run/containerd/runc/k8s.io");
  app.add_option("--run-dir", options.run_dir, "default: /run/holdfast");
  app.add_option("--state-dir", options.state_dir, "default: /var/lib/holdfast");
  app.add_option("--install-from", options.install_from, "folder of the image that becomes the node's /opt/holdfast");
  app.add_flag("--no-install", no_install, "leave the node's programs, containerd and label as they are");
  app.add_option("--host-pid", options.host_pid, "a process in the node's mount namespace; default: found through hostPID");
  std::string output = "text";
  CLI::App* doctor = app.add_subcommand("doctor",
                                        "Says what this node has and lacks, with what to do about it, and changes nothing. Exit status 0:\n"
                                        "the node can be used. kubectl -n holdfast-system exec ds/holdfast-agent -- holdfast-agent doctor");
  doctor->add_option("-o,--output", output, "text | json")->check(CLI::IsMember({"text", "json"}))->capture_default_str();
  doctor->fallthrough();
  CLI11_PARSE(app, argc, argv);

  holdfast::LogLevel level;
  if (!holdfast::ParseLogLevel(log_level, &level)) {
    std::cerr << "--log-level: \"" << log_level << "\" is none of debug, info, warning, error\n";
    return 2;
  }
  holdfast::SetLogLevel(level);
  options.install = !no_install;
  options.restore_patience = *holdfast::ParseDuration(restore_patience);
  if (mode == "uninstall") {
    holdfast::Status done = holdfast::agent::Uninstall(options);
    if (!done.ok()) holdfast::LogError("uninstall failed", {{"error", done.ToString()}});
    return done.ok() ? 0 : 1;
  }
  if (*doctor && options.node_name.empty()) {
    std::cerr << "--node-name (or $NODE_NAME) is needed; see --help\n";
    return 2;
  }
  if (*doctor) return holdfast::agent::Doctor(options, {.json = output == "json", .color = isatty(STDOUT_FILENO) != 0});
  holdfast::Result<std::vector<holdfast::api::StoreAddress>> stores = holdfast::api::ParseStores(store_urls);
  if (!stores.ok()) {
    std::cerr << "holdfast-agent: " << stores.status().message() << "\n";
    return 2;
  }
  options.stores = std::move(*stores);
  const bool restores = mode == "restore-node";
  if (!restores && (options.node_name.empty() || options.stores.empty())) {
    std::cerr << "--node-name (or $NODE_NAME) and --store-url are needed; see --help\n";
    return 2;
  }
  // Handlers, not blocked signals: what is blocked here would stay blocked in every program that we run.
  signal(SIGTERM, OnSignal);
  signal(SIGINT, OnSignal);
  signal(SIGPIPE, SIG_IGN);
  std::stop_source stop;
  std::jthread waiting([&](std::stop_token done) {
    while (!done.stop_requested() && !told_to_stop) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    stop.request_stop();
  });
  holdfast::Status ended =
      restores ? holdfast::agent::RestoreNode(options, stop.get_token()) : holdfast::agent::RunAgent(options, stop.get_token());
  if (!ended.ok() && !stop.stop_requested()) {
    holdfast::LogError("holdfast-agent cannot go on", {{"error", ended.ToString()}});
    return 1;
  }
  return 0;
}
