// What reconcilers and webhooks know about the cluster: snapshots from the caches. Answers may be a moment old; whoever acts on one that
// must not be old reads it live first, or writes with an optimistic lock. Implementations are thread-safe and never block, but for
// GetWorkload with a live timeout.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/checkpoint.h"
#include "api/restore_policy.h"
#include "api/suspended_workload.h"
#include "kube/objects.h"

namespace holdfast::reconcilers {

// policy/v1 PodDisruptionBudget, as far as the drain reads it.
struct PodDisruptionBudget {
  static const kube::Resource kResource;
  static PodDisruptionBudget FromJson(const Json& object);
  kube::ObjectMeta meta;
  api::LabelSelector selector;
  int64_t disruptions_allowed = 0;
};

using PodPtr = std::shared_ptr<const kube::Pod>;
using NodePtr = std::shared_ptr<const kube::Node>;
using NamespacePtr = std::shared_ptr<const kube::Namespace>;
using WorkloadPtr = std::shared_ptr<const kube::Workload>;
using CheckpointPtr = std::shared_ptr<const api::Checkpoint>;
using PolicyPtr = std::shared_ptr<const api::RestorePolicy>;
using SuspendedPtr = std::shared_ptr<const api::SuspendedWorkload>;
using PdbPtr = std::shared_ptr<const PodDisruptionBudget>;

class View {
 public:
  virtual ~View() = default;
  virtual PodPtr GetPod(const std::string& ns, const std::string& name) const = 0;
  virtual std::vector<PodPtr> PodsControlledBy(const std::string& controller_uid) const = 0;
  virtual std::vector<PodPtr> PodsIn(const std::string& ns) const = 0;
  virtual std::vector<PodPtr> GatedPodsIn(const std::string& ns) const = 0;  // those that wait behind holdfast.dev/claim
  virtual NodePtr GetNode(const std::string& name) const = 0;
  virtual std::vector<NodePtr> ReadyNodes() const = 0;  // those that carry holdfast.dev/runtime=ready
  virtual NamespacePtr GetNamespace(const std::string& name) const = 0;
  // ReplicaSet, Deployment, StatefulSet or Job; null for other kinds. On a miss of the cache (or another uid in it) asks the API server,
  // for at most `live`.
  virtual WorkloadPtr GetWorkload(const kube::OwnerReference& ref, const std::string& ns, Duration live) const = 0;
  virtual CheckpointPtr GetCheckpoint(const std::string& ns, const std::string& name) const = 0;
  virtual std::vector<CheckpointPtr> Checkpoints() const = 0;  // of all namespaces
  virtual std::vector<CheckpointPtr> CheckpointsIn(const std::string& ns) const = 0;
  virtual std::vector<CheckpointPtr> CheckpointsOfOwner(const std::string& owner_uid) const = 0;  // by status.owner.uid
  virtual std::vector<CheckpointPtr> CheckpointsOfPod(const std::string& pod_uid) const = 0;      // by spec.podRef.uid
  virtual std::vector<CheckpointPtr> CheckpointsClaimedBy(const std::string& pod_uid) const = 0;  // by status.claim.podUID
  virtual std::vector<CheckpointPtr> DrainsUnderWay() const = 0;     // trigger Drain, all namespaces, neither Failed nor Deleting
  virtual std::vector<CheckpointPtr> IntervalsUnderWay() const = 0;  // trigger Interval, all namespaces, not done
  virtual std::vector<CheckpointPtr> SuspendsUnderWay() const = 0;   // trigger Suspend or Idle, all namespaces, not done
  virtual SuspendedPtr GetSuspended(const std::string& ns, const std::string& name) const = 0;
  virtual std::vector<SuspendedPtr> SuspendedIn(const std::string& ns) const = 0;
  // Whose spec.targetRef names that workload.
  virtual std::vector<SuspendedPtr> SuspendersOf(const std::string& ns, const std::string& kind, const std::string& name) const = 0;
  virtual PolicyPtr GetPolicy(const std::string& ns, const std::string& name) const = 0;
  virtual std::vector<PolicyPtr> PoliciesIn(const std::string& ns) const = 0;
  virtual std::vector<PdbPtr> BudgetsIn(const std::string& ns) const = 0;
};

bool Gated(const kube::Pod& pod);  // waits behind holdfast.dev/claim
bool Ended(const kube::Pod& pod);  // Succeeded, or Failed
// The pod of that name only if it is still the one with `uid`.
PodPtr GetPodWithUid(const View& view, const std::string& ns, const std::string& name, const std::string& uid);

}  // namespace holdfast::reconcilers
