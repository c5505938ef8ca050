// The API server, and a cache of this node's pods and Checkpoints kept by two watches.
#pragma once

#include "agent/cluster.h"
#include "kube/events.h"
#include "kube/informer.h"

namespace holdfast::agent {

class KubeCluster final : public Cluster {
 public:
  KubeCluster(kube::Client& client, const std::string& node_name, kube::RuntimeMetrics* metrics = nullptr);

  // Before Start. Called with what changed: the Checkpoint's uid, or the pod (last known state, when it is gone).
  void OnCheckpoint(std::function<void(const std::string& uid)> handler);
  void OnPod(std::function<void(const kube::Pod& pod, bool gone)> handler);
  void Start();
  void Stop();
  bool WaitForSync(Duration timeout, std::stop_token stop) const;
  bool synced() const { return checkpoints_.synced() && pods_.synced(); }

  Result<api::Checkpoint> CachedCheckpoint(const std::string& uid) override;
  Result<kube::Pod> CachedPod(const std::string& ns, const std::string& name) override;
  Result<api::Checkpoint> GetCheckpoint(const std::string& ns, const std::string& name) override;
  Result<kube::Pod> GetPod(const std::string& ns, const std::string& name) override;
  Status PatchStatus(const std::string& ns, const std::string& name, const std::string& uid, const Json& patch) override;
  Result<bool> Claim(const std::string& ns, const std::string& name, const std::string& uid, const api::Claim& claim) override;
  Status AppendRestore(const std::string& ns, const std::string& name, const std::string& uid, const api::Restore& restore) override;
  void PodEvent(bool warning, const std::string& ns, const std::string& name, const std::string& uid, const std::string& reason,
                const std::string& note) override;
  void CheckpointEvent(bool warning, const std::string& ns, const std::string& name, const std::string& uid, const std::string& reason,
                       const std::string& note) override;

  Result<Json> GetNode(const std::string& name);
  Status PatchNode(const std::string& name, const Json& merge_patch);
  void NodeEvent(bool warning, const std::string& name, const std::string& reason, const std::string& note);

 private:
  void Event(bool warning, const kube::ObjectReference& about, const std::string& reason, const std::string& action,
             const std::string& note);

  kube::Client& client_;
  kube::Informer<api::Checkpoint> checkpoints_;
  kube::Informer<kube::Pod> pods_;
  kube::EventRecorder events_;
};

}  // namespace holdfast::agent
