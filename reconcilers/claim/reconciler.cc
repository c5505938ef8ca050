#include "reconcilers/claim/reconciler.h"

#include <algorithm>

#include "base/fault_point.h"
#include "base/log.h"
#include "kube/list_stream.h"
#include "reconcilers/claim/cold_start.h"
#include "reconcilers/claim/live.h"
#include "reconcilers/claim/placement.h"
#include "reconcilers/group/cut.h"
#include "reconcilers/support.h"

namespace holdfast::reconcilers::claim {
namespace {

constexpr size_t kMaxTold = 4096;
constexpr size_t kMaxLiveSiblings = 100;  // of more of them the cache is believed
constexpr int kMaxRounds = 4;             // claim, release, and a lost race or two
constexpr Duration kAfterConflict = std::chrono::milliseconds(200);

Candidate Consider(const View& view, const CheckpointPtr& c, const kube::Pod* pod = nullptr) {
  Candidate candidate{c, GetPodWithUid(view, c->meta.ns, c->spec.pod_name, c->spec.pod_uid), nullptr, view.GetNode(c->status.node_name)};
  if (c->status.claim) candidate.claimant = GetPodWithUid(view, c->meta.ns, c->status.claim->pod_name, c->status.claim->pod_uid);
  if (pod != nullptr && c->spec.cut.none() && !c->spec.final && !group::GroupOf(*pod).empty())
    candidate.broken = "it is of no cut of group " + group::GroupOf(*pod);
  if (pod != nullptr && !c->spec.cut.none()) {
    candidate.broken = group::WholenessOf(view, *c).why;
    candidate.beyond = group::GoneBeyond(view, *c, *pod);
    candidate.ending = group::EndingBeside(view, *c, *pod);
  }
  return candidate;
}

void Replace(World* world, const CheckpointPtr& now) {
  for (Candidate& candidate : world->candidates) {
    if (candidate.checkpoint->meta.uid == now->meta.uid) candidate.checkpoint = now;
  }
}

}  // namespace

// Those of its seat that run, and those of them that end. One that was seen to end has not been there for nothing when it is gone.
void Reconciler::AddSiblings(const std::vector<PodPtr>& pods, World* world) const {
  world->on_stop = context_.decide_stop != nullptr;
  if (world->on_stop) world->stopping.clear();
  world->others_run = false;
  for (const PodPtr& pod : pods) {
    if (pod->meta.uid == world->pod->meta.uid || pod->runtime_class != api::kRuntimeClass) continue;
    const bool waits = Gated(*pod) && !pod->meta.terminating();
    if (!waits && pod->phase != "Running") continue;
    if (!SameSeat(Trace(context_.view, *pod, pod->meta.ns).owner, world->lineage.owner)) continue;
    if (waits) {
      const WallTime born = ParseTime(pod->meta.creation_timestamp).value_or(WallTime::max());
      world->others_wait = world->others_wait || born < AskedToEnd(*world->pod);
    } else if (pod->meta.terminating()) {
      world->stopping.push_back(pod);
    } else {
      world->others_run = true;
    }
  }
}

World Reconciler::Look(PodPtr pod) const {
  World world;
  const std::string ns = pod->meta.ns;
  world.lineage = Trace(context_.view, *pod, ns);
  world.protection = ProtectionOf(context_.view, *pod, ns, world.lineage);
  std::vector<CheckpointPtr> known = context_.view.CheckpointsOfOwner(world.lineage.owner.uid);
  if (CheckpointPtr asked = context_.view.GetCheckpoint(ns, pod->meta.Annotation(api::kFromCheckpoint))) known.push_back(std::move(asked));
  for (CheckpointPtr& claimed : context_.view.CheckpointsClaimedBy(pod->meta.uid)) known.push_back(std::move(claimed));
  std::set<std::string> seen;
  for (const CheckpointPtr& c : known) {
    if (c->meta.ns == ns && seen.insert(c->meta.name).second) world.candidates.push_back(Consider(context_.view, c, pod.get()));
  }
  world.pod = std::move(pod);
  AddSiblings(context_.view.PodsControlledBy(world.lineage.parent_uid), &world);
  return world;
}

// A cold start cannot be taken back, so it is decided on what the API server has now, not on a cache that may be behind the webhook's.
Result<World> Reconciler::LookLive(const World& cached, std::stop_token stop) const {
  World world = cached;
  HF_ASSIGN_OR_RETURN(world.pod, ReadPod(context_, cached.pod->meta.ns, cached.pod->meta.name, stop));
  if (!world.pod || world.pod->meta.uid != cached.pod->meta.uid) {
    world.pod = nullptr;
    return world;
  }
  world.lineage = Trace(context_.view, *world.pod, world.pod->meta.ns, std::chrono::seconds(1));
  const size_t known = context_.view.PodsControlledBy(world.lineage.parent_uid).size();
  if (known <= kMaxLiveSiblings) {
    HF_ASSIGN_OR_RETURN(const std::vector<PodPtr> siblings, LiveSiblings(world, stop));
    AddSiblings(siblings, &world);
  }
  // After the pods: of one that was gone already, what it left is there.
  HF_ASSIGN_OR_RETURN(const std::vector<CheckpointPtr> checkpoints, LiveCheckpoints(context_.client, world, stop));
  world.candidates.clear();
  for (const CheckpointPtr& c : checkpoints) world.candidates.push_back(Consider(context_.view, c, world.pod.get()));
  return world;
}

// The pods of its parent that run, or end.
Result<std::vector<PodPtr>> Reconciler::LiveSiblings(const World& world, std::stop_token stop) const {
  kube::ListOptions scope{.ns = world.pod->meta.ns, .field_selector = "status.phase=Running"};
  for (const char* label : {"pod-template-hash", "batch.kubernetes.io/controller-uid", "controller-revision-hash"}) {
    const auto value = world.pod->meta.labels.find(label);
    if (value != world.pod->meta.labels.end()) scope.label_selector = std::string(label) + "=" + value->second.str();
  }
  auto of_its_parent = [&](const Json& item) -> std::optional<PodPtr> {
    auto pod = std::make_shared<const kube::Pod>(kube::Pod::FromJson(item));
    const kube::OwnerReference* owner = pod->meta.Controller();
    return owner != nullptr && owner->uid == world.lineage.parent_uid ? std::optional<PodPtr>(std::move(pod)) : std::nullopt;
  };
  return kube::Gather<PodPtr>(context_.client, {.resource = kube::Pod::kResource, .scope = scope, .timeout = kAnswer}, of_its_parent,
                              std::move(stop));
}

Result<PodPtr> Reconciler::PatchPod(const World& world, const Step& step, std::stop_token stop) {
  const kube::Pod& pod = *world.pod;
  HF_ASSIGN_OR_RETURN(Json live, context_.client.Get(kube::Pod::kResource, pod.meta.ns, pod.meta.name, Calls(stop)));
  const kube::ObjectMeta meta = kube::ObjectMeta::FromJson(live);
  if (meta.uid != pod.meta.uid) return PodPtr();
  Json gates = Json::array();
  bool gated = false;
  for (const Json& gate : GetArray(live, {"spec", "schedulingGates"})) {
    if (GetString(gate, {"name"}) == api::kClaimGate) {
      gated = true;
    } else {
      gates.push_back(gate);
    }
  }
  if (!gated) return PodPtr();
  Json patch = Locked({{"spec", {{"schedulingGates", gates}}}}, meta);
  Json annotations = Json::object();  // empty, not null: that would take the pod's own away
  Placement where;
  if (step.action == Action::kCold && step.notice) {
    const ColdStart cold{context_.clock.Wall(), step.notice->note, step.checkpoint ? step.checkpoint->meta.name : ""};
    annotations[api::kRestoreSkipped] = cold.ToAnnotation();
  } else if (step.action == Action::kRelease) {
    const api::Checkpoint* restore = step.checkpoint.get();
    annotations[api::kRestore] = restore->meta.name;
    annotations[api::kRestoreOptions] = DumpJson(world.protection.policy->spec.restore.options.ToJson());
    // A gated pod's nodeSelector may be added to, which tightens it as a node affinity would, in one flat field.
    const kube::SharedString& arch = restore->status.arch;
    const Json& selector = GetObject(live, {"spec", "nodeSelector"});
    if (!arch.empty() && !selector.contains("kubernetes.io/arch")) patch["spec"]["nodeSelector"]["kubernetes.io/arch"] = arch;
    where = PlacementFor(live, *restore, context_.view.ReadyNodes());
    if (!where.affinity.is_null()) patch["spec"]["affinity"] = where.affinity;
  }
  patch["metadata"]["annotations"] = annotations;
  auto written = context_.client.Patch(kube::Pod::kResource, pod.meta.ns, pod.meta.name, kube::PatchType::kMerge, patch, Calls(stop));
  if (!written.ok()) return written.status().With("opening the gate of pod " + pod.meta.Key());
  HF_FAULT_POINT("controller.wrote");
  if (!where.why.empty()) {
    Announce(context_,
             {true, "NoNodeForState",
              "checkpoint " + step.checkpoint->meta.name + ": " + where.why +
                  ". The pod waits for a node that has it; to start without the state, delete the Checkpoint, then the pod"},
             world.pod.get(), step.checkpoint.get());
  }
  return std::make_shared<const kube::Pod>(kube::Pod::FromJson(*written));
}

Status Reconciler::TellHowItStarts(const World& world, std::stop_token stop) {
  const kube::Pod& pod = *world.pod;
  const std::string what = "start " + pod.meta.uid;
  if (Told(what)) return Status::Ok();
  const auto cold = ColdStart::Of(pod);
  const auto older = StateIsOlder(world);
  if (!cold && !older) return Status::Ok();
  HF_RETURN_IF_ERROR(cold ? TellColdStart(context_, *cold, pod, stop) : TellOlderState(context_, *older, pod, stop));
  FirstTime(what);
  return Status::Ok();
}

Result<kube::ReconcileResult> Reconciler::OpenGate(World world, std::stop_token stop) {
  bool live = false;
  for (int round = 0; round < kMaxRounds; ++round) {
    const Step step = Next(world, context_.clock.Wall());
    switch (step.action) {
      case Action::kNothing:
        return kube::ReconcileResult{step.again};
      case Action::kWait:
        if (step.notice) Announce(context_, *step.notice, world.pod.get(), step.checkpoint.get());
        if (context_.decide_stop) {
          for (const PodPtr& pod : world.stopping) context_.decide_stop(pod->meta.Key());  // its end may have gone unheard
        }
        return kube::ReconcileResult{step.again};
      case Action::kClaim:
      case Action::kUnclaim: {
        // One checkpoint is given once, by the lock that its version is. Of a pod that has several, that alone would not keep two
        // successors from getting one each.
        std::unique_lock<std::mutex> one_at_a_time;
        if (!step.checkpoint->spec.final && step.action == Action::kClaim) {
          one_at_a_time = std::unique_lock(claiming_);
          World now = Look(world.pod);
          const Step again = Next(now, context_.clock.Wall());
          if (again.action != Action::kClaim || again.checkpoint->meta.uid != step.checkpoint->meta.uid)
            return kube::ReconcileResult{kAfterConflict};
        }
        if (step.action == Action::kClaim) {
          // Not for one that is gone, or that an earlier leader let through: pods may be behind Checkpoints in our caches.
          HF_ASSIGN_OR_RETURN(const PodPtr waits, ReadPod(context_, world.pod->meta.ns, world.pod->meta.name, stop));
          if (!waits || waits->meta.uid != world.pod->meta.uid || waits->meta.terminating() || !Gated(*waits))
            return kube::ReconcileResult{kAfterConflict};
          auto passed_over = ReportSiblings(world, stop);
          if (passed_over.status().code() == Code::kConflict) return kube::ReconcileResult{kAfterConflict};
          HF_RETURN_IF_ERROR(passed_over.status());
          if (*passed_over) return kube::ReconcileResult{kAfterConflict};
        }
        std::optional<api::Claim> claim;
        if (step.action == Action::kClaim) claim = api::Claim{world.pod->meta.name, world.pod->meta.uid, FormatTime(context_.clock.Wall())};
        auto written = WriteClaim(context_, *step.checkpoint, claim, stop);
        if (written.status().code() == Code::kConflict) return kube::ReconcileResult{kAfterConflict};
        if (!written.ok()) return written.status();
        HF_FAULT_POINT("controller.claimed");
        LogInfo(claim ? "claimed" : "claim dropped",
                {{"checkpoint", step.checkpoint->meta.Key()}, {"pod", world.pod->meta.name}, {"why", step.why}});
        Replace(&world, *written);
        break;
      }
      case Action::kCold:
        if (!live) {
          live = true;
          HF_ASSIGN_OR_RETURN(world, LookLive(world, stop));
          break;
        }
        [[fallthrough]];
      case Action::kRelease: {
        auto opened = PatchPod(world, step, stop);
        if (opened.status().code() == Code::kConflict) return kube::ReconcileResult{kAfterConflict};
        if (opened.status().code() == Code::kNotFound) return kube::ReconcileResult{};
        if (!opened.ok()) return opened.status();
        if (!*opened) return kube::ReconcileResult{};
        LogInfo("gate opened", {{"pod", world.pod->meta.Key()},
                                {"restore", step.action == Action::kRelease ? step.checkpoint->meta.name : ""},
                                {"why", step.why}});
        world.pod = *opened;
        HF_RETURN_IF_ERROR(TellHowItStarts(world, stop));
        return kube::ReconcileResult{};
      }
    }
  }
  return kube::ReconcileResult{kAfterConflict};
}

Status Reconciler::TellUnprotected(const kube::Pod& pod, std::stop_token stop) {
  const auto why = Unprotected(pod);
  const std::string what = "unprotected " + pod.meta.uid;
  if (!why || Told(what)) return Status::Ok();
  Status sent = context_.events.WarnOnce(kube::ObjectReference::To(kube::Pod::kResource, pod.meta), "unprotected-" + pod.meta.uid,
                                         "NotProtected", "Holdfast", "a drain will not bring its state along: " + *why, Calls(stop));
  if (sent.code() == Code::kCancelled) return sent;
  if (!sent.ok()) LogWarning("a pod is not protected, and no event says so", {{"pod", pod.meta.Key()}, {"error", sent.ToString()}});
  FirstTime(what);
  return Status::Ok();
}

Result<bool> Reconciler::ReportColdBeside(const World& beside, std::stop_token stop) {
  const CheckpointPtr c = ColdBeside(beside, context_.clock.Wall());
  if (!c) return false;
  const std::string text = ColdBesideText(beside, *c);
  const Json pin = Locked({{"spec", {{"pinned", true}}}}, c->meta);
  auto pinned = context_.client.Patch(api::Checkpoint::kResource, c->meta.ns, c->meta.name, kube::PatchType::kMerge, pin, Calls(stop));
  if (!pinned.ok()) return pinned.status();
  // Told before the condition says that it was.
  HF_RETURN_IF_ERROR(TellColdStart(context_, ColdStart{context_.clock.Wall(), text, c->meta.name}, *beside.pod, stop));
  std::vector<api::Condition> conditions = c->status.conditions;
  kube::SetCondition(
      conditions,
      {.type = kColdStart, .status = "True", .reason = kWebhookMissed, .message = text, .observed_generation = c->meta.generation},
      context_.clock.Wall());
  auto written = PatchStatus(context_, api::Checkpoint::FromJson(*pinned), {{"status", {{"conditions", api::ToJson(conditions)}}}}, stop);
  if (!written.ok()) return written.status();
  return true;
}

// Before a checkpoint is given: whether a pod that ends has acted in its place, and nobody has said so yet.
Result<bool> Reconciler::ReportSiblings(const World& world, std::stop_token stop) {
  for (const PodPtr& sibling : context_.view.PodsControlledBy(world.lineage.parent_uid)) {
    if (!sibling->meta.terminating() || sibling->meta.uid == world.pod->meta.uid) continue;
    HF_ASSIGN_OR_RETURN(const bool reported, ReportColdBeside(Look(sibling), stop));
    if (reported) return true;
  }
  return false;
}

bool Reconciler::Told(const std::string& what) {
  std::lock_guard lock(mutex_);
  return told_.contains(what);
}

bool Reconciler::FirstTime(const std::string& what) {
  std::lock_guard lock(mutex_);
  if (told_.size() >= kMaxTold) told_.clear();
  return told_.insert(what).second;
}

Result<kube::ReconcileResult> Reconciler::ReconcilePod(const std::string& key, std::stop_token stop) {
  const kube::ObjectKey name = kube::ObjectKey::Parse(key);
  PodPtr pod = context_.view.GetPod(name.ns, name.name);
  if (!pod) return kube::ReconcileResult{};
  World world = Look(pod);
  if (pod->meta.terminating()) {
    auto reported = ReportColdBeside(world, stop);
    if (reported.status().code() == Code::kConflict) return kube::ReconcileResult{kAfterConflict};
    HF_RETURN_IF_ERROR(reported.status());
    return kube::ReconcileResult{};
  }
  if (!world.protection.problem.empty() && FirstTime(pod->meta.uid)) {
    Announce(context_, Notice{true, "Misconfigured", "not protected: " + world.protection.problem, true, false}, pod.get(), nullptr);
  }
  if (Gated(*pod)) return OpenGate(std::move(world), stop);
  HF_RETURN_IF_ERROR(TellHowItStarts(world, stop));
  if (!world.protection.on) return kube::ReconcileResult{};
  HF_RETURN_IF_ERROR(TellUnprotected(*pod, stop));
  if (world.candidates.empty()) return kube::ReconcileResult{};
  auto reported = ReportColdBeside(world, stop);
  if (reported.status().code() == Code::kConflict) return kube::ReconcileResult{kAfterConflict};
  HF_RETURN_IF_ERROR(reported.status());
  const auto born = ParseTime(pod->meta.creation_timestamp);
  const bool young = born && context_.clock.Wall() - *born < std::chrono::seconds(30);
  return kube::ReconcileResult{young ? std::optional<Duration>(std::chrono::seconds(5)) : std::nullopt};
}

Result<kube::ReconcileResult> Reconciler::ReconcileCheckpoint(const std::string& key, std::stop_token stop) {
  const kube::ObjectKey name = kube::ObjectKey::Parse(key);
  CheckpointPtr c = context_.view.GetCheckpoint(name.ns, name.name);
  if (!c || c->meta.terminating() || !Abandoned(Consider(context_.view, c))) return kube::ReconcileResult{};
  HF_ASSIGN_OR_RETURN(PodPtr claimant, ReadPod(context_, name.ns, c->status.claim->pod_name, stop));
  if (claimant && claimant->meta.uid == c->status.claim->pod_uid && !Ended(*claimant))
    return kube::ReconcileResult{std::chrono::seconds(2)};
  auto written = WriteClaim(context_, *c, std::nullopt, stop);
  if (written.status().code() == Code::kConflict) return kube::ReconcileResult{kAfterConflict};
  if (!written.ok()) return written.status();
  LogInfo("claim dropped",
          {{"checkpoint", key}, {"pod", c->status.claim->pod_name}, {"why", "the pod vanished, or ended, before it restored anything"}});
  return kube::ReconcileResult{};
}

}  // namespace holdfast::reconcilers::claim
