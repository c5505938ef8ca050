#include "reconcilers/claims.h"

#include <algorithm>
#include <set>

namespace holdfast::reconcilers {

using api::Phase;

namespace {

constexpr char kOutOfService[] = "node.kubernetes.io/out-of-service";

bool FreeInterval(const api::Checkpoint& c) {
  return !c.spec.final && c.spec.trigger == api::Trigger::kInterval && c.status.phase == Phase::kReady && !c.meta.terminating() &&
         !c.status.claim;
}

// What the agents said of pods that it could not be restored into, since it last could.
std::vector<const api::Restore*> VictimsOf(const api::Checkpoint& c) {
  std::vector<const api::Restore*> victims;
  std::set<std::string> pods;
  for (auto it = c.status.restores.rbegin(); it != c.status.restores.rend() && it->outcome != "Restored"; ++it) {
    if (it->outcome == "Failed" && it->attempts > 0 && pods.insert(it->pod_uid.empty() ? it->pod_name : it->pod_uid).second)
      victims.push_back(&*it);
  }
  return victims;
}

// The kubelet gives a reason when the end was its own decision (Evicted, Preempting, Terminated by the node's shutdown, …).
bool EndedByItself(const kube::Pod& pod) { return pod.status_reason.empty() || pod.status_reason == "DeadlineExceeded"; }

}  // namespace

const api::Restore* WordOfClaim(const api::Checkpoint& checkpoint) {
  if (!checkpoint.status.claim) return nullptr;
  const api::Claim& claim = *checkpoint.status.claim;
  const auto claimed_at = ParseTime(claim.at);
  for (auto it = checkpoint.status.restores.rbegin(); it != checkpoint.status.restores.rend(); ++it) {
    if (!it->pod_uid.empty()) {
      if (it->pod_uid == claim.pod_uid) return &*it;
      continue;
    }
    // Of an older agent. Names come again (StatefulSets), so what is from before the claim was another pod's.
    if (it->pod_name != claim.pod_name) continue;
    const auto at = ParseTime(it->at);
    if (!claimed_at || !at || *at >= *claimed_at) return &*it;
  }
  return nullptr;
}

const api::Restore* OutcomeOfClaim(const api::Checkpoint& checkpoint) {
  const api::Restore* word = WordOfClaim(checkpoint);
  return word == nullptr || word->outcome == "Started" ? nullptr : word;
}

bool BeingRestored(const api::Checkpoint& checkpoint) {
  return WordOfClaim(checkpoint) != nullptr && OutcomeOfClaim(checkpoint) == nullptr;
}

bool Reclaimed(const api::Checkpoint& checkpoint) {
  return checkpoint.status.claim && checkpoint.status.claim->pod_uid == checkpoint.spec.pod_uid;
}

bool Unclaimed(const api::Checkpoint& checkpoint) {
  return checkpoint.status.phase == Phase::kReady && checkpoint.spec.final && !checkpoint.status.claim && !checkpoint.meta.terminating();
}

const api::Condition* DamageOf(const api::Checkpoint& checkpoint) {
  const api::Condition* damaged = kube::FindCondition(checkpoint.status.conditions, api::kDamaged);
  return damaged != nullptr && damaged->status == "True" ? damaged : nullptr;
}

bool PassedOver(const api::Checkpoint& checkpoint) {
  const api::Condition* cold = kube::FindCondition(checkpoint.status.conditions, kColdStart);
  return cold != nullptr && cold->status == "True" && cold->reason == kWebhookMissed;
}

bool Quarantined(const api::Checkpoint& checkpoint) {
  return checkpoint.status.restores.size() >= kMostVictims && VictimsOf(checkpoint).size() >= kMostVictims;
}

std::string QuarantineText(const api::Checkpoint& checkpoint) {
  const std::vector<const api::Restore*> victims = VictimsOf(checkpoint);
  if (victims.empty()) return "";
  int attempts = 0;
  for (const api::Restore* one : victims) attempts += one->attempts;
  return std::to_string(victims.size()) + " pods could not be restored from it, in " + std::to_string(attempts) +
         " attempts; the last was " + victims[0]->pod_name + " on node " + victims[0]->node + ": " + victims[0]->reason;
}

bool UnderWay(const api::Checkpoint& checkpoint) { return checkpoint.status.phase != Phase::kPending && !checkpoint.done(); }

bool HoldsItsPod(const api::Checkpoint& checkpoint) { return checkpoint.spec.final && (!checkpoint.done() || Unclaimed(checkpoint)); }

bool Unused(const api::Checkpoint& c) {
  if (c.status.phase != Phase::kReady || c.meta.terminating() || !c.status.claim || Reclaimed(c)) return false;
  const api::Restore* word = WordOfClaim(c);
  return word == nullptr || (word->outcome == "Failed" && !word->ran);
}

bool GivenInVain(const api::Checkpoint& c, const kube::Pod* claimant) {
  return Unused(c) && (claimant == nullptr || claimant->meta.terminating() || Ended(*claimant));
}

bool OutOfService(const kube::Node* node) {
  if (node == nullptr) return true;
  return std::find(node->taint_keys.begin(), node->taint_keys.end(), kOutOfService) != node->taint_keys.end();
}

End EndOf(const api::Checkpoint& checkpoint, const kube::Pod* pod, const kube::Node* node) {
  if (pod == nullptr) {
    const api::Condition* ended = kube::FindCondition(checkpoint.status.conditions, api::kPodEnded);
    return OutOfService(node) || (ended != nullptr && ended->status == "True") ? End::kConfirmed : End::kUnconfirmed;
  }
  const bool terminal = pod->phase == "Succeeded" || pod->phase == "Failed";
  if (!pod->meta.terminating()) return !terminal ? End::kLives : EndedByItself(*pod) ? End::kCrashed : End::kConfirmed;
  // Of a pod that is being deleted the kubelet reports the end before the object goes, and the garbage collector only that of nodes
  // which are gone or out of service.
  if (terminal || OutOfService(node)) return End::kConfirmed;
  return node->ready ? End::kLeaving : End::kUnconfirmed;
}

bool OfALivingPod(const api::Checkpoint& c, const kube::Pod* pod, const kube::Node* node) {
  return FreeInterval(c) && EndOf(c, pod, node) == End::kLives;
}

bool StandsIn(const api::Checkpoint& c, const kube::Pod* pod, const kube::Node* node, WallTime born) {
  if (!FreeInterval(c)) return false;
  const End end = EndOf(c, pod, node);
  // A successor may be seen before the deletion that it answers.
  if (end == End::kLives) return OutOfService(node) || !node->ready;
  const api::Condition* ended = kube::FindCondition(c.status.conditions, api::kPodEnded);
  const auto at = ended != nullptr ? ParseTime(ended->last_transition_time) : std::nullopt;
  return !at || born - *at <= kFollowsWithin;
}

WallTime CreatedAt(const api::Checkpoint& checkpoint) { return ParseTime(checkpoint.meta.creation_timestamp).value_or(WallTime()); }

WallTime CompletedAt(const api::Checkpoint& checkpoint) {
  if (auto at = ParseTime(checkpoint.status.completed_at)) return *at;
  if (const api::Condition* ready = checkpoint.Ready()) {
    if (auto at = ParseTime(ready->last_transition_time)) return *at;
  }
  return CreatedAt(checkpoint);
}

WallTime DeadlineOf(const api::Checkpoint& checkpoint) {
  return checkpoint.DeadlineAt().value_or(CreatedAt(checkpoint) + checkpoint.spec.deadline);
}

WallTime QueuedUntil(const api::Checkpoint& checkpoint) {
  return ParseTime(checkpoint.status.queued_until).value_or(CreatedAt(checkpoint) + kTurnComes);
}

WallTime WaitedForUntil(const api::Checkpoint& checkpoint) {
  const api::Condition* ready = checkpoint.Ready();
  const bool queued = checkpoint.status.phase == Phase::kPending &&
                      (!checkpoint.status.queued_until.empty() || (ready != nullptr && ready->reason == api::reason::kQueued));
  return std::max(DeadlineOf(checkpoint), queued ? QueuedUntil(checkpoint) : WallTime()) + kAgentGrace;
}

WallTime AgentsWordUntil(const api::Checkpoint& c) {
  if (!UnderWay(c) || c.status.phase == Phase::kAssigned) return WaitedForUntil(c);
  const api::Condition* ready = c.Ready();
  if (ready != nullptr && ready->reason == api::reason::kStillStoring) return WallTime::max();
  return WaitedForUntil(c) + kAgentsSilence;
}

bool Newer(const CheckpointPtr& a, const CheckpointPtr& b) {
  const WallTime at_a = CompletedAt(*a), at_b = CompletedAt(*b);
  return at_a != at_b ? at_a > at_b : a->meta.name < b->meta.name;
}

}  // namespace holdfast::reconcilers
