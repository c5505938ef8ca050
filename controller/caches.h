// The informers of the controller, and what reconcilers and webhooks read from them. Runs on every replica.
#pragma once

#include <atomic>

#include "kube/informer.h"
#include "reconcilers/view.h"

namespace holdfast::controller {

class Caches final : public reconcilers::View {
 public:
  // `on_request`: also Services, and the EndpointSlices that lead to the activator.
  explicit Caches(kube::Client& client, bool on_request = false);

  kube::Informer<kube::Pod> pods;
  kube::Informer<kube::Node> nodes;
  kube::Informer<kube::Namespace> namespaces;
  kube::Informer<kube::ReplicaSet> replica_sets;
  kube::Informer<kube::Deployment> deployments;
  kube::Informer<kube::StatefulSet> stateful_sets;
  kube::Informer<kube::Job> jobs;
  kube::Informer<reconcilers::PodDisruptionBudget> budgets;
  kube::Informer<api::Checkpoint> checkpoints;
  kube::Informer<api::RestorePolicy> policies;
  kube::Informer<api::SuspendedWorkload> suspended;
  kube::Informer<kube::Service> services;
  kube::Informer<kube::EndpointSlice> slices;

  void Start();
  void Stop();
  bool synced() const;
  std::string Unsynced() const;  // which ones, for /readyz

  reconcilers::PodPtr GetPod(const std::string& ns, const std::string& name) const override;
  std::vector<reconcilers::PodPtr> PodsControlledBy(const std::string& controller_uid) const override;
  std::vector<reconcilers::PodPtr> PodsIn(const std::string& ns) const override;
  std::vector<reconcilers::PodPtr> GatedPodsIn(const std::string& ns) const override;
  reconcilers::NodePtr GetNode(const std::string& name) const override;
  std::vector<reconcilers::NodePtr> ReadyNodes() const override;
  reconcilers::NamespacePtr GetNamespace(const std::string& name) const override;
  reconcilers::WorkloadPtr GetWorkload(const kube::OwnerReference& ref, const std::string& ns, Duration live) const override;
  reconcilers::CheckpointPtr GetCheckpoint(const std::string& ns, const std::string& name) const override;
  std::vector<reconcilers::CheckpointPtr> Checkpoints() const override { return checkpoints.List(); }
  std::vector<reconcilers::CheckpointPtr> CheckpointsIn(const std::string& ns) const override;
  std::vector<reconcilers::CheckpointPtr> CheckpointsOfOwner(const std::string& owner_uid) const override;
  std::vector<reconcilers::CheckpointPtr> CheckpointsOfPod(const std::string& pod_uid) const override;
  std::vector<reconcilers::CheckpointPtr> CheckpointsClaimedBy(const std::string& pod_uid) const override;
  std::vector<reconcilers::CheckpointPtr> DrainsUnderWay() const override;
  std::vector<reconcilers::CheckpointPtr> IntervalsUnderWay() const override;
  std::vector<reconcilers::CheckpointPtr> SuspendsUnderWay() const override;
  reconcilers::SuspendedPtr GetSuspended(const std::string& ns, const std::string& name) const override;
  std::vector<reconcilers::SuspendedPtr> SuspendedIn(const std::string& ns) const override;
  std::vector<reconcilers::SuspendedPtr> SuspendersOf(const std::string& ns, const std::string& kind,
                                                      const std::string& name) const override;
  // Whose status.checkpoints names that Checkpoint.
  std::vector<reconcilers::SuspendedPtr> SuspendersWith(const std::string& ns, const std::string& checkpoint) const;
  reconcilers::PolicyPtr GetPolicy(const std::string& ns, const std::string& name) const override;
  std::vector<reconcilers::PolicyPtr> PoliciesIn(const std::string& ns) const override;
  std::vector<reconcilers::PdbPtr> BudgetsIn(const std::string& ns) const override;

 private:
  template <class Fn>
  void ForEach(Fn fn);
  kube::Client& client_;
  const bool on_request_;
};

}  // namespace holdfast::controller
