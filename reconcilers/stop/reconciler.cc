#include "reconcilers/stop/reconciler.h"

#include "base/fault_point.h"
#include "base/log.h"
#include "kube/utf8.h"

namespace holdfast::reconcilers::stop {
namespace {

// The dump itself has the pod's grace period (agent/executor.cc); this is for the store.
constexpr char kDeadline[] = "10m";
constexpr size_t kMaxWhy = 512;
constexpr Duration kOwnerWithin = std::chrono::seconds(1);  // read live where no cache has it

constexpr Duration kSoon = std::chrono::seconds(2);  // the pod's signal is held back meanwhile

Json NewCheckpoint(const kube::Pod& pod, const std::vector<std::string>& containers) {
  Json spec = {{"podRef", {{"name", pod.meta.name}, {"uid", pod.meta.uid}}},
               {"trigger", api::TriggerName(api::Trigger::kStop)},
               {"final", true},
               {"deadline", kDeadline}};
  if (!containers.empty()) spec["containers"] = containers;
  return {{"apiVersion", api::Checkpoint::kResource.ApiVersion()},
          {"kind", "Checkpoint"},
          {"metadata",
           {{"name", api::CheckpointName(api::Trigger::kStop, pod.meta.name, pod.meta.uid, 0)},
            {"namespace", pod.meta.ns},
            {"finalizers", {kContentFinalizer}},
            {"labels", {{"app.kubernetes.io/managed-by", "holdfast"}}}}},
          {"spec", spec}};
}

const kube::Resource* ResourceOf(const std::string& kind) {
  if (kind == "ReplicaSet") return &kube::ReplicaSet::kResource;
  if (kind == "StatefulSet") return &kube::StatefulSet::kResource;
  return kind == "Job" ? &kube::Job::kResource : nullptr;
}

}  // namespace

// Its owner is read live: a cache that still has the size of before a scale-down would keep what nobody wants.
Result<World> Reconciler::Look(const PodPtr& pod, std::stop_token stop) const {
  World world;
  world.pod = pod;
  world.node = context_.view.GetNode(pod->node_name);
  world.lineage = Trace(context_.view, *pod, pod->meta.ns, kOwnerWithin);
  world.own = context_.view.CheckpointsOfPod(pod->meta.uid);
  const kube::OwnerReference* owner = pod->meta.Controller();
  if (const kube::Resource* resource = owner != nullptr ? ResourceOf(owner->kind) : nullptr; resource != nullptr) {
    world.siblings = context_.view.PodsControlledBy(owner->uid);
    Result<Json> live = context_.client.Get(*resource, pod->meta.ns, owner->name, Calls(std::move(stop), kSoon));
    if (!live.ok() && live.status().code() != Code::kNotFound) return live.status();
    if (live.ok()) world.parent = std::make_shared<const kube::Workload>(kube::Workload::Read(*live));
  }
  // What a cache has not heard of yet is not unprotected: the process would be told to quit for it.
  if (world.parent && !world.lineage.complete) {
    return Status(Code::kUnavailable, "who owns pod " + pod->meta.Key() + ", which is being stopped, is not known yet");
  }
  world.protection = ProtectionOf(context_.view, *pod, pod->meta.ns, world.lineage);
  return world;
}

Status Reconciler::Create(const World& world, std::stop_token stop) {
  const kube::Pod& pod = *world.pod;
  auto created = context_.client.Create(api::Checkpoint::kResource, pod.meta.ns, NewCheckpoint(pod, WantedContainers(pod, world.lineage)),
                                        Calls(std::move(stop), kSoon));
  HF_FAULT_POINT("controller.wrote");
  if (created.status().code() == Code::kAlreadyExists) return Status::Ok();  // the cache is behind
  if (!created.ok()) return created.status().With("checkpoint of pod " + pod.meta.Key() + ", which is being stopped");
  context_.observe(*created);
  LogInfo("a pod that is being stopped is checkpointed", {{"pod", pod.meta.Key()}, {"uid", pod.meta.uid}});
  return Status::Ok();
}

Status Reconciler::LetGo(const kube::Pod& pod, const std::string& why, std::stop_token stop) {
  Json patch = {{"metadata", {{"uid", pod.meta.uid}, {"annotations", {{api::kLetGo, kube::Clip(why, kMaxWhy)}}}}}};
  const Status written =
      context_.client.Patch(kube::Pod::kResource, pod.meta.ns, pod.meta.name, kube::PatchType::kMerge, patch, Calls(std::move(stop), kSoon))
          .status();
  HF_FAULT_POINT("controller.wrote");
  if (written.code() == Code::kNotFound || written.code() == Code::kConflict) return Status::Ok();  // gone, or another one by now
  HF_RETURN_IF_ERROR(Status(written).With("pod " + pod.meta.Key() + ", which is being stopped"));
  LogInfo("a pod that is being stopped is let go", {{"pod", pod.meta.Key()}, {"uid", pod.meta.uid}, {"why", why}});
  return Status::Ok();
}

Result<kube::ReconcileResult> Reconciler::Reconcile(const std::string& key, std::stop_token stop) {
  const kube::ObjectKey name = kube::ObjectKey::Parse(key);
  HF_ASSIGN_OR_RETURN(const PodPtr pod, ReadPod(context_, name.ns, name.name, stop));  // whoever asks may know of its end before our cache
  if (!pod || !Undecided(*pod, context_.view.CheckpointsOfPod(pod->meta.uid))) return kube::ReconcileResult{};
  HF_ASSIGN_OR_RETURN(const World world, Look(pod, stop));
  const Step step = Next(world, context_.clock.Wall());
  if (step.action == Action::kCheckpoint) HF_RETURN_IF_ERROR(Create(world, stop));
  if (step.action == Action::kLetGo) HF_RETURN_IF_ERROR(LetGo(*pod, step.why, stop));
  return kube::ReconcileResult{};
}

}  // namespace holdfast::reconcilers::stop
