// holdfast-agent: one process a node. Carries out Checkpoints of its node's pods and restores claimed ones.
#include <signal.h>

#include <CLI/CLI.hpp>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "agent/agent.h"
#include "base/log.h"
#include "base/time_format.h"

namespace {

using holdfast::agent::AgentOptions;

std::atomic<bool> told_to_stop = false;

void OnSignal(int) { told_to_stop = true; }

std::string CheckDuration(const std::string& text) {
  return holdfast::ParseDuration(text) ? "" : "\"" + text + "\" is no duration such as 5m or 90s";
}

}  // namespace

int main(int argc, char** argv) {
  AgentOptions options;
  std::string mode = "run", log_level = "info", restore_deadline = "5m";
  bool no_install = false;
  CLI::App app(
      "Takes and restores checkpoints of the pods on one Kubernetes node. Runs as a privileged DaemonSet pod with hostPID and\n"
      "hostNetwork; needs the node's /opt/holdfast, /run/holdfast, /var/lib/holdfast and /var/lib/kubelet at the same paths.");
  app.set_version_flag("--version", HOLDFAST_VERSION);
  app.add_option("--mode", mode, "run | uninstall (takes the label off --node-name, or off every node)")
      ->check(CLI::IsMember({"run", "uninstall"}))
      ->capture_default_str();
  app.add_option("--node-name", options.node_name, "this node's name")->envname("NODE_NAME");
  app.add_option("--kubeconfig", options.kubeconfig, "instead of the pod's service account");
  app.add_option("--log-level", log_level, "debug | info | warning | error")->capture_default_str();
  app.add_option("--listen-address", options.listen_address, "of /metrics, /healthz and /readyz")->capture_default_str();
  app.add_option("--listen-port", options.listen_port)->capture_default_str();
  app.add_option("--workers", options.workers, "checkpoints made at the same time")->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--restore-deadline", restore_deadline, "how long a pod waits for its checkpoint before it starts cold")
      ->check(CheckDuration)
      ->capture_default_str();
  app.add_option("--store-url", options.store_url, "https://host:port of holdfast-store")->envname("HOLDFAST_STORE_URL");
  app.add_option("--store-ca-file", options.store_ca_file, "that its certificate is verified with; default: the system's");
  app.add_option("--store-token-file", options.store_token_file, "default: the service account's token");
  app.add_option("--store-name", options.store_name, "goes into status.manifest.store")->capture_default_str();
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
  CLI11_PARSE(app, argc, argv);

  holdfast::LogLevel level;
  if (!holdfast::ParseLogLevel(log_level, &level)) {
    std::cerr << "--log-level: \"" << log_level << "\" is none of debug, info, warning, error\n";
    return 2;
  }
  holdfast::SetLogLevel(level);
  options.install = !no_install;
  options.restore_deadline = *holdfast::ParseDuration(restore_deadline);
  if (mode == "uninstall") {
    holdfast::Status done = holdfast::agent::Uninstall(options);
    if (!done.ok()) holdfast::LogError("uninstall failed", {{"error", done.ToString()}});
    return done.ok() ? 0 : 1;
  }
  if (options.node_name.empty() || options.store_url.empty()) {
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
  holdfast::Status ended = holdfast::agent::RunAgent(options, stop.get_token());
  if (!ended.ok() && !stop.stop_requested()) {
    holdfast::LogError("holdfast-agent cannot go on", {{"error", ended.ToString()}});
    return 1;
  }
  return 0;
}
