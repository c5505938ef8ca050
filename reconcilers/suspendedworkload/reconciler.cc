#include "reconcilers/suspendedworkload/reconciler.h"

#include "base/fault_point.h"
#include "base/log.h"
#include "kube/finalizer.h"
#include "kube/list_stream.h"
#include "reconcilers/suspendedworkload/manifest.h"

namespace holdfast::reconcilers::suspendedworkload {
namespace {

constexpr Duration kAfterConflict = std::chrono::milliseconds(200), kOwnerRead = std::chrono::seconds(1);

Json NewCheckpoint(const kube::Pod& pod, const std::string& name, api::Trigger trigger, const std::vector<std::string>& containers) {
  Json spec = {{"podRef", {{"name", pod.meta.name}, {"uid", pod.meta.uid}}},
               {"final", true},
               {"trigger", api::TriggerName(trigger)},
               {"deadline", FormatDuration(kDeadline)}};
  if (!containers.empty()) spec["containers"] = containers;
  return {{"apiVersion", api::Checkpoint::kResource.ApiVersion()},
          {"kind", "Checkpoint"},
          {"metadata",
           {{"name", name},
            {"namespace", pod.meta.ns},
            {"finalizers", {kContentFinalizer}},
            {"labels", {{"app.kubernetes.io/managed-by", "holdfast"}}}}},
          {"spec", spec}};
}

// Which of several objects of one workload holds: the oldest.
bool Before(const api::SuspendedWorkload& a, const api::SuspendedWorkload& b) {
  if (a.meta.creation_timestamp != b.meta.creation_timestamp) return a.meta.creation_timestamp < b.meta.creation_timestamp;
  return a.meta.name < b.meta.name;
}

// What a sealed manifest is of: it opens for no other object, and no other pod.
std::string SealedFor(const api::SuspendedWorkload& object) {
  return object.meta.ns + "/" + object.spec.target_name.str() + " of SuspendedWorkload " + object.meta.uid;
}

}  // namespace

Result<World> Reconciler::Look(SuspendedPtr object, std::stop_token stop) const {
  const View& view = context_.view;
  World world;
  const std::string& ns = object->meta.ns;
  if (IsPod(*object)) {
    if (const PodPtr pod = view.GetPod(ns, object->spec.target_name)) world.target = AsWorkload(*object, pod.get());
  } else {
    world.target = view.GetWorkload({"", object->spec.target_kind, object->spec.target_name, "", true}, ns, Duration(0));
  }
  // That there is none is believed only of the API server.
  if (!world.target) {
    HF_ASSIGN_OR_RETURN(world.target, ReadTarget(context_.client, *object, stop));
  }
  for (const SuspendedPtr& other : view.SuspendersOf(ns, object->spec.target_kind, object->spec.target_name)) {
    if (other->meta.uid != object->meta.uid && Before(*other, *object)) world.rival = other->meta.name;
  }
  for (const api::SuspendedPod& pod : object->status.checkpoints) world.kept.push_back(view.GetCheckpoint(ns, pod.checkpoint));
  if (world.target) {
    for (const PodPtr& pod : view.PodsIn(ns)) AddMember(&world, pod, Duration(0));
    world.of_owner = view.CheckpointsOfOwner(world.target->meta.uid);
  }
  auto busy = [&](const CheckpointPtr& c) {
    if (PodPtr pod = GetPodWithUid(view, c->meta.ns, c->spec.pod_name, c->spec.pod_uid)) ++world.busy[pod->node_name];
  };
  for (const CheckpointPtr& c : view.SuspendsUnderWay()) busy(c);
  for (const CheckpointPtr& c : view.DrainsUnderWay()) {
    if (UnderWay(*c)) busy(c);
  }
  if (object->spec.schedule.any()) world.schedule = ScheduleOf(*object, context_.clock.Wall());
  world.store_down = settings_.store_down();
  world.max_per_node = settings_.max_per_node;
  world.prices = settings_.prices;
  world.bare_pods = settings_.seal != nullptr;
  world.object = std::move(object);
  return world;
}

void Reconciler::AddMember(World* world, const PodPtr& pod, Duration live) const {
  if (Ended(*pod) && !pod->meta.terminating()) return;  // what is left of one that was evicted or crashed may stay for long
  const Lineage lineage = Trace(context_.view, *pod, pod->meta.ns, live);
  if (lineage.owner.uid != world->target->meta.uid) return;
  world->protection = ProtectionOf(context_.view, *pod, pod->meta.ns, lineage);
  world->members.push_back({pod, lineage.owner, context_.view.GetNode(pod->node_name), context_.view.CheckpointsOfPod(pod->meta.uid)});
}

Result<World> Reconciler::LookLive(World world, std::stop_token stop) const {
  const api::SuspendedWorkload& object = *world.object;
  const std::string& ns = object.meta.ns;
  HF_ASSIGN_OR_RETURN(api::SuspendedWorkload now, context_.client.Get<api::SuspendedWorkload>(ns, object.meta.name, Calls(stop)));
  if (now.meta.uid != object.meta.uid || now.meta.resource_version != object.meta.resource_version)
    return Status(Code::kConflict, "SuspendedWorkload " + object.meta.Key() + " has changed");
  HF_ASSIGN_OR_RETURN(world.target, ReadTarget(context_.client, object, stop));
  world.members.clear();
  if (world.target) {
    const bool begins = IsPod(object) && object.status.phase == api::SuspendPhase::kSuspending && !object.status.durable;
    Json target;
    auto read = [&](const Json& item) -> std::optional<PodPtr> {
      if (begins && GetString(item, {"metadata", "uid"}) == world.target->meta.uid) target = item;
      return std::make_shared<const kube::Pod>(kube::Pod::FromJson(item));
    };
    const kube::ListSpec list{.resource = kube::Pod::kResource, .scope = {.ns = ns}, .timeout = kAnswer};
    HF_ASSIGN_OR_RETURN(const std::vector<PodPtr> pods, kube::Gather<PodPtr>(context_.client, list, read, stop));
    for (const PodPtr& pod : pods) AddMember(&world, pod, kOwnerRead);
    if (!target.is_null()) world.sealed = Sealed(world, target, stop);
  }
  for (size_t i = 0; i < world.kept.size(); ++i) {
    const std::string name = object.status.checkpoints[i].checkpoint;
    auto read = context_.client.Get<api::Checkpoint>(ns, name, Calls(stop));
    if (!read.ok() && read.status().code() != Code::kNotFound) return read.status().With("Checkpoint " + ns + "/" + name);
    world.kept[i] = read.ok() ? std::make_shared<const api::Checkpoint>(std::move(*read)) : nullptr;
  }
  return world;
}

Status Reconciler::Create(const World& world, const Step& step, std::stop_token stop) {
  const api::Trigger trigger = api::IdledMark(world.object->meta) ? api::Trigger::kIdle : api::Trigger::kSuspend;
  for (const auto& [pod, name] : step.names) {
    const Lineage lineage = Trace(context_.view, *pod, pod->meta.ns);
    auto created = context_.client.Create(api::Checkpoint::kResource, pod->meta.ns,
                                          NewCheckpoint(*pod, name, trigger, WantedContainers(*pod, lineage)), Calls(stop));
    HF_FAULT_POINT("controller.wrote");
    // There already: the cache is behind.
    if (created.status().code() == Code::kAlreadyExists) continue;
    if (!created.ok()) return created.status().With("checkpoint of pod " + pod->meta.Key() + ", to suspend " + world.object->meta.Key());
    context_.observe(*created);
  }
  return Status::Ok();
}

Status Reconciler::Discard(const Step& step, std::stop_token stop) {
  for (const CheckpointPtr& c : step.checkpoints) {
    kube::DeleteOptions del;
    // Changed meanwhile (kConflict), it is looked at again: somebody may have claimed it.
    del.preconditions.uid = c->meta.uid;
    del.preconditions.resource_version = c->meta.resource_version;
    Status deleted = context_.client.Delete(api::Checkpoint::kResource, c->meta.ns, c->meta.name, del, Calls(stop));
    HF_FAULT_POINT("controller.wrote");
    if (!deleted.ok() && deleted.code() != Code::kNotFound) return deleted;
    LogInfo("checkpoint given up", {{"checkpoint", c->meta.Key()}, {"why", step.why}});
  }
  return Status::Ok();
}

Status Reconciler::PatchTarget(const World& world, const Json& patch, std::stop_token stop) {
  const kube::ObjectMeta& target = world.target->meta;
  auto written = context_.client.Patch(*ResourceOf(world.object->spec.target_kind), target.ns, target.name, kube::PatchType::kMerge,
                                       Locked(patch, target), Calls(stop));
  HF_FAULT_POINT("controller.wrote");
  return written.status().With(world.object->spec.target_kind + " " + target.Key());
}

Result<std::string> Reconciler::Sealed(const World& world, const Json& pod, std::stop_token stop) const {
  const std::string manifest = DumpJson(ManifestOf(pod));
  if (manifest.size() > kMaxManifestBytes) {
    return Status(Code::kInvalidArgument, "its manifest has " + std::to_string(manifest.size()) + " bytes, and at most " +
                                              std::to_string(kMaxManifestBytes) + " can be kept");
  }
  if (!settings_.seal) return Status(Code::kFailedPrecondition, "the operator does not allow it any more");
  return settings_.seal(manifest, SealedFor(*world.object), std::move(stop));
}

// The very pod that was stored, as it was seen then.
Status Reconciler::EndPod(const kube::Pod& pod, std::stop_token stop) {
  kube::DeleteOptions del;
  del.preconditions = {pod.meta.uid, pod.meta.resource_version};
  const Status ended = context_.client.Delete(kube::Pod::kResource, pod.meta.ns, pod.meta.name, del, Calls(stop));
  HF_FAULT_POINT("controller.wrote");
  return ended.With("pod " + pod.meta.Key());
}

Status Reconciler::MakePod(const World& world, const std::string& checkpoint, std::stop_token stop) {
  const api::SuspendedWorkload& object = *world.object;
  const std::string what = "pod " + object.meta.ns + "/" + object.spec.target_name.str();
  const std::string by_hand =
      what + " cannot be made again: create it yourself" +
      (checkpoint.empty() ? "" : ", with the annotation " + std::string(api::kFromCheckpoint) + ": " + checkpoint + " to go on from there");
  if (!settings_.open) return Status(Code::kFailedPrecondition, by_hand + ", since the operator does not allow it any more");
  auto text = settings_.open(object.status.sealed_pod.str(), SealedFor(object), stop);
  if (!text.ok()) return text.status().With(by_hand);
  HF_ASSIGN_OR_RETURN(Json manifest, ParseJson(*text));
  auto made =
      context_.client.Create(kube::Pod::kResource, object.meta.ns, ToMake(std::move(manifest), object.meta.name, checkpoint), Calls(stop));
  HF_FAULT_POINT("controller.wrote");
  if (made.status().code() == Code::kAlreadyExists) return Status(Code::kConflict, what + " is there");  // looked at again
  return made.status().With(what);
}

Status Reconciler::Act(const World& world, const Step& step, std::stop_token stop) {
  const kube::ObjectMeta& meta = world.object->meta;
  switch (step.action) {
    case Action::kNothing:
      return Status::Ok();
    case Action::kAddFinalizer:
      return kube::AddFinalizer(context_.client, api::SuspendedWorkload::kResource, meta, api::SuspendedWorkload::kFinalizer, Calls(stop))
          .status();
    case Action::kDropFinalizer:
      return kube::RemoveFinalizer(context_.client, api::SuspendedWorkload::kResource, meta, api::SuspendedWorkload::kFinalizer,
                                   Calls(stop))
          .status();
    case Action::kPatchObject: {
      auto written = context_.client.Patch(api::SuspendedWorkload::kResource, meta.ns, meta.name, kube::PatchType::kMerge,
                                           Locked(step.patch, meta), Calls(stop));
      HF_FAULT_POINT("controller.wrote");
      if (!written.ok()) return written.status().With("SuspendedWorkload " + meta.Key());
      LogInfo("suspendedworkload", {{"object", meta.Key()}, {"why", step.why}});
      return Status::Ok();
    }
    case Action::kPatchStatus: {
      kube::CallOptions options = Calls(stop);
      options.subresource = "status";
      auto written = context_.client.Patch(api::SuspendedWorkload::kResource, meta.ns, meta.name, kube::PatchType::kMerge,
                                           Locked(step.patch, meta), options);
      HF_FAULT_POINT("controller.wrote");
      if (!written.ok()) return written.status().With("status of SuspendedWorkload " + meta.Key());
      LogInfo("suspendedworkload", {{"object", meta.Key()}, {"phase", GetString(step.patch, {"status", "phase"})}, {"why", step.why}});
      return Status::Ok();
    }
    case Action::kCheckpoint:
      return Create(world, step, stop);
    case Action::kDiscard:
      return Discard(step, stop);
    case Action::kPatchPod: {
      Json patch = step.patch;
      patch["metadata"]["uid"] = step.pod->meta.uid;
      auto written =
          context_.client.Patch(kube::Pod::kResource, step.pod->meta.ns, step.pod->meta.name, kube::PatchType::kMerge, patch, Calls(stop));
      HF_FAULT_POINT("controller.wrote");
      return written.status().With("pod " + step.pod->meta.Key());
    }
    case Action::kEndPod: {
      Status ended = EndPod(*step.pod, stop);
      if (ended.ok()) LogInfo("workload", {{"object", meta.Key()}, {"pod", step.pod->meta.name}, {"why", step.why}});
      return ended;
    }
    case Action::kMakePod: {
      Status made = MakePod(world, step.checkpoint, stop);
      if (made.ok()) LogInfo("workload", {{"object", meta.Key()}, {"from", step.checkpoint}, {"why", step.why}});
      return made;
    }
    case Action::kPatchTarget: {
      Status patched = PatchTarget(world, step.patch, stop);
      if (patched.ok()) LogInfo("workload", {{"object", meta.Key()}, {"why", step.why}});
      return patched;
    }
  }
  return Status::Ok();
}

Result<kube::ReconcileResult> Reconciler::Reconcile(const std::string& key, std::stop_token stop) {
  const kube::ObjectKey name = kube::ObjectKey::Parse(key);
  SuspendedPtr object = context_.view.GetSuspended(name.ns, name.name);
  if (!object) return kube::ReconcileResult{};
  HF_ASSIGN_OR_RETURN(World world, Look(std::move(object), stop));
  Step step = Next(world, context_.clock.Wall());
  if (step.live) {
    auto live = LookLive(std::move(world), stop);
    if (live.status().code() == Code::kConflict || live.status().code() == Code::kNotFound) return kube::ReconcileResult{kAfterConflict};
    if (!live.ok()) return live.status();
    world = std::move(*live);
    step = Next(world, context_.clock.Wall());
  }
  const Status acted = Act(world, step, stop);
  // Somebody else wrote: what they wrote is looked at.
  if (acted.code() == Code::kConflict) return kube::ReconcileResult{kAfterConflict};
  if (acted.code() == Code::kNotFound) return kube::ReconcileResult{kAfterConflict};
  const auto about = kube::ObjectReference::To(api::SuspendedWorkload::kResource, world.object->meta);
  if (!acted.ok()) {
    context_.events.Warning(about, "CannotAct", "Holdfast", acted.message());
    return acted;
  }
  if (step.notice) {
    if (step.notice->warning) {
      context_.events.Warning(about, step.notice->reason, "Holdfast", step.notice->note);
    } else {
      context_.events.Normal(about, step.notice->reason, "Holdfast", step.notice->note);
    }
  }
  return kube::ReconcileResult{step.again};
}

}  // namespace holdfast::reconcilers::suspendedworkload
