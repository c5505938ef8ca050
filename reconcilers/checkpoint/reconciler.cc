#include "reconcilers/checkpoint/reconciler.h"

#include <algorithm>
#include <set>

#include "base/fault_point.h"
#include "base/log.h"
#include "kube/finalizer.h"
#include "kube/list_stream.h"
#include "reconcilers/checkpoint/damage.h"
#include "reconcilers/restorepolicy/survey.h"

namespace holdfast::reconcilers::checkpoint {
namespace {

constexpr Duration kOwnerRead = std::chrono::seconds(1);
constexpr Duration kAskForTheLate = std::chrono::seconds(2);

// A final one is never refused for a quota: its pod ends, and its state is there or lost.
std::string OverQuota(const View& view, const api::Checkpoint& c, int64_t otherwise) {
  if (c.spec.final) return "";
  const int64_t quota = restorepolicy::QuotaOf(view, c.meta.ns, otherwise), stored = restorepolicy::StoredIn(view, c.meta.ns);
  if (quota == 0 || stored < quota) return "";
  return "the checkpoints of namespace " + c.meta.ns + " take " + FormatBytes(stored) + " of its quota " + FormatBytes(quota) +
         ": delete some, or raise " + api::kQuota + " on the Namespace";
}

bool ReliedOn(const View& view, const api::Checkpoint& c) {
  for (const SuspendedPtr& suspended : view.SuspendedIn(c.meta.ns)) {
    if (suspended->status.phase != api::SuspendPhase::kSuspending || !suspended->status.durable) continue;
    for (const api::SuspendedPod& pod : suspended->status.checkpoints) {
      if (pod.checkpoint == c.meta.name) return true;
    }
  }
  return false;
}

// Of several that wait to open a cut with this pod, the oldest comes first.
CheckpointPtr InHand(const View& view, const std::string& pod_uid, const api::Checkpoint& c) {
  for (const CheckpointPtr& other : view.CheckpointsOfPod(pod_uid)) {
    if (other->meta.uid == c.meta.uid || (!c.spec.cut.none() && other->spec.cut.id == c.spec.cut.id)) continue;
    const bool waits = other->status.phase == api::Phase::kPending && other->spec.cut.none() && !other->spec.final;
    const bool later = std::pair(CreatedAt(*other), other->meta.name) > std::pair(CreatedAt(c), c.meta.name);
    const bool behind_us = waits && (later || !c.spec.cut.none());
    if ((!other->done() && !behind_us) || Unclaimed(*other)) return other;
  }
  return nullptr;
}

Json NewMember(const api::Checkpoint& opener, const api::CutMember& who, const std::vector<std::string>& containers) {
  Json spec = {{"podRef", {{"name", who.pod_name}, {"uid", who.pod_uid}}},
               {"trigger", api::TriggerName(opener.spec.trigger)},
               {"deadline", FormatDuration(opener.spec.deadline)},
               {"pinned", opener.spec.pinned},
               {"cut", api::ToJson(opener.spec.cut)}};
  if (!containers.empty()) spec["containers"] = containers;
  if (opener.spec.ttl) spec["ttl"] = FormatDuration(*opener.spec.ttl);
  return {{"apiVersion", api::Checkpoint::kResource.ApiVersion()},
          {"kind", "Checkpoint"},
          {"metadata",
           {{"name", who.checkpoint},
            {"namespace", opener.meta.ns},
            {"finalizers", {kContentFinalizer}},
            {"labels", {{"app.kubernetes.io/managed-by", "holdfast"}}}}},
          {"spec", spec}};
}

}  // namespace

// Only of checkpoints that may be in a cut, so that the others cost nothing.
Status Reconciler::LookAtGroup(World* world, std::stop_token stop) {
  const api::Checkpoint& c = *world->checkpoint;
  if (c.spec.final || c.meta.terminating() || c.status.phase == api::Phase::kFailed) return Status::Ok();
  const std::string& ns = c.meta.ns;
  if (world->pod) world->group = group::GroupOf(*world->pod);
  if (c.spec.cut.none() && !world->group.empty() && c.status.phase == api::Phase::kPending) {
    for (const PodPtr& pod : group::MembersOf(context_.view, ns, world->group)) {
      world->mates.push_back({{pod->meta.name, pod->meta.uid, ""}, nullptr, false, pod, InHand(context_.view, pod->meta.uid, c)});
    }
    world->leaving = group::LeavingOf(context_.view, ns, world->group);
    world->mates_before = group::LastCutOf(context_.view, *world->pod).members.size();
  }
  for (const api::CutMember& who : c.spec.cut.members) {
    group::Member m{who, context_.view.GetCheckpoint(ns, who.checkpoint), false, nullptr, nullptr};
    if (m.checkpoint && m.checkpoint->spec.cut.id != c.spec.cut.id) m.checkpoint = nullptr;
    if (!m.checkpoint) {
      auto live = context_.client.Get<api::Checkpoint>(ns, who.checkpoint, Calls(stop));
      if (!live.ok() && live.status().code() != Code::kNotFound) return live.status();
      m.gone = !live.ok() || live->spec.cut.id != c.spec.cut.id;
      if (!m.gone) m.checkpoint = std::make_shared<const api::Checkpoint>(std::move(*live));
    }
    m.pod = GetPodWithUid(context_.view, ns, who.pod_name.str(), who.pod_uid.str());
    const bool matters = m.checkpoint && !m.checkpoint->done() && m.checkpoint->status.all_frozen_at.empty();
    if (!m.pod && matters) {
      HF_ASSIGN_OR_RETURN(m.pod, ReadPod(context_, ns, who.pod_name.str(), stop));
      if (m.pod && m.pod->meta.uid != who.pod_uid.str()) m.pod = nullptr;
    }
    m.other = InHand(context_.view, who.pod_uid.str(), c);
    world->cut.push_back(std::move(m));
  }
  return AskForTheLate(world, stop);
}

// A cut that lacks a member is none, so it is opened on what the API server has, not on a cache that may be behind.
Status Reconciler::CheckMembers(const World& world, std::stop_token stop) {
  auto uid_of_member = [&](const Json& item) -> std::optional<std::string> {
    const kube::Pod pod = kube::Pod::FromJson(item);
    if (group::GroupOf(pod) != world.group || group::Leaves(pod)) return std::nullopt;
    return pod.meta.uid;
  };
  const kube::ListSpec pods{.resource = kube::Pod::kResource, .scope = {.ns = world.checkpoint->meta.ns}, .timeout = kAnswer};
  HF_ASSIGN_OR_RETURN(const std::vector<std::string> members,
                      kube::Gather<std::string>(context_.client, pods, uid_of_member, std::move(stop)));
  const std::set<std::string> live(members.begin(), members.end());
  std::set<std::string> seen;
  for (const group::Member& mate : world.mates) seen.insert(mate.who.pod_uid.str());
  return live == seen ? Status::Ok() : Status(Code::kConflict, "the pods of group " + world.group + " are not as they were seen");
}

// A member is frozen, or dumped, and another one is not, as far as the cache says: an event that was lost must not cost the cut.
Status Reconciler::AskForTheLate(World* world, std::stop_token stop) {
  const WallTime now = context_.clock.Wall();
  auto waits = [&](const kube::SharedString& since, const kube::SharedString& word) {
    const auto at = ParseTime(since);
    return at && word.empty() && now - *at >= kAskForTheLate;
  };
  bool frozen = false, dumped = false;
  for (const group::Member& m : world->cut) {
    if (!m.checkpoint || m.checkpoint->done()) continue;
    const auto& status = m.checkpoint->status;
    frozen = frozen || waits(status.frozen_at, status.all_frozen_at);
    dumped = dumped || waits(status.dumped_at, status.all_dumped_at);
  }
  for (group::Member& m : world->cut) {
    if (!m.checkpoint || m.checkpoint->done()) continue;
    const bool late = (frozen && m.checkpoint->status.frozen_at.empty()) || (dumped && m.checkpoint->status.dumped_at.empty());
    if (!late) continue;
    auto live = context_.client.Get(api::Checkpoint::kResource, world->checkpoint->meta.ns, m.who.checkpoint.str(), Calls(stop));
    if (!live.ok() && live.status().code() != Code::kNotFound) return live.status();
    if (!live.ok() || GetString(*live, {"metadata", "uid"}) != m.checkpoint->meta.uid) continue;
    context_.observe(*live);
    m.checkpoint = std::make_shared<const api::Checkpoint>(api::Checkpoint::FromJson(*live));
    if (m.checkpoint->meta.uid == world->checkpoint->meta.uid) world->checkpoint = m.checkpoint;
  }
  return Status::Ok();
}

Status Reconciler::OpenCut(const World& world, std::stop_token stop) {
  const api::Checkpoint& c = *world.checkpoint;
  for (const group::Member& m : world.cut) {
    if (m.checkpoint || !m.pod) continue;
    const std::vector<std::string> containers = WantedContainers(*m.pod, Trace(context_.view, *m.pod, c.meta.ns));
    auto created = context_.client.Create(api::Checkpoint::kResource, c.meta.ns, NewMember(c, m.who, containers), Calls(stop));
    if (created.status().code() == Code::kAlreadyExists) continue;  // by us, or by an earlier leader
    if (!created.ok()) return created.status().With("Checkpoint " + m.who.checkpoint + " of the cut of " + c.meta.Key());
    HF_FAULT_POINT("controller.wrote");
    context_.observe(*created);
  }
  LogInfo("cut opened", {{"checkpoint", c.meta.Key()}, {"group", c.spec.cut.group}, {"members", std::to_string(world.cut.size())}});
  return Status::Ok();
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
    const Protection protection = ProtectionOf(context_.view, *world.pod, ns, world.lineage);
    if (protection.on) world.policy = protection.policy->meta.name;
    for (const CheckpointPtr& other : context_.view.CheckpointsOfPod(world.pod->meta.uid)) {
      if (other->meta.uid != c->meta.uid && (UnderWay(*other) || Unclaimed(*other))) world.other = other;
    }
  }
  if (!world.node && !c->status.node_name.empty()) world.node = context_.view.GetNode(c->status.node_name);
  if (c->status.claim) world.claimant = GetPodWithUid(context_.view, ns, c->status.claim->pod_name, c->status.claim->pod_uid);
  if (c->meta.terminating()) world.relied_on = ReliedOn(context_.view, *c);
  if (c->status.phase == api::Phase::kPending) world.over_quota = OverQuota(context_.view, *c, namespace_quota_bytes_);
  HF_RETURN_IF_ERROR(LookAtGroup(&world, stop));
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
    // Without a manifest nobody has said where that would be.
    const std::string store = c.status.manifest_id.empty() ? "" : c.store();
    Status removed = store_.Delete(store, id, context_.term, stop);
    if (removed.code() == Code::kNotFound) removed = Status(Code::kUnavailable, StoreMissingText(store));
    if (!removed.ok()) return removed.With("cannot remove what the store holds of Checkpoint " + c.meta.Key() + ", which stays until then");
  }
  return kube::RemoveFinalizer(context_.client, api::Checkpoint::kResource, c.meta, kContentFinalizer, Calls(stop)).status();
}

Status Reconciler::Act(const World& world, const Step& step, std::stop_token stop) {
  const api::Checkpoint& c = *world.checkpoint;
  switch (step.action) {
    case Action::kNothing:
    case Action::kAskAdmission:
    case Action::kAskStore:
      return Status::Ok();
    case Action::kPrepare: {
      if (!GetObject(step.patch, {"spec", "cut"}).empty()) HF_RETURN_IF_ERROR(CheckMembers(world, stop));
      auto written = context_.client.Patch(api::Checkpoint::kResource, c.meta.ns, c.meta.name, kube::PatchType::kMerge,
                                           Locked(step.patch, c.meta), Calls(stop));
      if (!written.ok()) return written.status().With("Checkpoint " + c.meta.Key());
      HF_FAULT_POINT("controller.wrote");
      context_.observe(*written);
      return Status::Ok();
    }
    case Action::kOpenCut:
      return OpenCut(world, stop);
    case Action::kPatchStatus: {
      auto written = PatchStatus(context_, c, step.patch, stop);
      if (!written.ok()) {
        gate_.GiveBack(c);
        return written.status();
      }
      if ((*written)->status.phase == api::Phase::kAssigned) HF_FAULT_POINT("controller.assigned");
      if (c.status.all_frozen_at.empty() && !(*written)->status.all_frozen_at.empty()) HF_FAULT_POINT("controller.barrier");
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

Result<kube::ReconcileResult> Reconciler::Reconcile(const std::string& key, std::stop_token stop) {
  const kube::ObjectKey name = kube::ObjectKey::Parse(key);
  CheckpointPtr c = context_.view.GetCheckpoint(name.ns, name.name);
  if (!c) return kube::ReconcileResult{};
  HF_ASSIGN_OR_RETURN(World world, Look(c, stop));
  Step step = Next(world, context_.clock.Wall());
  if (step.action == Action::kAskStore) {
    world.content = store_.Read(c->meta.Annotation(api::kManifest), stop);
    step = Next(world, context_.clock.Wall());
  }
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
  return kube::ReconcileResult{step.again};
}

}  // namespace holdfast::reconcilers::checkpoint
