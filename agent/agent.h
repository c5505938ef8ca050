// The parts of the agent put together: watches → queues → executor and restorer; the socket; the node's installer; metrics.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/stores.h"
#include "base/clock.h"
#include "base/status.h"
#include "kube/config.h"

namespace holdfast::agent {

struct AgentOptions {
  std::string node_name;
  std::string kubeconfig;
  std::vector<api::StoreAddress> stores;
  std::string store_ca_file, store_token_file;
  std::string kubelet_ca_file, kubelet_token_file, kubelet_root = "/var/lib/kubelet";
  bool kubelet_insecure = false;
  std::string run_dir, state_dir, runc_root;
  std::string install_from;
  bool install = true;
  int host_pid = 0;      // 0: found
  int workers = 4;       // drains at the same time, and as many others (turns.h)
  bool on_stop = false;  // stopper.h
  std::string listen_address = "0.0.0.0";
  int listen_port = 9464;
  std::string gpu_metrics_url;        // gpu_metrics.h; empty: none
  uint64_t cache_bytes = 0;           // cache.h; landing folders of so many bytes stay whole, too
  uint64_t landing_memory_bytes = 0;  // landing_memory.h; 0: dumps land on disk
  uint64_t landing_disk_bytes = 0;    // disk_room.h; 0: three quarters of the file system
  Duration restore_patience = std::chrono::minutes(1);
};

// Runs until `stop`; then lets go in order. What is in flight stays in the journal.
Status RunAgent(const AgentOptions& options, std::stop_token stop);

// Takes the label off `node_name`, or off every node when it is empty. What running pods need stays on the nodes.
Status Uninstall(const AgentOptions& options);

}  // namespace holdfast::agent
