// Builders for tables: objects as short as what a case is about, and a View made of them.
#pragma once

#include "reconcilers/claims.h"
#include "reconcilers/view.h"

namespace holdfast::reconcilers::testing {

inline const WallTime kStart = *ParseTime("2026-06-01T12:00:00Z");
inline WallTime At(int seconds) { return kStart + std::chrono::seconds(seconds); }

// A protected pod of Deployment web, running on node-a.
kube::Pod WebPod(const std::string& name = "web-a", const std::string& uid = "uid-a");
// Pending, final, trigger Drain, made at kStart, of that pod.
api::Checkpoint WebDrain(const std::string& pod = "web-a", const std::string& uid = "uid-a");
api::Checkpoint InPhase(api::Phase phase, const std::string& pod = "web-a", const std::string& uid = "uid-a");
kube::Node ReadyNode(const std::string& name = "node-a");
api::Owner WebOwner();
// Deployment web as it runs, and the SuspendedWorkload nb of it, generation 2, with its finalizer.
kube::Workload Web(int64_t replicas = 1);
api::SuspendedWorkload SleeperOfWeb(bool suspended);

template <class T>
std::shared_ptr<const T> Share(T value) {
  return std::make_shared<const T>(std::move(value));
}

class FakeView : public View {
 public:
  std::vector<PodPtr> pods;
  std::vector<NodePtr> nodes;
  std::vector<NamespacePtr> namespaces;
  std::map<std::string, WorkloadPtr> workloads;  // by kind/name
  std::vector<CheckpointPtr> checkpoints;
  std::vector<PolicyPtr> policies;
  std::vector<PdbPtr> budgets;
  std::vector<SuspendedPtr> suspended;
  mutable int live_reads = 0;

  void AddWeb(const std::map<std::string, std::string>& annotations);  // Deployment web and its ReplicaSet web-1

  PodPtr GetPod(const std::string& ns, const std::string& name) const override;
  std::vector<PodPtr> PodsControlledBy(const std::string& controller_uid) const override;
  std::vector<PodPtr> PodsIn(const std::string& ns) const override;
  std::vector<PodPtr> GatedPodsIn(const std::string& ns) const override;
  NodePtr GetNode(const std::string& name) const override;
  std::vector<NodePtr> ReadyNodes() const override;
  NamespacePtr GetNamespace(const std::string& name) const override;
  WorkloadPtr GetWorkload(const kube::OwnerReference& ref, const std::string& ns, Duration live) const override;
  CheckpointPtr GetCheckpoint(const std::string& ns, const std::string& name) const override;
  std::vector<CheckpointPtr> Checkpoints() const override { return checkpoints; }
  std::vector<CheckpointPtr> CheckpointsIn(const std::string& ns) const override;
  std::vector<CheckpointPtr> CheckpointsOfOwner(const std::string& owner_uid) const override;
  std::vector<CheckpointPtr> CheckpointsOfPod(const std::string& pod_uid) const override;
  std::vector<CheckpointPtr> CheckpointsClaimedBy(const std::string& pod_uid) const override;
  std::vector<CheckpointPtr> DrainsUnderWay() const override;
  std::vector<CheckpointPtr> IntervalsUnderWay() const override;
  std::vector<CheckpointPtr> SuspendsUnderWay() const override;
  SuspendedPtr GetSuspended(const std::string& ns, const std::string& name) const override;
  std::vector<SuspendedPtr> SuspendedIn(const std::string& ns) const override;
  std::vector<SuspendedPtr> SuspendersOf(const std::string& ns, const std::string& kind, const std::string& name) const override;
  PolicyPtr GetPolicy(const std::string& ns, const std::string& name) const override;
  std::vector<PolicyPtr> PoliciesIn(const std::string& ns) const override;
  std::vector<PdbPtr> BudgetsIn(const std::string& ns) const override;
};

}  // namespace holdfast::reconcilers::testing
