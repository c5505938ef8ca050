#include "reconcilers/checkpoint/reconciler.h"

#include <algorithm>

#include "base/fault_point.h"
#include "base/log.h"
#include "kube/finalizer.h"

namespace holdfast::reconcilers::checkpoint {
namespace {

constexpr Duration kOwnerRead = std::chrono::seconds(1);

kube::CallOptions Calls(std::stop_token stop) {
  kube::CallOptions options;
  options.timeout = std::chrono::seconds(10);
  options.stop = stop;
  return options;
}

}  // namespace

// The newest Ready one of an owner that still exists.
bool Reconciler::LastGood(const api::Checkpoint& c) const {
  const api::Owner& owner = c.status.owner;
  if (c.status.phase != api::Phase::kReady || owner.uid.empty()) return false;
  // A live pod's own newest one: other replicas' are no state of it.
  if (GetPodWithUid(context_.view, c.meta.ns, c.spec.pod_name, c.spec.pod_uid)) {
    const auto own = context_.view.CheckpointsOfPod(c.spec.pod_uid);
    return std::none_of(own.begin(), own.end(), [&](const CheckpointPtr& other) {
      return other->meta.uid != c.meta.uid && other->status.phase == api::Phase::kReady && !other->meta.terminating() &&
             CompletedAt(*other) > CompletedAt(c);
    });
  }
  bool lives = false;
  if (owner.kind == "Pod") {
    lives = GetPodWithUid(context_.view, c.meta.ns, owner.name, owner.uid) != nullptr;
  } else {
    WorkloadPtr workload = context_.view.GetWorkload({"", owner.kind, owner.name, owner.uid, true}, c.meta.ns, Duration(0));
    lives = workload && workload->meta.uid == owner.uid;
  }
  if (!lives) return false;
  for (const CheckpointPtr& other : context_.view.CheckpointsOfOwner(owner.uid)) {
    const bool newer = other->meta.uid != c.meta.uid && other->status.phase == api::Phase::kReady &&
                       other->status.owner.ordinal == owner.ordinal && !other->meta.terminating() && CompletedAt(*other) > CompletedAt(c);
    if (newer) return false;
  }
  return true;
}

Result<World> Reconciler::Look(const CheckpointPtr& c, std::stop_token stop) {
  World world;
  world.checkpoint = c;
  world.term = context_.term;
  const std::string& ns = c->meta.ns;
  world.pod = context_.view.GetPod(ns, c->spec.pod_name);
  // A Checkpoint may be seen before its pod, so absence and another uid are believed only when read live.
  const bool doubtful = !world.pod || (!c->spec.pod_uid.empty() && world.pod->meta.uid != c->spec.pod_uid);
  if (doubtful && c->status.phase == api::Phase::kPending && !c->meta.terminating()) {
    HF_ASSIGN_OR_RETURN(world.pod, ReadPod(context_, ns, c->spec.pod_name, stop));
  }
  if (world.pod) {
    world.node = context_.view.GetNode(world.pod->node_name);
    world.lineage = Trace(context_.view, *world.pod, ns, kOwnerRead);
    for (const CheckpointPtr& other : context_.view.CheckpointsOfPod(world.pod->meta.uid)) {
      if (other->meta.uid != c->meta.uid && (UnderWay(*other) || Unclaimed(*other))) world.other = other;
    }
  }
  if (!world.node && !c->status.node_name.empty()) world.node = context_.view.GetNode(c->status.node_name);
  if (c->status.claim) world.claimant = GetPodWithUid(context_.view, ns, c->status.claim->pod_name, c->status.claim->pod_uid);
  if (c->spec.ttl) world.last_good = LastGood(*c);
  return world;
}

Status Reconciler::Delete(const api::Checkpoint& c, const std::string& why, std::stop_token stop) {
  LogInfo("deleting checkpoint", {{"checkpoint", c.meta.Key()}, {"why", why}});
  kube::DeleteOptions del;
  // It goes because of what we saw: changed meanwhile (kConflict), it is looked at again.
  del.preconditions.uid = c.meta.uid;
  del.preconditions.resource_version = c.meta.resource_version;
  Status status = context_.client.Delete(api::Checkpoint::kResource, c.meta.ns, c.meta.name, del, Calls(stop));
  HF_FAULT_POINT("controller.wrote");
  return status.code() == Code::kNotFound ? Status::Ok() : status;
}

Status Reconciler::RemoveContent(const api::Checkpoint& c, std::stop_token stop) {
  // The session's id is the Checkpoint's uid: content that was committed without our hearing of it goes too.
  if (c.status.phase != api::Phase::kPending) {
    const std::string id = c.status.manifest_id.empty() ? c.meta.uid : c.status.manifest_id.str();
    Status removed = store_.Delete(id, context_.term, stop);
    if (!removed.ok()) return removed.With("cannot remove what the store holds of Checkpoint " + c.meta.Key() + ", which stays until then");
  }
  return kube::RemoveFinalizer(context_.client, api::Checkpoint::kResource, c.meta, kContentFinalizer, Calls(stop)).status();
}

Status Reconciler::Act(const World& world, const Step& step, std::stop_token stop) {
  const api::Checkpoint& c = *world.checkpoint;
  switch (step.action) {
    case Action::kNothing:
    case Action::kAskAdmission:
      return Status::Ok();
    case Action::kPrepare: {
      auto written = context_.client.Patch(api::Checkpoint::kResource, c.meta.ns, c.meta.name, kube::PatchType::kMerge,
                                           Locked(step.patch, c.meta), Calls(stop));
      if (!written.ok()) return written.status().With("Checkpoint " + c.meta.Key());
      HF_FAULT_POINT("controller.wrote");
      context_.observe(*written);
      return Status::Ok();
    }
    case Action::kPatchStatus: {
      auto written = PatchStatus(context_, c, step.patch, stop);
      if (!written.ok()) {
        gate_.GiveBack(c);
        return written.status();
      }
      if ((*written)->status.phase == api::Phase::kAssigned) HF_FAULT_POINT("controller.assigned");
      LogInfo("checkpoint", {{"checkpoint", c.meta.Key()}, {"phase", api::PhaseName((*written)->status.phase)}, {"why", step.why}});
      return Status::Ok();
    }
    case Action::kReclaim: {
      api::Claim claim{c.spec.pod_name, c.spec.pod_uid, FormatTime(context_.clock.Wall())};
      return WriteClaim(context_, c, claim, stop).status();
    }
    case Action::kDelete:
      return Delete(c, step.why, stop);
    case Action::kRemoveContent:
      return RemoveContent(c, stop);
  }
  return Status::Ok();
}

// Once a checkpoint has led to a restore, or an interval has brought another one, older ones of the same owner are worth less.
Status Reconciler::Retain(const World& world, std::stop_token stop) {
  const api::Checkpoint& c = *world.checkpoint;
  const bool drain = c.spec.trigger == api::Trigger::kDrain, interval = c.spec.trigger == api::Trigger::kInterval;
  if ((!drain && !interval) || c.status.owner.uid.empty() || c.meta.terminating()) return Status::Ok();
  const bool restored = OutcomeOfClaim(c) != nullptr && world.claimant && world.claimant->phase == "Running";
  if (!restored && c.status.phase != api::Phase::kFailed && !(interval && c.status.phase == api::Phase::kReady)) return Status::Ok();
  int64_t keep = api::RestorePolicy::BuiltIn().spec.retention.keep_last;
  const bool own = world.pod && world.pod->meta.uid == c.spec.pod_uid;
  if (const PodPtr& pod = world.claimant ? world.claimant : own ? world.pod : nullptr) {
    const Lineage lineage = Trace(context_.view, *pod, c.meta.ns);
    keep = ProtectionOf(context_.view, *pod, c.meta.ns, lineage).policy->spec.retention.keep_last;
  }
  std::set<std::string> alive;
  for (const PodPtr& pod : context_.view.PodsIn(c.meta.ns)) alive.insert(pod->meta.uid);
  auto lives = [&](const std::string& uid) { return alive.contains(uid); };
  for (const CheckpointPtr& old : Superseded(context_.view.CheckpointsOfOwner(c.status.owner.uid), keep, lives)) {
    HF_RETURN_IF_ERROR(Delete(*old, "newer ones of its owner are kept (retention.keepLast " + std::to_string(keep) + ")", stop));
  }
  return Status::Ok();
}

Result<kube::ReconcileResult> Reconciler::Reconcile(const std::string& key, std::stop_token stop) {
  const kube::ObjectKey name = kube::ObjectKey::Parse(key);
  CheckpointPtr c = context_.view.GetCheckpoint(name.ns, name.name);
  if (!c) return kube::ReconcileResult{};
  HF_ASSIGN_OR_RETURN(World world, Look(c, stop));
  Step step = Next(world, context_.clock.Wall());
  if (step.action == Action::kAskAdmission) {
    world.admission = gate_.Ask(c, world.pod, stop);
    step = Next(world, context_.clock.Wall());
  }
  Status acted = Act(world, step, stop);
  // Somebody else wrote: the event of that brings us back.
  if (acted.code() == Code::kConflict) return kube::ReconcileResult{std::chrono::milliseconds(200)};
  if (acted.code() == Code::kNotFound) return kube::ReconcileResult{};
  if (!acted.ok()) {
    if (step.action == Action::kRemoveContent) {
      context_.events.Warning(kube::ObjectReference::To(api::Checkpoint::kResource, c->meta), "StoreUnavailable", "Holdfast",
                              acted.message());
    }
    return acted;
  }
  if (step.notice) Announce(context_, *step.notice, world.pod.get(), c.get());
  HF_RETURN_IF_ERROR(Retain(world, stop));
  return kube::ReconcileResult{step.again};
}

}  // namespace holdfast::reconcilers::checkpoint
