// The informers of the controller, and what reconcilers and webhooks read from them. Runs on every replica.
#pragma once

#include <atomic>

#include "kube/informer.h"
#include "reconcilers/view.h"

namespace holdfast::controller {

class Caches final : public reconcilers::View {
 public:
  explicit Caches(kube::Client& client);

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

  void Start();
  void Stop();
  bool synced() const;
  std::string Unsynced() const;  // which ones, for /readyz

  reconcilers::PodPtr GetPod(const std::string& ns, const std::string& name) const override;
  std::vector<reconcilers::PodPtr> PodsControlledBy(const std::string& controller_uid) const override;
  std::vector<reconcilers::PodPtr> PodsIn(const std::string& ns) const override;
  std::vector<reconcilers::PodPtr> GatedPodsIn(const std::string& ns) const override;
  reconcilers::NodePtr GetNode(const std::string& name) const override;
  bool AnyNodeReady() const override;
  reconcilers::NamespacePtr GetNamespace(const std::string& name) const override;
  reconcilers::WorkloadPtr GetWorkload(const kube::OwnerReference& ref, const std::string& ns, Duration live) const override;
  reconcilers::CheckpointPtr GetCheckpoint(const std::string& ns, const std::string& name) const override;
  std::vector<reconcilers::CheckpointPtr> CheckpointsIn(const std::string& ns) const override;
  std::vector<reconcilers::CheckpointPtr> CheckpointsOfOwner(const std::string& owner_uid) const override;
  std::vector<reconcilers::CheckpointPtr> CheckpointsOfPod(const std::string& pod_uid) const override;
  std::vector<reconcilers::CheckpointPtr> CheckpointsClaimedBy(const std::string& pod_uid) const override;
  std::vector<reconcilers::CheckpointPtr> DrainsUnderWay() const override;
  std::vector<reconcilers::CheckpointPtr> IntervalsUnderWay() const override;
  reconcilers::PolicyPtr GetPolicy(const std::string& ns, const std::string& name) const override;
  std::vector<reconcilers::PolicyPtr> PoliciesIn(const std::string& ns) const override;
  std::vector<reconcilers::PdbPtr> BudgetsIn(const std::string& ns) const override;

 private:
  template <class Fn>
  void ForEach(Fn fn);
  kube::Client& client_;
};

}  // namespace holdfast::controller
