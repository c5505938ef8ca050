#include "reconcilers/claim/step.h"

#include <algorithm>

namespace holdfast::reconcilers::claim {
namespace {

using api::Phase;
using std::chrono::seconds;

constexpr Duration kPoll = seconds(2);
constexpr Duration kHoldPoll = seconds(30);
// Ready, but its pod still stands: the drain evicts it or takes it back within half of this.
constexpr Duration kReadyPatience = seconds(60);
constexpr Duration kFailureIsNews = std::chrono::hours(1);
// So young a successor may be seen before the deletion that it answers.
constexpr Duration kYoung = seconds(5);
// A node that answers, but whose agent does not say that the old pod has ended: its kubelet has ended it so long after its grace period.
constexpr Duration kAgentPatience = std::chrono::minutes(2);
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

// As long as its predecessor's: they have the same owner. The API takes any number for it.
Duration GraceOf(const kube::Pod& pod) { return seconds(std::clamp<int64_t>(pod.termination_grace_seconds, 0, 365 * 86'400)); }

// Why the pod cannot take this checkpoint, by its containers and volumes; nothing when it can.
std::optional<std::string> Misfit(const World& w, const api::Checkpoint& c) {
  for (const api::CheckpointContainer& kept : c.status.containers) {
    if (!kept.restorable && !kept.reason.empty()) return "its container " + kept.name + " cannot be restored: " + kept.reason;
    const auto& have = w.pod->containers;
    if (!std::any_of(have.begin(), have.end(), [&](const kube::Container& own) { return own.name == kept.name; })) {
      return "it holds container " + kept.name + ", which this pod does not have";
    }
  }
  const api::Volumes volumes = w.protection.policy->spec.restore.volumes;
  if (c.spec.final || volumes == api::Volumes::kIgnoreDrift) return std::nullopt;
  for (const kube::Volume& volume : w.pod->volumes) {
    if (volume.type != "persistentVolumeClaim") continue;
    for (const kube::Container& container : w.pod->containers) {
      for (const kube::VolumeMount& mount : container.mounts) {
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
  if (!policy.meta.name.empty() && policy.spec.restore.on_failure == api::OnFailure::kColdStart) return Cold(std::move(checkpoint), text);
  Step step = Wait(text, kHoldPoll);
  step.notice = Notice{true, "CannotRestore",
                       text + "; the pod waits. Name another Checkpoint, or remove the annotation and create the pod again", true, false};
  return step;
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
    if (now >= DeadlineOf(c) + kAgentGrace) return Hold(w, found->checkpoint, name, "it was not done by its deadline");
    return Wait("Checkpoint " + name + " is " + std::string(api::PhaseName(c.status.phase)));
  }
  if (auto why = Misfit(w, c)) return Hold(w, found->checkpoint, name, *why);
  if (c.status.claim) {
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
// What a user started beside it (holdfast.dev/from-checkpoint) is a copy, not its successor.
bool HasSuccessor(const World& w, const std::string& pod_uid) {
  return std::any_of(w.candidates.begin(), w.candidates.end(), [&](const Candidate& candidate) {
    const api::Checkpoint& c = *candidate.checkpoint;
    if (c.spec.pod_uid != pod_uid || !c.status.claim || Reclaimed(c)) return false;
    return !candidate.claimant || candidate.claimant->meta.Annotation(api::kFromCheckpoint).empty();
  });
}

Step WaitForNode(const World& w, const Candidate& candidate) {
  const api::Checkpoint& c = *candidate.checkpoint;
  const std::string& node = c.status.node_name;
  const std::string pod = w.pod->meta.ns + "/" + c.spec.pod_name;
  if (candidate.node->ready)
    return Wait("the agent on node " + node + " has not said yet that its predecessor " + c.spec.pod_name + " has ended");
  Step step = Wait("node " + node + " does not answer, and nobody confirmed that its predecessor " + c.spec.pod_name + " has ended");
  step.notice = Notice{true, "WaitsForNode",
                       "waits to go on from Checkpoint " + c.meta.name + ": node " + node + " does not answer, so " + pod +
                           " may still run there, and two of it must not. If the node is out of service for good: kubectl taint node " +
                           node + " node.kubernetes.io/out-of-service=nodeshutdown:NoExecute (or: kubectl delete node " + node + ")",
                       true, false};
  return step;
}

// What the pod gets from checkpoints that left its predecessor running.
Step NextInterval(const World& w, WallTime now, std::string misfit) {
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
    if (!StandsIn(c, candidate.pod.get(), candidate.node.get(), born) || HasSuccessor(w, c.spec.pod_uid)) continue;
    auto unfit = Misfit(w, c);
    const auto max_age = policy.restore.max_age;
    if (!unfit && max_age && now - CompletedAt(c) > *max_age) {
      unfit = "it is older than restore.maxAge " + FormatDuration(*max_age) + " allows";
    }
    const bool lost = OutOfService(candidate.node.get()) || !candidate.node->ready;
    if (!unfit && !lost && !policy.triggers.stop) unfit = "its pod was stopped, and triggers.stop is off";
    const End end = EndOf(c, candidate.pod.get(), candidate.node.get());
    if (end == End::kCrashed && policy.restore.on_crash != api::OnCrash::kLatest)
      unfit = "its pod ended by itself (restore.onCrash: ColdStart)";
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
        if (policy.restore.on_node_lost == api::OnNodeLost::kAssume && !candidate.node->ready) break;
        if (candidate.node->ready && now - born >= kAgentPatience + GraceOf(*w.pod)) break;
        if (!wait) wait = WaitForNode(w, candidate);
        continue;
      case End::kConfirmed:
      case End::kCrashed:
        break;
    }
    best = candidate.checkpoint;
    break;
  }
  if (best) return Do(Action::kClaim, best, "the newest checkpoint of a pod of " + SeatText(w) + " that has ended");
  return wait ? *wait : Cold(nullptr, misfit);
}

// With the claim written. What was done after a checkpoint that left its pod running is lost, and somebody wants to know.
Step Release(const World& w, CheckpointPtr checkpoint, WallTime now) {
  Step step = Do(Action::kRelease, checkpoint, "claimed");
  const api::Checkpoint& c = *checkpoint;
  if (c.spec.final || !w.pod->meta.Annotation(api::kFromCheckpoint).empty()) return step;
  const WallTime taken = ParseTime(c.status.started_at).value_or(CreatedAt(c));
  step.notice = Notice{true, "StateIsOlder",
                       "goes on from Checkpoint " + c.meta.name + ", which was taken of " + c.spec.pod_name + " on node " +
                           c.status.node_name + " at " + FormatTime(taken) + ", " +
                           FormatDuration(std::chrono::duration_cast<seconds>(std::max<Duration>(now - taken, seconds(0)))) +
                           " ago: what it did after that is lost",
                       true, true};
  return step;
}

Step NextOwn(const World& w, WallTime now) {
  CheckpointPtr best, failed;
  std::string wait, misfit = "no checkpoint of " + SeatText(w) + " can be restored";
  for (const Candidate& candidate : w.candidates) {
    const api::Checkpoint& c = *candidate.checkpoint;
    if (!SameSeat(c.status.owner, w.lineage.owner) || c.meta.terminating() || c.spec.pod_uid == w.pod->meta.uid) continue;
    if (c.status.phase == Phase::kFailed && c.spec.final && now - CompletedAt(c) < kFailureIsNews) {
      if (!failed || Newer(candidate.checkpoint, failed)) failed = candidate.checkpoint;
    }
    if (!HoldsItsPod(c)) continue;
    if (c.status.phase != Phase::kReady) {
      if (now < DeadlineOf(c) + kAgentGrace) wait = "its predecessor " + c.spec.pod_name + " is being checkpointed";
      continue;
    }
    if (auto why = Misfit(w, c)) {
      misfit = "checkpoint " + c.meta.name + ": " + *why;
      continue;
    }
    const auto max_age = w.protection.policy->spec.restore.max_age;
    if (max_age && now - CompletedAt(c) > *max_age) {
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
  Step step = NextInterval(w, now, misfit);
  if (step.action == Action::kCold && failed && failed->Ready() != nullptr) return Cold(failed, failed->Ready()->message);
  return step;
}

}  // namespace

bool Gated(const kube::Pod& pod) {
  return std::find(pod.scheduling_gates.begin(), pod.scheduling_gates.end(), api::kClaimGate) != pod.scheduling_gates.end();
}

Step Next(const World& seen, WallTime now) {
  if (!seen.pod || seen.pod->meta.terminating() || !Gated(*seen.pod)) return {};
  for (const Candidate& candidate : seen.candidates) {
    const auto& claim = candidate.checkpoint->status.claim;
    if (claim && claim->pod_uid == seen.pod->meta.uid) return Release(seen, candidate.checkpoint, now);
  }
  if (!seen.lineage.complete) return Wait("its owner cannot be read");
  const std::string asked = seen.pod->meta.Annotation(api::kFromCheckpoint);
  return asked.empty() ? NextOwn(seen, now) : NextAsked(seen, asked, now);
}

bool Abandoned(const Candidate& candidate) {
  const api::Checkpoint& c = *candidate.checkpoint;
  return c.status.phase == Phase::kReady && c.status.claim && !Reclaimed(c) && !candidate.claimant && OutcomeOfClaim(c) == nullptr;
}

CheckpointPtr ColdBeside(const World& seen, WallTime now) {
  const kube::Pod& pod = *seen.pod;
  if (!seen.protection.on || pod.meta.terminating() || Gated(pod) || pod.phase != "Running") return nullptr;
  const WallTime born = ParseTime(pod.meta.creation_timestamp).value_or(now);
  if (now - born < kSettle) return nullptr;
  for (const Candidate& candidate : seen.candidates) {
    if (candidate.checkpoint->status.claim && candidate.checkpoint->status.claim->pod_uid == pod.meta.uid) return nullptr;
  }
  CheckpointPtr found;
  for (const Candidate& candidate : seen.candidates) {
    const api::Checkpoint& c = *candidate.checkpoint;
    // A sibling that ran before the checkpoint was taken did not come in its place.
    if (!Unclaimed(c) || !SameSeat(c.status.owner, seen.lineage.owner) || born < CreatedAt(c) || candidate.pod) continue;
    if (!found || Newer(candidate.checkpoint, found)) found = candidate.checkpoint;
  }
  return found;
}

}  // namespace holdfast::reconcilers::claim
