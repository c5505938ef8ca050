// The API server, and a cache of this node's pods and Checkpoints kept by two watches.
#pragma once

#include <set>

#include "agent/cluster.h"
#include "kube/apply.h"
#include "kube/events.h"
#include "kube/informer.h"

namespace holdfast::agent {

class KubeCluster final : public Cluster {
 public:
  KubeCluster(kube::Client& client, const std::string& node_name, kube::RuntimeMetrics* metrics = nullptr);

  // To be watched before Start.
  kube::Informer<api::Checkpoint>& checkpoints() { return checkpoints_; }
  kube::Informer<kube::Pod>& pods() { return pods_; }
  void Start();
  void Stop();
  std::set<std::string> PodUids() const;  // of the pods on this node
  bool synced() const { return checkpoints_.synced() && pods_.synced(); }

  Result<api::Checkpoint> CachedCheckpoint(const std::string& uid) override;
  Result<kube::Pod> CachedPod(const std::string& ns, const std::string& name) override;
  std::vector<api::Checkpoint> CachedCheckpoints() override;
  Status Probe() override;
  Result<std::vector<kube::Pod>> ListPods() override;
  Result<std::vector<api::Checkpoint>> ListCheckpoints() override;
  Result<api::Checkpoint> GetCheckpoint(const std::string& ns, const std::string& name) override;
  Result<kube::Pod> GetPod(const std::string& ns, const std::string& name) override;
  Status PatchStatus(const std::string& ns, const std::string& name, const std::string& uid, const Json& patch) override;
  Result<bool> Claim(const std::string& ns, const std::string& name, const std::string& uid, const api::Claim& claim) override;
  Status AppendRestore(const std::string& ns, const std::string& name, const std::string& uid, const api::Restore& restore) override;
  Status TellCondition(const kube::Pod& pod, const std::string& type, const std::optional<kube::Condition>& condition) override;
  void PodEvent(bool warning, const std::string& ns, const std::string& name, const std::string& uid, const std::string& reason,
                const std::string& note) override;
  void CheckpointEvent(bool warning, const std::string& ns, const std::string& name, const std::string& uid, const std::string& reason,
                       const std::string& note) override;

  Result<Json> GetNode(const std::string& name);
  // Server-side apply of labels and annotations; what was applied before and is left out now goes. kNotFound: no such node (yet).
  Status ApplyToNode(const std::string& name, Json intent);
  void NodeEvent(bool warning, const std::string& name, const std::string& reason, const std::string& note);

 private:
  void Event(bool warning, const kube::ObjectReference& about, const std::string& reason, const std::string& action,
             const std::string& note);

  kube::Client& client_;
  kube::Applier applier_;
  const std::string node_name_;
  kube::Informer<api::Checkpoint> checkpoints_;
  kube::Informer<kube::Pod> pods_;
  kube::EventRecorder events_;
};

}  // namespace holdfast::agent
