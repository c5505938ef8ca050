// The node through its own eyes: commands run in the node's mount namespace.
#pragma once

#include <mutex>
#include <set>

#include "agent/layout.h"
#include "agent/node.h"
#include "base/process.h"

namespace holdfast::agent {

// A process outside of our container whose mount namespace is the node's: of our ancestors outside of our own mount namespace, the highest
// in the namespace of the nearest (the node's process 1, or containerd's shim), which outlives us. Needs hostPID. kFailedPrecondition says
// how to run the agent.
Result<int> FindNodeProcess();

// From what `ctr images ls` prints: the digest of the image of that name, and that of its configuration, where a name of the same image is
// its digest ("sha256:…", as the CRI names images). The kubelet tells one or the other, so without both nothing is known: empty.
std::vector<std::string> DigestsIn(const std::string& listed, const std::string& image);

class HostNode final : public Node {
 public:
  HostNode(Layout layout, int host_pid, std::string runc_root = "/run/containerd/runc/k8s.io");

  Result<uint64_t> Estimate(const std::vector<std::string>& container_ids, const std::vector<std::string>& folders) override;
  Status StartDump(const std::string& checkpoint_uid, const std::string& landing) override;
  bool DumpRunning(const std::string& checkpoint_uid, const std::string& pod_uid) override;
  Status KillDump(const std::string& checkpoint_uid) override;
  Status Resume(const std::string& container_id) override;
  Result<ContainerState> StateOf(const std::string& container_id) override;
  Result<std::vector<NodeContainer>> Containers() override;
  Status End(const std::vector<std::string>& container_ids) override;
  Status RemoveContainer(const std::string& container_id) override;
  Result<std::vector<std::string>> ImageDigests(const std::string& container_id) override;
  std::string DumpOutput(const std::string& checkpoint_uid) override;
  Json Platform() override;

  // Any command on the node.
  Result<ProcessResult> Run(const std::vector<std::string>& argv, Duration timeout = std::chrono::seconds(10));
  // How to reach the node's file `path` from here.
  std::string Path(const std::string& path) const { return "/proc/" + std::to_string(host_pid_) + "/root" + path; }
  int host_pid() const { return host_pid_; }

 private:
  void Reap();

  const Layout layout_;
  const int host_pid_;
  const std::string runc_root_;
  std::mutex mutex_;
  std::set<int> children_;  // the dumps that this process started, until they are reaped
  Json platform_;           // asked once
};

}  // namespace holdfast::agent
