// The caches, but of some namespaces what the API server has now. A deletion cannot be taken back, so what it rests on (a newer checkpoint
// that is there, a pod that is not) is not believed of a cache that may be behind.
#pragma once

#include "reconcilers/context.h"

namespace holdfast::reconcilers::restorepolicy {

// To be used by one thread.
class LiveView final : public View {
 public:
  LiveView(const View& cache, kube::Client& client) : cache_(cache), client_(client) {}
  // Reads Checkpoints, pods, RestorePolicies, SuspendedWorkloads and the object of each of `namespaces`.
  Status Read(const std::set<std::string>& namespaces, std::stop_token stop);
  // Not OK when a workload that the cache lacks could not be read: then GetWorkload's null proved nothing.
  const Status& problem() const { return problem_; }

  PodPtr GetPod(const std::string& ns, const std::string& name) const override;
  std::vector<PodPtr> PodsIn(const std::string& ns) const override;
  NamespacePtr GetNamespace(const std::string& name) const override;
  // Asks the API server for what the cache lacks, whatever `live` says, once.
  WorkloadPtr GetWorkload(const kube::OwnerReference& ref, const std::string& ns, Duration live) const override;
  CheckpointPtr GetCheckpoint(const std::string& ns, const std::string& name) const override;
  std::vector<CheckpointPtr> CheckpointsIn(const std::string& ns) const override;
  PolicyPtr GetPolicy(const std::string& ns, const std::string& name) const override;
  std::vector<PolicyPtr> PoliciesIn(const std::string& ns) const override;
  SuspendedPtr GetSuspended(const std::string& ns, const std::string& name) const override;
  std::vector<SuspendedPtr> SuspendedIn(const std::string& ns) const override;

  // From the caches.
  std::vector<SuspendedPtr> SuspendersOf(const std::string& ns, const std::string& kind, const std::string& name) const override {
    return cache_.SuspendersOf(ns, kind, name);
  }
  std::vector<CheckpointPtr> SuspendsUnderWay() const override { return cache_.SuspendsUnderWay(); }
  std::vector<PodPtr> PodsControlledBy(const std::string& uid) const override { return cache_.PodsControlledBy(uid); }
  std::vector<PodPtr> GatedPodsIn(const std::string& ns) const override { return cache_.GatedPodsIn(ns); }
  NodePtr GetNode(const std::string& name) const override { return cache_.GetNode(name); }
  std::vector<NodePtr> ReadyNodes() const override { return cache_.ReadyNodes(); }
  std::vector<CheckpointPtr> Checkpoints() const override { return cache_.Checkpoints(); }
  std::vector<CheckpointPtr> CheckpointsOfOwner(const std::string& uid) const override { return cache_.CheckpointsOfOwner(uid); }
  std::vector<CheckpointPtr> CheckpointsOfPod(const std::string& uid) const override { return cache_.CheckpointsOfPod(uid); }
  std::vector<CheckpointPtr> CheckpointsClaimedBy(const std::string& uid) const override { return cache_.CheckpointsClaimedBy(uid); }
  std::vector<CheckpointPtr> DrainsUnderWay() const override { return cache_.DrainsUnderWay(); }
  std::vector<CheckpointPtr> IntervalsUnderWay() const override { return cache_.IntervalsUnderWay(); }
  std::vector<PdbPtr> BudgetsIn(const std::string& ns) const override { return cache_.BudgetsIn(ns); }

 private:
  struct Space {
    NamespacePtr object;
    std::map<std::string, PodPtr> pods;
    std::map<std::string, CheckpointPtr> checkpoints;
    std::map<std::string, PolicyPtr> policies;
    std::map<std::string, SuspendedPtr> suspended;
  };
  template <class T>
  Status ReadInto(const std::string& ns, std::map<std::string, std::shared_ptr<const T>>* out, std::stop_token stop);
  const Space* Of(const std::string& ns) const;

  const View& cache_;
  kube::Client& client_;
  std::map<std::string, Space> spaces_;
  std::stop_token stop_;
  mutable std::map<std::string, WorkloadPtr> workloads_;  // that were asked for, by kind/namespace/name; null: not there
  mutable Status problem_;
};

}  // namespace holdfast::reconcilers::restorepolicy
