#include "controller/caches.h"

#include <algorithm>

#include "reconcilers/claims.h"

namespace holdfast::controller {
namespace {

using namespace reconcilers;  // NOLINT(google-build-using-namespace): this file is the other half of View

// Index names.
constexpr char kByNamespace[] = "namespace", kByController[] = "controller", kGated[] = "gated", kByOwner[] = "owner", kByPod[] = "pod",
               kByClaim[] = "claim", kUnderWay[] = "drain", kIntervals[] = "interval", kSuspends[] = "suspend", kTarget[] = "target",
               kCheckpoint[] = "checkpoint", kReady[] = "ready";

template <class T>
void IndexByNamespace(kube::Informer<T>* informer) {
  informer->AddIndex(kByNamespace, [](const T& object) { return std::vector<std::string>{object.meta.ns}; });
}

std::vector<std::string> OneOrNone(const std::string& value) {
  return value.empty() ? std::vector<std::string>{} : std::vector<std::string>{value};
}

std::vector<std::string> GatedIn(const kube::Pod& pod) {
  const auto& gates = pod.scheduling_gates;
  return OneOrNone(std::find(gates.begin(), gates.end(), api::kClaimGate) != gates.end() ? pod.meta.ns : "");
}

std::vector<std::string> ReadyNode(const kube::Node& node) {
  auto label = node.meta.labels.find(api::kNodeReady);
  return OneOrNone(label != node.meta.labels.end() && label->second == "ready" ? "ready" : "");
}

std::vector<std::string> DrainUnderWay(const api::Checkpoint& c) {
  const bool over =
      c.status.phase == api::Phase::kFailed || c.status.phase == api::Phase::kDeleting || Reclaimed(c) || OutcomeOfClaim(c) != nullptr;
  return OneOrNone(c.spec.trigger == api::Trigger::kDrain && !over ? "yes" : "");
}

std::vector<std::string> IntervalUnderWay(const api::Checkpoint& c) {
  return OneOrNone(c.spec.trigger == api::Trigger::kInterval && !c.done() ? "yes" : "");
}

std::vector<std::string> SuspendUnderWay(const api::Checkpoint& c) {
  return OneOrNone(api::Suspends(c.spec.trigger) && !c.done() ? "yes" : "");
}

std::string TargetKey(const std::string& ns, const std::string& kind, const std::string& name) { return ns + "/" + kind + "/" + name; }

// A workload as the cache has it, if it is the one that `ref` means.
template <class T>
WorkloadPtr Cached(const kube::Informer<T>& informer, const kube::OwnerReference& ref, const std::string& ns) {
  auto found = informer.Get(ns, ref.name);
  return found && (ref.uid.empty() || found->meta.uid == ref.uid) ? found : nullptr;
}

template <class T>
WorkloadPtr Find(const kube::Informer<T>& informer, kube::Client& client, const kube::OwnerReference& ref, const std::string& ns,
                 Duration live) {
  if (WorkloadPtr cached = Cached(informer, ref, ns)) return cached;
  if (live <= Duration(0)) return nullptr;
  kube::CallOptions options;
  options.timeout = live;
  auto read = client.Get<T>(ns, ref.name, options);
  if (!read.ok() || (!ref.uid.empty() && read->meta.uid != ref.uid)) return nullptr;
  return std::make_shared<const T>(std::move(*read));
}

}  // namespace

Caches::Caches(kube::Client& client, bool on_request)
    : pods(client),
      nodes(client),
      namespaces(client),
      replica_sets(client),
      deployments(client),
      stateful_sets(client),
      jobs(client),
      budgets(client),
      checkpoints(client),
      policies(client),
      suspended(client),
      services(client),
      slices(client, {"", std::string(kube::EndpointSlice::kManagerLabel) + "=" + api::kSliceManager, ""}),
      client_(client),
      on_request_(on_request) {
  IndexByNamespace(&pods);
  IndexByNamespace(&budgets);
  IndexByNamespace(&checkpoints);
  IndexByNamespace(&policies);
  IndexByNamespace(&suspended);
  pods.AddIndex(kByController, [](const kube::Pod& pod) {
    const kube::OwnerReference* owner = pod.meta.Controller();
    return OneOrNone(owner != nullptr ? owner->uid : "");
  });
  pods.AddIndex(kGated, GatedIn);
  nodes.AddIndex(kReady, ReadyNode);
  checkpoints.AddIndex(kByOwner, [](const api::Checkpoint& c) { return OneOrNone(c.status.owner.uid); });
  checkpoints.AddIndex(kByPod, [](const api::Checkpoint& c) { return OneOrNone(c.spec.pod_uid); });
  checkpoints.AddIndex(kByClaim, [](const api::Checkpoint& c) { return OneOrNone(c.status.claim ? c.status.claim->pod_uid : ""); });
  checkpoints.AddIndex(kUnderWay, DrainUnderWay);
  checkpoints.AddIndex(kIntervals, IntervalUnderWay);
  checkpoints.AddIndex(kSuspends, SuspendUnderWay);
  suspended.AddIndex(kTarget, [](const api::SuspendedWorkload& s) {
    return std::vector<std::string>{TargetKey(s.meta.ns, s.spec.target_kind, s.spec.target_name)};
  });
  suspended.AddIndex(kCheckpoint, [](const api::SuspendedWorkload& s) {
    std::vector<std::string> keys;
    for (const api::SuspendedPod& pod : s.status.checkpoints) keys.push_back(s.meta.ns + "/" + pod.checkpoint);
    return keys;
  });
}

template <class Fn>
void Caches::ForEach(Fn fn) {
  fn("nodes", nodes);
  fn("namespaces", namespaces);
  fn("deployments", deployments);
  fn("replicasets", replica_sets);
  fn("statefulsets", stateful_sets);
  fn("jobs", jobs);
  fn("poddisruptionbudgets", budgets);
  fn("restorepolicies", policies);
  fn("suspendedworkloads", suspended);
  fn("checkpoints", checkpoints);
  fn("pods", pods);
  if (on_request_) {
    fn("services", services);
    fn("endpointslices", slices);
  }
}

void Caches::Start() {
  ForEach([](const char*, auto& informer) { informer.Start(); });
}

void Caches::Stop() {
  ForEach([](const char*, auto& informer) { informer.Stop(); });
}

bool Caches::synced() const { return Unsynced().empty(); }

std::string Caches::Unsynced() const {
  std::string names;
  const_cast<Caches*>(this)->ForEach([&](const char* name, auto& informer) {
    if (!informer.synced()) names += (names.empty() ? "" : ", ") + std::string(name);
  });
  return names;
}

PodPtr Caches::GetPod(const std::string& ns, const std::string& name) const { return pods.Get(ns, name); }
std::vector<PodPtr> Caches::PodsControlledBy(const std::string& uid) const { return pods.ByIndex(kByController, uid); }
std::vector<PodPtr> Caches::PodsIn(const std::string& ns) const { return pods.ByIndex(kByNamespace, ns); }
std::vector<PodPtr> Caches::GatedPodsIn(const std::string& ns) const { return pods.ByIndex(kGated, ns); }
NodePtr Caches::GetNode(const std::string& name) const { return nodes.Get("", name); }
std::vector<NodePtr> Caches::ReadyNodes() const { return nodes.ByIndex(kReady, "ready"); }
NamespacePtr Caches::GetNamespace(const std::string& name) const { return namespaces.Get("", name); }

WorkloadPtr Caches::GetWorkload(const kube::OwnerReference& ref, const std::string& ns, Duration live) const {
  if (ref.kind == "ReplicaSet") return Find(replica_sets, client_, ref, ns, live);
  if (ref.kind == "Deployment") return Find(deployments, client_, ref, ns, live);
  if (ref.kind == "StatefulSet") return Find(stateful_sets, client_, ref, ns, live);
  if (ref.kind == "Job") return Find(jobs, client_, ref, ns, live);
  return nullptr;
}

CheckpointPtr Caches::GetCheckpoint(const std::string& ns, const std::string& name) const { return checkpoints.Get(ns, name); }
std::vector<CheckpointPtr> Caches::CheckpointsIn(const std::string& ns) const { return checkpoints.ByIndex(kByNamespace, ns); }
std::vector<CheckpointPtr> Caches::CheckpointsOfOwner(const std::string& uid) const { return checkpoints.ByIndex(kByOwner, uid); }
std::vector<CheckpointPtr> Caches::CheckpointsOfPod(const std::string& uid) const { return checkpoints.ByIndex(kByPod, uid); }
std::vector<CheckpointPtr> Caches::CheckpointsClaimedBy(const std::string& uid) const { return checkpoints.ByIndex(kByClaim, uid); }
std::vector<CheckpointPtr> Caches::DrainsUnderWay() const { return checkpoints.ByIndex(kUnderWay, "yes"); }
std::vector<CheckpointPtr> Caches::IntervalsUnderWay() const { return checkpoints.ByIndex(kIntervals, "yes"); }
std::vector<CheckpointPtr> Caches::SuspendsUnderWay() const { return checkpoints.ByIndex(kSuspends, "yes"); }
SuspendedPtr Caches::GetSuspended(const std::string& ns, const std::string& name) const { return suspended.Get(ns, name); }
std::vector<SuspendedPtr> Caches::SuspendedIn(const std::string& ns) const { return suspended.ByIndex(kByNamespace, ns); }
std::vector<SuspendedPtr> Caches::SuspendersOf(const std::string& ns, const std::string& kind, const std::string& name) const {
  return suspended.ByIndex(kTarget, TargetKey(ns, kind, name));
}
std::vector<SuspendedPtr> Caches::SuspendersWith(const std::string& ns, const std::string& checkpoint) const {
  return suspended.ByIndex(kCheckpoint, ns + "/" + checkpoint);
}
PolicyPtr Caches::GetPolicy(const std::string& ns, const std::string& name) const { return policies.Get(ns, name); }
std::vector<PolicyPtr> Caches::PoliciesIn(const std::string& ns) const { return policies.ByIndex(kByNamespace, ns); }
std::vector<PdbPtr> Caches::BudgetsIn(const std::string& ns) const { return budgets.ByIndex(kByNamespace, ns); }

}  // namespace holdfast::controller
