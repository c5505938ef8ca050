#include "reconcilers/interval/reconciler.h"

#include "base/fault_point.h"
#include "base/log.h"
#include "reconcilers/group/cut.h"

namespace holdfast::reconcilers::interval {
namespace {

Json NewCheckpoint(const kube::Pod& pod, int ordinal, const std::vector<std::string>& containers) {
  Json spec = {{"podRef", {{"name", pod.meta.name}, {"uid", pod.meta.uid}}}, {"trigger", "Interval"}};
  if (!containers.empty()) spec["containers"] = containers;
  return {{"apiVersion", api::Checkpoint::kResource.ApiVersion()},
          {"kind", "Checkpoint"},
          {"metadata",
           {{"name", api::CheckpointName(api::Trigger::kInterval, pod.meta.name, pod.meta.uid, ordinal)},
            {"namespace", pod.meta.ns},
            {"finalizers", {kContentFinalizer}},
            {"labels", {{"app.kubernetes.io/managed-by", "holdfast"}}}}},
          {"spec", spec}};
}

// The first member by name that has an interval.
std::string OpenerOf(const View& view, const kube::Pod& pod) {
  const std::string group = group::GroupOf(pod);
  if (group.empty()) return "";
  for (const PodPtr& member : group::MembersOf(view, pod.meta.ns, group)) {
    const Protection protection = ProtectionOf(view, *member, pod.meta.ns, Trace(view, *member, pod.meta.ns));
    const auto& triggers = protection.policy->spec.triggers;
    if (protection.on && (triggers.interval_auto || triggers.interval)) return member->meta.name;
  }
  return pod.meta.name;
}

}  // namespace

World Reconciler::Look(const PodPtr& pod, const Lineage& lineage) const {
  World world;
  world.protection = ProtectionOf(context_.view, *pod, pod->meta.ns, lineage);
  world.node = context_.view.GetNode(pod->node_name);
  world.own = context_.view.CheckpointsOfPod(pod->meta.uid);
  auto count = [&](const CheckpointPtr& c) {
    if (c->spec.pod_uid == pod->meta.uid) return;
    PodPtr other = GetPodWithUid(context_.view, c->meta.ns, c->spec.pod_name, c->spec.pod_uid);
    if (other && other->node_name == pod->node_name) ++world.busy;
  };
  for (const CheckpointPtr& c : context_.view.IntervalsUnderWay()) count(c);
  for (const CheckpointPtr& c : context_.view.DrainsUnderWay()) {
    if (UnderWay(*c)) count(c);
  }
  world.opener = OpenerOf(context_.view, *pod);
  world.pod = pod;
  return world;
}

Result<kube::ReconcileResult> Reconciler::Reconcile(const std::string& key, std::stop_token stop) {
  const kube::ObjectKey name = kube::ObjectKey::Parse(key);
  PodPtr pod = context_.view.GetPod(name.ns, name.name);
  if (!pod || pod->phase != "Running") return kube::ReconcileResult{};
  const Lineage lineage = Trace(context_.view, *pod, name.ns);
  const World world = Look(pod, lineage);
  const Step step = Next(world, context_.clock.Wall());
  if (!step.create) return kube::ReconcileResult{step.again};
  kube::CallOptions options;
  options.timeout = std::chrono::seconds(10);
  options.stop = stop;
  auto created = context_.client.Create(api::Checkpoint::kResource, name.ns,
                                        NewCheckpoint(*pod, step.ordinal, WantedContainers(*pod, lineage)), options);
  HF_FAULT_POINT("controller.wrote");
  // There already: the cache is behind.
  if (created.status().code() == Code::kAlreadyExists) return kube::ReconcileResult{step.again};
  if (!created.ok()) return created.status().With("interval checkpoint of pod " + key);
  context_.observe(*created);
  LogInfo("checkpoint asked for by its interval", {{"pod", key}, {"why", step.why}});
  return kube::ReconcileResult{step.again};
}

}  // namespace holdfast::reconcilers::interval
