#include "tests/unit/reconcilers/world.h"

#include <algorithm>

namespace holdfast::reconcilers::testing {
namespace {

template <class T, class Fn>
std::vector<T> Those(const std::vector<T>& all, Fn keep) {
  std::vector<T> out;
  std::copy_if(all.begin(), all.end(), std::back_inserter(out), keep);
  return out;
}

template <class T>
T Named(const std::vector<T>& all, const std::string& ns, const std::string& name) {
  for (const T& object : all) {
    if (object->meta.ns == ns && object->meta.name == name) return object;
  }
  return nullptr;
}

}  // namespace

kube::Pod WebPod(const std::string& name, const std::string& uid) {
  kube::Pod pod;
  pod.meta.ns = "default";
  pod.meta.name = name;
  pod.meta.uid = uid;
  pod.meta.creation_timestamp = "2026-06-01T11:00:00Z";
  pod.meta.labels = {{"app", "web"}, {"pod-template-hash", "h1"}};
  kube::OwnerReference owner;
  owner.kind = "ReplicaSet";
  owner.name = "web-1";
  owner.uid = "uid-rs";
  owner.controller = true;
  pod.meta.owners = {owner};
  pod.node_name = "node-a";
  pod.runtime_class = "holdfast";
  pod.phase = "Running";
  pod.restart_policy = "Always";
  kube::Container container;
  container.name = "main";
  pod.containers = {container};
  kube::ContainerStatus status;
  status.name = "main";
  status.running = true;
  pod.container_statuses = {status};
  return pod;
}

api::Owner WebOwner() { return {"Deployment", "web", "uid-web", "h1", ""}; }

kube::Workload Web(int64_t replicas) {
  kube::Workload web;
  web.meta.ns = "default";
  web.meta.name = "web";
  web.meta.uid = "uid-web";
  web.replicas = web.pods = web.updated_pods = replicas;
  return web;
}

api::SuspendedWorkload SleeperOfWeb(bool suspended) {
  api::SuspendedWorkload s;
  s.meta.ns = "default";
  s.meta.name = "nb";
  s.meta.uid = "uid-nb";
  s.meta.generation = 2;
  s.meta.finalizers = {api::SuspendedWorkload::kFinalizer};
  s.spec.target_api_version = "apps/v1";
  s.spec.target_kind = "Deployment";
  s.spec.target_name = "web";
  s.spec.suspended = suspended;
  s.status.seen = true;
  return s;
}

api::Checkpoint WebDrain(const std::string& pod, const std::string& uid) {
  api::Checkpoint c;
  c.meta.ns = "default";
  c.meta.name = api::CheckpointName(api::Trigger::kDrain, pod, uid);
  c.meta.uid = "ckpt-" + uid;
  c.meta.resource_version = "7";
  c.meta.creation_timestamp = FormatTime(kStart);
  c.meta.finalizers = {kContentFinalizer};
  c.spec.pod_name = pod;
  c.spec.pod_uid = uid;
  c.spec.final = true;
  c.spec.trigger = api::Trigger::kDrain;
  return c;
}

api::Checkpoint InPhase(api::Phase phase, const std::string& pod, const std::string& uid) {
  api::Checkpoint c = WebDrain(pod, uid);
  c.status.phase = phase;
  c.status.owner = WebOwner();
  c.status.node_name = "node-a";
  if (c.done()) c.status.completed_at = FormatTime(At(10));
  c.status.conditions = {{"Ready", phase == api::Phase::kReady ? "True" : "False", "InProgress", "as it is", FormatTime(kStart), 1}};
  return c;
}

kube::Node ReadyNode(const std::string& name) {
  kube::Node node;
  node.meta.name = name;
  node.meta.labels = {{api::kNodeReady, "ready"}, {"kubernetes.io/os", "linux"}};
  return node;
}

void FakeView::AddWeb(const std::map<std::string, std::string>& annotations) {
  kube::Workload set, deployment;
  set.meta.ns = deployment.meta.ns = "default";
  set.meta.name = "web-1";
  set.meta.uid = "uid-rs";
  kube::OwnerReference owner;
  owner.kind = "Deployment";
  owner.name = "web";
  owner.uid = "uid-web";
  owner.controller = true;
  set.meta.owners = {owner};
  deployment.meta.name = "web";
  deployment.meta.uid = "uid-web";
  deployment.meta.annotations = annotations;
  workloads["ReplicaSet/web-1"] = Share(set);
  workloads["Deployment/web"] = Share(deployment);
}

PodPtr FakeView::GetPod(const std::string& ns, const std::string& name) const { return Named(pods, ns, name); }
std::vector<PodPtr> FakeView::PodsControlledBy(const std::string& uid) const {
  return Those(pods, [&](const PodPtr& p) { return p->meta.Controller() != nullptr && p->meta.Controller()->uid == uid; });
}
std::vector<PodPtr> FakeView::PodsIn(const std::string& ns) const {
  return Those(pods, [&](const PodPtr& p) { return p->meta.ns == ns; });
}
std::vector<PodPtr> FakeView::GatedPodsIn(const std::string& ns) const {
  return Those(pods, [&](const PodPtr& p) { return p->meta.ns == ns && !p->scheduling_gates.empty(); });
}
NodePtr FakeView::GetNode(const std::string& name) const { return Named(nodes, "", name); }
std::vector<NodePtr> FakeView::ReadyNodes() const {
  return Those(nodes, [](const NodePtr& n) { return n->meta.labels.contains(api::kNodeReady); });
}
NamespacePtr FakeView::GetNamespace(const std::string& name) const { return Named(namespaces, "", name); }
WorkloadPtr FakeView::GetWorkload(const kube::OwnerReference& ref, const std::string&, Duration live) const {
  auto found = workloads.find(ref.kind + "/" + ref.name);
  if (found != workloads.end() && (ref.uid.empty() || found->second->meta.uid == ref.uid)) return found->second;
  if (live > Duration(0)) ++live_reads;
  return nullptr;
}
CheckpointPtr FakeView::GetCheckpoint(const std::string& ns, const std::string& name) const { return Named(checkpoints, ns, name); }
std::vector<CheckpointPtr> FakeView::CheckpointsIn(const std::string& ns) const {
  return Those(checkpoints, [&](const CheckpointPtr& c) { return c->meta.ns == ns; });
}
std::vector<CheckpointPtr> FakeView::CheckpointsOfOwner(const std::string& uid) const {
  return Those(checkpoints, [&](const CheckpointPtr& c) { return c->status.owner.uid == uid; });
}
std::vector<CheckpointPtr> FakeView::CheckpointsOfPod(const std::string& uid) const {
  return Those(checkpoints, [&](const CheckpointPtr& c) { return c->spec.pod_uid == uid; });
}
std::vector<CheckpointPtr> FakeView::CheckpointsClaimedBy(const std::string& uid) const {
  return Those(checkpoints, [&](const CheckpointPtr& c) { return c->status.claim && c->status.claim->pod_uid == uid; });
}
std::vector<CheckpointPtr> FakeView::DrainsUnderWay() const {
  return Those(checkpoints,
               [](const CheckpointPtr& c) { return c->spec.trigger == api::Trigger::kDrain && c->status.phase != api::Phase::kFailed; });
}
std::vector<CheckpointPtr> FakeView::IntervalsUnderWay() const {
  return Those(checkpoints, [](const CheckpointPtr& c) { return c->spec.trigger == api::Trigger::kInterval && !c->done(); });
}
std::vector<CheckpointPtr> FakeView::SuspendsUnderWay() const {
  return Those(checkpoints, [](const CheckpointPtr& c) { return api::Suspends(c->spec.trigger) && !c->done(); });
}
SuspendedPtr FakeView::GetSuspended(const std::string& ns, const std::string& name) const { return Named(suspended, ns, name); }
std::vector<SuspendedPtr> FakeView::SuspendedIn(const std::string& ns) const {
  return Those(suspended, [&](const SuspendedPtr& s) { return s->meta.ns == ns; });
}
std::vector<SuspendedPtr> FakeView::SuspendersOf(const std::string& ns, const std::string& kind, const std::string& name) const {
  return Those(suspended,
               [&](const SuspendedPtr& s) { return s->meta.ns == ns && s->spec.target_kind == kind && s->spec.target_name == name; });
}
PolicyPtr FakeView::GetPolicy(const std::string& ns, const std::string& name) const { return Named(policies, ns, name); }
std::vector<PolicyPtr> FakeView::PoliciesIn(const std::string& ns) const {
  return Those(policies, [&](const PolicyPtr& p) { return p->meta.ns == ns; });
}
std::vector<PdbPtr> FakeView::BudgetsIn(const std::string& ns) const {
  return Those(budgets, [&](const PdbPtr& b) { return b->meta.ns == ns; });
}

}  // namespace holdfast::reconcilers::testing
