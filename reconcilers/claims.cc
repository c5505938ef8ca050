#include "reconcilers/claims.h"

namespace holdfast::reconcilers {

using api::Phase;

const api::Restore* OutcomeOfClaim(const api::Checkpoint& checkpoint) {
  if (!checkpoint.status.claim) return nullptr;
  const api::Claim& claim = *checkpoint.status.claim;
  // Names come again (StatefulSets), so an outcome from before the claim was another pod's.
  const auto claimed_at = ParseTime(claim.at);
  for (auto it = checkpoint.status.restores.rbegin(); it != checkpoint.status.restores.rend(); ++it) {
    if (it->pod_name != claim.pod_name) continue;
    const auto at = ParseTime(it->at);
    if (!claimed_at || !at || *at >= *claimed_at) return &*it;
  }
  return nullptr;
}

bool Reclaimed(const api::Checkpoint& checkpoint) {
  return checkpoint.status.claim && checkpoint.status.claim->pod_uid == checkpoint.spec.pod_uid;
}

bool Unclaimed(const api::Checkpoint& checkpoint) {
  return checkpoint.status.phase == Phase::kReady && checkpoint.spec.final && !checkpoint.status.claim && !checkpoint.meta.terminating();
}

bool UnderWay(const api::Checkpoint& checkpoint) { return checkpoint.status.phase != Phase::kPending && !checkpoint.done(); }

bool HoldsItsPod(const api::Checkpoint& checkpoint) { return checkpoint.spec.final && (!checkpoint.done() || Unclaimed(checkpoint)); }

WallTime CreatedAt(const api::Checkpoint& checkpoint) { return ParseTime(checkpoint.meta.creation_timestamp).value_or(WallTime()); }

WallTime CompletedAt(const api::Checkpoint& checkpoint) {
  if (auto at = ParseTime(checkpoint.status.completed_at)) return *at;
  if (const api::Condition* ready = checkpoint.Ready()) {
    if (auto at = ParseTime(ready->last_transition_time)) return *at;
  }
  return CreatedAt(checkpoint);
}

WallTime DeadlineOf(const api::Checkpoint& checkpoint) { return CreatedAt(checkpoint) + checkpoint.spec.deadline; }

bool Newer(const CheckpointPtr& a, const CheckpointPtr& b) {
  const WallTime at_a = CompletedAt(*a), at_b = CompletedAt(*b);
  return at_a != at_b ? at_a > at_b : a->meta.name < b->meta.name;
}

}  // namespace holdfast::reconcilers
