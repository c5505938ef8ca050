// Questions about one Checkpoint that several reconcilers ask.
#pragma once

#include "reconcilers/view.h"

namespace holdfast::reconcilers {

inline constexpr char kContentFinalizer[] = "holdfast.dev/stored-content";
// How long after its deadline an agent that says nothing is still waited for.
inline constexpr Duration kAgentGrace = std::chrono::seconds(15);

// The restore that the present claim led to, or nullptr while there is none.
const api::Restore* OutcomeOfClaim(const api::Checkpoint& checkpoint);
// The claim is the checkpointed pod's own: it was thawed again, and its state has moved on.
bool Reclaimed(const api::Checkpoint& checkpoint);
// Ready, final, and nobody's yet: the only copy of its pod's state, or about to be.
bool Unclaimed(const api::Checkpoint& checkpoint);
// Being made by an agent: from Assigned until it is done.
bool UnderWay(const api::Checkpoint& checkpoint);
// Its pod is frozen, about to be, or waits for its turn.
bool HoldsItsPod(const api::Checkpoint& checkpoint);

WallTime CreatedAt(const api::Checkpoint& checkpoint);
WallTime CompletedAt(const api::Checkpoint& checkpoint);  // completedAt, else when Ready last changed, else creation
WallTime DeadlineOf(const api::Checkpoint& checkpoint);
// Newest first.
bool Newer(const CheckpointPtr& a, const CheckpointPtr& b);

}  // namespace holdfast::reconcilers
