#include "reconcilers/claim/step.h"

#include <algorithm>

#include "api/fit.h"
#include "api/security.h"
#include "reconcilers/stop/step.h"

namespace holdfast::reconcilers::claim {
namespace {

using api::Phase;
using std::chrono::seconds;

constexpr Duration kPoll = seconds(2);
constexpr Duration kHoldPoll = seconds(30);
constexpr Duration kSoon = std::chrono::milliseconds(300);
// Ready, but its pod still stands: the drain evicts it or takes it back within half of this.
constexpr Duration kReadyPatience = seconds(60);
constexpr Duration kFailureIsNews = std::chrono::hours(1);
// So young a successor may be seen before the deletion that it answers.
constexpr Duration kYoung = seconds(5);
// A node that answers, but whose agent does not say that the old pod has ended: its kubelet has ended it so long after its grace period.
constexpr Duration kAgentPatience = std::chrono::minutes(2);
constexpr Duration kOverdue = seconds(30);  // past the end of its grace period a pod's end is somebody's business
// All members of a group may end at once, but not in one moment; and somebody has to read what a successor waits for.
constexpr Duration kGroupPatience = std::chrono::minutes(2);
constexpr Duration kSettle = seconds(10);  // how long a pod must have existed to count as running cold

Step Do(Action action, CheckpointPtr checkpoint, std::string why) {
  Step step;
  step.action = action;
  step.checkpoint = std::move(checkpoint);
  step.why = std::move(why);
  return step;
}

Step Wait(std::string why, Duration again = kPoll) {
  Step step = Do(Action::kWait, nullptr, std::move(why));
  step.again = again;
  return step;
}

Step Cold(CheckpointPtr checkpoint, const std::string& why) {
  Step step = Do(Action::kCold, std::move(checkpoint), why);
  step.notice = Notice{true, "ColdStart", "starts without its predecessor's state: " + why, true, step.checkpoint != nullptr};
  return step;
}

// How the condition of a checkpoint that was passed over names the pod that did it.
std::string NamedIn(const kube::Pod& pod) { return " (uid " + pod.meta.uid + ")"; }

// Held by the webhook once, and let go: what it got, or why nothing, was decided then.
bool CameByItsGate(const kube::Pod& pod) {
  const auto& inits = pod.init_containers;
  return std::any_of(inits.begin(), inits.end(), [](const kube::Container& c) { return c.name == api::kWaitContainer; });
}

// Also of one that has ended; not of one that was refused by its node, or deleted before anything of it ran.
bool HasRun(const kube::Pod& pod) {
  if (pod.phase == "Running") return true;
  return pod.meta.terminating() && std::any_of(pod.container_statuses.begin(), pod.container_statuses.end(),
                                               [](const kube::ContainerStatus& c) { return !c.container_id.empty(); });
}

std::string QuarantinedText(const api::Checkpoint& c) {
  return "checkpoint " + c.meta.name + " is quarantined (see its condition " + api::kQuarantined + "): " + QuarantineText(c);
}

// Nobody's successor: one more of a workload whose pods live.
Step Fresh() { return Do(Action::kCold, nullptr, "it has no predecessor"); }

// As long as its predecessor's: they have the same owner. The API takes any number for it.
Duration GraceOf(const kube::Pod& pod) { return seconds(std::clamp<int64_t>(pod.termination_grace_seconds, 0, int64_t{365} * 86'400)); }

// Why the pod cannot take this checkpoint, by its content, containers and volumes; nothing when it can.
std::optional<std::string> Misfit(const World& w, const api::Checkpoint& c) {
  // A pod that must not start cold tries it all the same: what reads again is not damaged any more.
  const bool may_start_cold = w.protection.policy->spec.restore.options.on_failure == api::OnFailure::kColdStart;
  const api::Condition* damaged = DamageOf(c);
  if (damaged != nullptr && (may_start_cold || !c.spec.final)) return "it is damaged: " + damaged->message;
  for (const api::CheckpointContainer& kept : c.status.containers) {
    if (!kept.restorable && !kept.reason.empty()) return "its container " + kept.name + " cannot be restored: " + kept.reason;
    const auto have = w.pod->LastingContainers();
    if (!std::any_of(have.begin(), have.end(), [&](const kube::Container* own) { return own->name == kept.name; })) {
      return "it holds container " + kept.name + ", which this pod does not have";
    }
  }
  if (auto refused = api::RefusedBySecurity(c, *w.pod)) return refused;
  if (auto refused = api::RefusedByFit(c, *w.pod)) return refused;
  const api::Volumes volumes = w.protection.policy->spec.restore.volumes;
  if (c.spec.final || volumes == api::Volumes::kIgnoreDrift) return std::nullopt;
  for (const kube::Volume& volume : w.pod->volumes) {
    if (volume.type != "persistentVolumeClaim") continue;
    for (const kube::Container* container : w.pod->LastingContainers()) {
      for (const kube::VolumeMount& mount : container->mounts) {
        if (mount.name == volume.name && !mount.read_only) {
          return "its memory is older than the persistent volume " + volume.claim_name +
                 (volumes == api::Volumes::kSnapshot ? ", of which no VolumeSnapshot was taken with it" : "") +
                 " (set restore.volumes: IgnoreDrift in its RestorePolicy if that does no harm)";
        }
      }
    }
  }
  return std::nullopt;
}

// The user named a checkpoint. What does not fit is held, not started cold: starting cold is what they did not ask for.
Step Hold(const World& w, CheckpointPtr checkpoint, const std::string& name, const std::string& why) {
  const std::string text = std::string(api::kFromCheckpoint) + ": " + name.substr(0, 253) + " cannot be followed: " + why;
  const api::RestorePolicy& policy = *w.protection.policy;
  if (!policy.meta.name.empty() && policy.spec.restore.options.on_failure == api::OnFailure::kColdStart)
    return Cold(std::move(checkpoint), text);
  Step step = Wait(text, kHoldPoll);
  step.notice = Notice{true, "CannotRestore",
                       text + "; the pod waits. Name another Checkpoint, or remove the annotation and create the pod again", true, false};
  return step;
}

Step NextOwn(const World& w, WallTime now);

// A template goes on asking for what its first pod was started from: whoever comes later goes on from what was made since it was given.
bool HasGoneOn(const World& w, const api::Checkpoint& asked) {
  const WallTime given = ParseTime(asked.status.claim->at).value_or(WallTime::max());
  return std::any_of(w.candidates.begin(), w.candidates.end(), [&](const Candidate& candidate) {
    const api::Checkpoint& c = *candidate.checkpoint;
    return c.spec.final && c.spec.pod_uid != asked.spec.pod_uid && CreatedAt(c) >= given && SameSeat(c.status.owner, w.lineage.owner);
  });
}

Step NextAsked(const World& w, const std::string& name, WallTime now) {
  auto found = std::find_if(w.candidates.begin(), w.candidates.end(), [&](const Candidate& c) { return c.checkpoint->meta.name == name; });
  if (found == w.candidates.end()) return Hold(w, nullptr, name, "there is no such Checkpoint in namespace " + w.pod->meta.ns);
  const api::Checkpoint& c = *found->checkpoint;
  if (c.meta.terminating()) return Hold(w, found->checkpoint, name, "it is being deleted");
  if (c.status.phase == Phase::kFailed) {
    const api::Condition* ready = c.Ready();
    return Hold(w, found->checkpoint, name, "it failed: " + (ready != nullptr ? ready->message : "no reason given"));
  }
  if (c.status.phase != Phase::kReady) {
    if (now >= AgentsWordUntil(c)) return Hold(w, found->checkpoint, name, "it was not done by its deadline");
    return Wait("Checkpoint " + name + " is " + std::string(api::PhaseName(c.status.phase)));
  }
  if (auto why = Misfit(w, c)) return Hold(w, found->checkpoint, name, *why);
  if (!found->broken.empty()) return Hold(w, found->checkpoint, name, found->broken);
  if (c.status.claim) {
    if (HasGoneOn(w, c)) return NextOwn(w, now);
    // State that ran on must not come twice; a snapshot of a pod that was left running may be used again when its last user is gone.
    const bool used_up = !c.spec.final && !found->claimant && OutcomeOfClaim(c) != nullptr;
    if (used_up) return Do(Action::kUnclaim, found->checkpoint, "its last user is gone");
    return Hold(w, found->checkpoint, name, "pod " + c.status.claim->pod_name + " has claimed it, and one checkpoint restores one pod");
  }
  if (c.spec.final && found->pod && !found->pod->meta.terminating()) {
    return Hold(w, found->checkpoint, name, "its pod " + c.spec.pod_name + " still exists: delete or evict it first");
  }
  return Do(Action::kClaim, found->checkpoint, "asked for by " + std::string(api::kFromCheckpoint));
}

std::string SeatText(const World& w) { return w.lineage.owner.kind + " " + w.pod->meta.ns + "/" + w.lineage.owner.name; }

// Whether the pod that a checkpoint was taken of has given its state to another one already, by this checkpoint or one of the others.
// What a user started beside it (holdfast.dev/from-checkpoint) is a copy, not its successor; whoever came without its state (PassedOver)
// is.
bool HasSuccessor(const World& w, const std::string& pod_uid) {
  return std::any_of(w.candidates.begin(), w.candidates.end(), [&](const Candidate& candidate) {
    const api::Checkpoint& c = *candidate.checkpoint;
    if (c.spec.pod_uid != pod_uid) return false;
    if (PassedOver(c)) return true;
    if (!c.status.claim || Reclaimed(c)) return false;
    return !candidate.claimant || candidate.claimant->meta.Annotation(api::kFromCheckpoint).empty();
  });
}

// `pod`: its predecessor, or another member of its group; `harm`: what must not be.
Step WaitForNode(const World& w, const Candidate& candidate, const kube::Node& on, const std::string& pod, const char* harm) {
  const std::string& node = on.meta.name;
  if (on.ready) return Wait("the agent on node " + node + " has not said yet that " + pod + " has ended");
  Step step = Wait("node " + node + " does not answer, and nobody confirmed that " + pod + " has ended");
  step.notice = Notice{true, "WaitsForNode",
                       "waits to go on from Checkpoint " + candidate.checkpoint->meta.name + ": node " + node + " does not answer, so " +
                           w.pod->meta.ns + "/" + pod + " may still run there, and " + harm +
                           ". If the node is out of service for good: kubectl taint node " + node +
                           " node.kubernetes.io/out-of-service=nodeshutdown:NoExecute (or: kubectl delete node " + node + ")",
                       true, false};
  return step;
}

// What must be over before a node that says nothing of a pod's end is no longer waited for.
bool IsAssumedToHaveEnded(const World& w, const kube::Node& node, WallTime now) {
  if (!node.ready) return w.protection.policy->spec.restore.on_node_lost == api::OnNodeLost::kAssume;
  return now - ParseTime(w.pod->meta.creation_timestamp).value_or(now) >= kAgentPatience + GraceOf(*w.pod);
}

std::optional<Step> WaitForEnding(const World& w, const Candidate& candidate, WallTime now) {
  const auto& ending = candidate.ending;
  if (!ending) return std::nullopt;
  if (!ending->gone && ending->node->ready) return Wait("member " + ending->pod + " of its group is ending");
  if (IsAssumedToHaveEnded(w, *ending->node, now)) return std::nullopt;
  return WaitForNode(w, candidate, *ending->node, ending->pod, "it would speak to what is restored");
}

Step WaitForGroup(const World& w, const Candidate& candidate) {
  const api::Checkpoint& c = *candidate.checkpoint;
  const std::string runs = "member " + candidate.beyond + " of group " + c.spec.cut.group + " runs on from beyond the cut of Checkpoint " +
                           c.meta.name + ", and a cut takes all members back or none";
  Step step = Wait(runs);
  step.notice = Notice{
      true, "WaitsForGroup",
      "waits: " + runs + ". To take all of them back to it: kubectl -n " + w.pod->meta.ns + " delete pod " + candidate.beyond, true, false};
  return step;
}

// What the pod gets from checkpoints that left its predecessor running, or at last. `others_live`: it may be one more beside them.
Step NextInterval(const World& w, WallTime now, std::string misfit, bool others_live) {
  const auto& policy = w.protection.policy->spec;
  const WallTime born = ParseTime(w.pod->meta.creation_timestamp).value_or(now);
  CheckpointPtr best;
  std::optional<Step> wait;
  std::vector<Candidate> newest_first = w.candidates;
  std::sort(newest_first.begin(), newest_first.end(),
            [](const Candidate& x, const Candidate& y) { return Newer(x.checkpoint, y.checkpoint); });
  for (const Candidate& candidate : newest_first) {
    const api::Checkpoint& c = *candidate.checkpoint;
    if (!SameSeat(c.status.owner, w.lineage.owner) || c.spec.pod_uid == w.pod->meta.uid) continue;
    others_live = others_live || OfALivingPod(c, candidate.pod.get(), candidate.node.get());
    if (!StandsIn(c, candidate.pod.get(), candidate.node.get(), born) || HasSuccessor(w, c.spec.pod_uid)) continue;
    auto unfit = Misfit(w, c);
    const auto max_age = policy.restore.max_age;
    if (Quarantined(c)) {
      misfit = QuarantinedText(c);
      continue;
    }
    if (!unfit && max_age && now - CompletedAt(c) > *max_age) {
      unfit = "it is older than restore.maxAge " + FormatDuration(*max_age) + " allows";
    }
    const bool lost = OutOfService(candidate.node.get()) || !candidate.node->ready;
    if (!unfit && !lost && !policy.triggers.stop) unfit = "its pod was stopped, and triggers.stop is off";
    const End end = EndOf(c, candidate.pod.get(), candidate.node.get());
    if (end == End::kCrashed && policy.restore.on_crash != api::OnCrash::kLatest)
      unfit = "its pod ended by itself (restore.onCrash: ColdStart)";
    if (!unfit && !candidate.broken.empty()) unfit = candidate.broken;
    if (unfit) {
      misfit = "checkpoint " + c.meta.name + ": " + *unfit;
      continue;
    }
    switch (end) {
      case End::kLives:
        if (now - born < kYoung)
          wait = Wait("node " + c.status.node_name + " does not answer, and is not known yet to have lost its predecessor");
        continue;
      case End::kLeaving:
        if (!wait) wait = Wait("its predecessor " + c.spec.pod_name + " is ending");
        continue;
      case End::kUnconfirmed:
        if (IsAssumedToHaveEnded(w, *candidate.node, now)) break;
        if (!wait) wait = WaitForNode(w, candidate, *candidate.node, c.spec.pod_name.str(), "two of it must not");
        continue;
      case End::kConfirmed:
      case End::kCrashed:
        break;
    }
    if (!candidate.beyond.empty()) {
      const api::Condition* ended = kube::FindCondition(c.status.conditions, api::kPodEnded);
      const WallTime since = std::max(born, ended != nullptr ? ParseTime(ended->last_transition_time).value_or(born) : born);
      const bool held = policy.restore.options.on_failure != api::OnFailure::kColdStart;
      if (!wait && (held || now - since < kGroupPatience)) wait = WaitForGroup(w, candidate);
      misfit = "checkpoint " + c.meta.name + ": member " + candidate.beyond +
               " of its group runs on from beyond its cut, and a cut takes all members back or none";
      continue;
    }
    if (auto ending = WaitForEnding(w, candidate, now)) {
      if (!wait) wait = std::move(ending);
      continue;
    }
    best = candidate.checkpoint;
    break;
  }
  if (best) return Do(Action::kClaim, best, "the newest checkpoint of a pod of " + SeatText(w) + " that has ended");
  if (wait) return *wait;
  if (misfit.empty() && others_live) return Fresh();
  return Cold(nullptr, misfit.empty() ? "no checkpoint of " + SeatText(w) + " can be restored" : misfit);
}

Step WaitForClaimant(const Candidate& candidate, WallTime now) {
  const std::string& name = candidate.checkpoint->status.claim->pod_name;
  Step step = Wait("pod " + name + ", which was to go on from its predecessor's state, is ending");
  const auto until = candidate.claimant ? ParseTime(candidate.claimant->meta.deletion_timestamp) : std::nullopt;
  if (!until || now - *until < kOverdue) return step;
  const std::string& node = candidate.claimant->node_name;
  step.notice = Notice{true, "WaitsForPod",
                       "waits for the end of pod " + name + ", to which the state in Checkpoint " + candidate.checkpoint->meta.name +
                           " was given, and which should have ended at " + FormatTime(*until) + ". If its node " + node +
                           " is out of service for good: kubectl taint node " + node +
                           " node.kubernetes.io/out-of-service=nodeshutdown:NoExecute (or: kubectl delete node " + node + ")",
                       true, false};
  return step;
}

// The pod of this seat that ends without its state being kept, or about which that is not decided yet.
std::optional<Step> NextOfStopping(const World& w) {
  std::optional<Step> let_go;
  for (const PodPtr& pod : w.stopping) {
    std::vector<CheckpointPtr> own;
    for (const Candidate& candidate : w.candidates) {
      if (candidate.checkpoint->spec.pod_uid == pod->meta.uid) own.push_back(candidate.checkpoint);
    }
    if (!w.on_stop) {
      const bool moved = std::any_of(own.begin(), own.end(), [](const CheckpointPtr& c) {
        return c->spec.final && c->status.phase == Phase::kReady && c->status.claim && !Reclaimed(*c);
      });
      if (!moved)
        let_go = Cold(nullptr, pod->meta.name + " was stopped, and what is stopped is not checkpointed (chart value checkpointOnStop)");
      continue;
    }
    if (stop::Undecided(*pod, own))
      return Wait("it is not decided yet whether its predecessor " + pod->meta.name + " is checkpointed", kSoon);
    const std::string why = pod->meta.Annotation(api::kLetGo);
    if (!why.empty()) let_go = Cold(nullptr, pod->meta.name + " was stopped and not checkpointed: " + why);
  }
  return let_go;
}

Step NextOwn(const World& w, WallTime now) {
  const WallTime born = ParseTime(w.pod->meta.creation_timestamp).value_or(now);
  CheckpointPtr best, failed, unsaid;
  std::optional<Step> in_vain;
  std::string wait, misfit, passed_over;
  bool others_live = false;
  for (const Candidate& candidate : w.candidates) {
    const api::Checkpoint& c = *candidate.checkpoint;
    if (!SameSeat(c.status.owner, w.lineage.owner) || c.meta.terminating() || c.spec.pod_uid == w.pod->meta.uid) continue;
    if (c.status.phase == Phase::kFailed && c.spec.final && now - CompletedAt(c) < kFailureIsNews) {
      if (!failed || Newer(candidate.checkpoint, failed)) failed = candidate.checkpoint;
    }
    if (GivenInVain(c, candidate.claimant.get()) && !Quarantined(c) && !Misfit(w, c)) in_vain = WaitForClaimant(candidate, now);
    const bool ends = !candidate.claimant || candidate.claimant->meta.terminating() || Ended(*candidate.claimant);
    others_live = others_live || (Unused(c) && !ends);
    if (BeingRestored(c) && !c.meta.terminating() && ends && now - born < kAgentPatience) unsaid = candidate.checkpoint;
    if (!HoldsItsPod(c)) continue;
    if (c.status.phase != Phase::kReady) {
      if (now < AgentsWordUntil(c)) wait = "its predecessor " + c.spec.pod_name + " is being checkpointed";
      continue;
    }
    if (PassedOver(c)) {
      passed_over = "checkpoint " + c.meta.name + " was passed over by a pod that has run since (see its condition ColdStart)";
      continue;
    }
    if (Quarantined(c)) {
      misfit = QuarantinedText(c);
      continue;
    }
    if (auto why = Misfit(w, c)) {
      misfit = "checkpoint " + c.meta.name + ": " + *why;
      continue;
    }
    const auto max_age = w.protection.policy->spec.restore.max_age;
    // How long it sleeps is up to who suspended it.
    if (max_age && now - CompletedAt(c) > *max_age && !api::Suspends(c.spec.trigger)) {
      misfit = "checkpoint " + c.meta.name + " is older than restore.maxAge " + FormatDuration(*max_age) + " allows";
      continue;
    }
    if (candidate.pod && !candidate.pod->meta.terminating()) {
      if (now - CompletedAt(c) < kReadyPatience) wait = "its predecessor " + c.spec.pod_name + " is being evicted";
      continue;
    }
    if (!best || Newer(candidate.checkpoint, best)) best = candidate.checkpoint;
  }
  if (best) return Do(Action::kClaim, best, "the newest final checkpoint of " + SeatText(w));
  if (!wait.empty()) return Wait(wait);
  if (in_vain) return *in_vain;
  if (unsaid) return Wait("whether its predecessor " + unsaid->status.claim->pod_name + " ran is not known yet", kSoon);
  const std::optional<Step> stopped = NextOfStopping(w);
  if (stopped && stopped->action == Action::kWait) return *stopped;
  const bool others = others_live || w.others_run;
  if (misfit.empty() && !others && !stopped) misfit = passed_over;
  Step step = NextInterval(w, now, misfit, others);
  if (step.action != Action::kCold) return step;
  if (failed && failed->Ready() != nullptr) return Cold(failed, failed->Ready()->message);
  return stopped && misfit.empty() ? *stopped : step;
}

// Its state is there, but nobody could go on from it. Who must not start cold is left to a person.
CheckpointPtr QuarantinedOf(const World& w, WallTime now) {
  if (w.protection.policy->spec.restore.options.on_failure == api::OnFailure::kColdStart) return nullptr;
  const WallTime born = ParseTime(w.pod->meta.creation_timestamp).value_or(now);
  CheckpointPtr newest;
  for (const Candidate& candidate : w.candidates) {
    const api::Checkpoint& c = *candidate.checkpoint;
    if (!Quarantined(c) || c.meta.terminating() || !SameSeat(c.status.owner, w.lineage.owner)) continue;
    const bool free = c.spec.final ? HoldsItsPod(c) : StandsIn(c, candidate.pod.get(), candidate.node.get(), born);
    const bool concerns = free || GivenInVain(c, candidate.claimant.get());  // its last pod may still be ending
    if (concerns && (!newest || Newer(candidate.checkpoint, newest))) newest = candidate.checkpoint;
  }
  return newest;
}

Step HoldQuarantined(const World& w, CheckpointPtr checkpoint) {
  const std::string text = QuarantinedText(*checkpoint), name = checkpoint->meta.name;
  Step step = Wait(text, kHoldPoll);
  step.notice = Notice{true, api::kQuarantined,
                       "waits, since it must not start cold (restore.onFailure: " +
                           std::string(api::OnFailureName(w.protection.policy->spec.restore.options.on_failure)) + "), and " + text +
                           ". To try it once more, create the pod with the annotation " + api::kFromCheckpoint + ": " + name +
                           "; to start without its state: kubectl -n " + w.pod->meta.ns + " delete checkpoint " + name,
                       true, false};
  return step;
}

}  // namespace

Step Next(const World& seen, WallTime now) {
  if (!seen.pod || seen.pod->meta.terminating() || !Gated(*seen.pod)) return {};
  for (const Candidate& candidate : seen.candidates) {
    const auto& claim = candidate.checkpoint->status.claim;
    if (claim && claim->pod_uid == seen.pod->meta.uid) return Do(Action::kRelease, candidate.checkpoint, "claimed");
  }
  if (!seen.lineage.complete) return Wait("its owner cannot be read");
  const std::string asked = seen.pod->meta.Annotation(api::kFromCheckpoint);
  if (!asked.empty()) return NextAsked(seen, asked, now);
  Step step = NextOwn(seen, now);
  if (step.action != Action::kCold) return step;
  CheckpointPtr quarantined = QuarantinedOf(seen, now);
  return quarantined ? HoldQuarantined(seen, std::move(quarantined)) : step;
}

WallTime AskedToEnd(const kube::Pod& pod) {
  const auto until = ParseTime(pod.meta.deletion_timestamp);
  return until ? *until - GraceOf(pod) : WallTime::max();
}

std::optional<OlderState> StateIsOlder(const World& seen) {
  if (!seen.pod->meta.Annotation(api::kFromCheckpoint).empty()) return std::nullopt;
  for (const Candidate& candidate : seen.candidates) {
    const api::Checkpoint& c = *candidate.checkpoint;
    if (c.spec.final || !c.status.claim || c.status.claim->pod_uid != seen.pod->meta.uid) continue;
    const WallTime taken = ParseTime(c.status.started_at).value_or(CreatedAt(c));
    const WallTime at = ParseTime(c.status.claim->at).value_or(taken);
    return OlderState{candidate.checkpoint, at,
                      "goes on from Checkpoint " + c.meta.name + ", which was taken of " + c.spec.pod_name + " on node " +
                          c.status.node_name + " at " + FormatTime(taken) + ", " +
                          FormatDuration(std::chrono::duration_cast<seconds>(std::max<Duration>(at - taken, seconds(0)))) +
                          " before: what it did after that is lost"};
  }
  return std::nullopt;
}

bool Abandoned(const Candidate& candidate) {
  const kube::Pod* claimant = candidate.claimant.get();
  return (claimant == nullptr || Ended(*claimant)) && GivenInVain(*candidate.checkpoint, claimant);
}

std::string ColdBesideText(const World& seen, const api::Checkpoint& c) {
  const kube::Pod& pod = *seen.pod;
  const api::Owner& owner = seen.lineage.owner;
  std::string text = "pod " + pod.meta.name + NamedIn(pod) + " started without the state in Checkpoint " + c.meta.name +
                     ", because Holdfast did not answer, or did not know of it yet, when it was created. The Checkpoint is kept, but given "
                     "to no pod by itself any more: what was done since would be undone. To go back to it all the same: ";
  // Of several replicas every one would get a template's annotation, and one of them the state.
  const bool alone = seen.lineage.workload != nullptr && seen.lineage.workload->replicas == 1;
  if (alone && (owner.kind == "Deployment" || owner.kind == "StatefulSet")) {
    return text + "kubectl -n " + pod.meta.ns + " patch " + (owner.kind == "Deployment" ? "deployment " : "statefulset ") + owner.name +
           R"( --type=merge -p '{"spec":{"template":{"metadata":{"annotations":{")" + api::kFromCheckpoint + R"(":")" + c.meta.name +
           R"("}}}}}')";
  }
  return text + "create a pod with the annotation " + api::kFromCheckpoint + ": " + c.meta.name;
}

CheckpointPtr ColdBeside(const World& seen, WallTime now) {
  const kube::Pod& pod = *seen.pod;
  const bool ends = pod.meta.terminating();
  if (!seen.protection.on || Gated(pod) || CameByItsGate(pod) || !HasRun(pod)) return nullptr;
  const WallTime born = ParseTime(pod.meta.creation_timestamp).value_or(now);
  // One that ends is told of at once: its successor is about to ask.
  if (!ends && now - born < kSettle) return nullptr;
  // Of replicas it is the one that waits to whom the state belongs.
  if (seen.others_wait) return nullptr;
  CheckpointPtr found, own;
  for (const Candidate& candidate : seen.candidates) {
    if (candidate.checkpoint->spec.final && candidate.checkpoint->spec.pod_uid == pod.meta.uid) own = candidate.checkpoint;
  }
  for (const Candidate& candidate : seen.candidates) {
    const api::Checkpoint& c = *candidate.checkpoint;
    if (c.status.claim && c.status.claim->pod_uid == pod.meta.uid) return nullptr;
    if (PassedOver(c)) {
      if (kube::FindCondition(c.status.conditions, kColdStart)->message.str().find(NamedIn(pod)) != std::string::npos) return nullptr;
      continue;
    }
    // A sibling that ran before the checkpoint was taken, or its pod was ended, did not come in its place.
    if (!Unclaimed(c) || c.spec.pod_uid == pod.meta.uid || !SameSeat(c.status.owner, seen.lineage.owner) || born < CreatedAt(c)) continue;
    // Times are whole seconds: replicas that were made, and checkpointed together, within one.
    if (born == CreatedAt(c) && own && CreatedAt(*own) <= CreatedAt(c)) continue;
    if (candidate.pod && (!candidate.pod->meta.terminating() || born < AskedToEnd(*candidate.pod))) continue;
    if (!found || Newer(candidate.checkpoint, found)) found = candidate.checkpoint;
  }
  return found;
}

}  // namespace holdfast::reconcilers::claim
