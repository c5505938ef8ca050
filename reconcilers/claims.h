// Questions about one Checkpoint that several reconcilers ask.
#pragma once

#include "reconcilers/view.h"

namespace holdfast::reconcilers {

inline constexpr char kContentFinalizer[] = "holdfast.dev/stored-content";
// How long after its deadline an agent that says nothing is still waited for.
inline constexpr Duration kAgentGrace = std::chrono::seconds(15);
// How long a drain's checkpoint waits for its turn at most: those before it have deadlines of their own, so it comes. Until when stands in
// status.queue.until.
inline constexpr Duration kTurnComes = std::chrono::hours(1);

// What the agent last said of the restore that the present claim led to, "Started" with it; nullptr: nothing, so nothing of it has run.
const api::Restore* WordOfClaim(const api::Checkpoint& checkpoint);
// The same, once it is known how it ended; nullptr while it is not.
const api::Restore* OutcomeOfClaim(const api::Checkpoint& checkpoint);
// It has begun, and how it ended is not known.
bool BeingRestored(const api::Checkpoint& checkpoint);
// The claim is the checkpointed pod's own: it was thawed again, and its state has moved on.
bool Reclaimed(const api::Checkpoint& checkpoint);
// Ready, final, and nobody's yet: the only copy of its pod's state, or about to be.
bool Unclaimed(const api::Checkpoint& checkpoint);
// Its condition that says that the store cannot read it any more, or nullptr.
const api::Condition* DamageOf(const api::Checkpoint& checkpoint);
// A pod that was made while no webhook answered has run in the place of the checkpointed one, without this state: given to its successor,
// it would undo what that pod did, on volumes that are newer. So only a user gives it any more (holdfast.dev/from-checkpoint).
bool PassedOver(const api::Checkpoint& checkpoint);
inline constexpr char kColdStart[] = "ColdStart", kWebhookMissed[] = "WebhookMissed";  // the condition that says so, and its reason
// As many pods as that could not be restored from it, one after another, though CRIU tried it with each (restore.attempts times): it is the
// checkpoint that is at fault, and the next one would stand still for it, or its node suffer, as well. So only a user gives it any more
// (holdfast.dev/from-checkpoint). By status.restores alone: the condition api::kQuarantined tells people.
bool Quarantined(const api::Checkpoint& checkpoint);
inline constexpr size_t kMostVictims = 3;
// For people: how often it was tried, and how that ended the last time. Of one that is quarantined.
std::string QuarantineText(const api::Checkpoint& checkpoint);
// Being made by an agent: from Assigned until it is done.
bool UnderWay(const api::Checkpoint& checkpoint);
// Its pod is frozen, about to be, or waits for its turn.
bool HoldsItsPod(const api::Checkpoint& checkpoint);
// Given to a pod that has not gone on from it.
bool Unused(const api::Checkpoint& checkpoint);
// The same, and that pod has ended (its node refused it, say, or could not create its containers), or is about to: the next one shall have
// it. `claimant`: null when it is gone.
bool GivenInVain(const api::Checkpoint& checkpoint, const kube::Pod* claimant);

// A pod that is made later than this after another's end does not take its place: the workload was smaller for a while.
inline constexpr Duration kFollowsWithin = std::chrono::minutes(2);

// Whether the pod that was left running by a checkpoint has ended since, and who says so.
enum class End {
  kLives,
  kLeaving,      // told to end, by a node that answers
  kUnconfirmed,  // it may still run: its node does not answer, or it was deleted by force
  kConfirmed,    // by its node, or by whoever declared the node out of service, or deleted the node
  kCrashed,      // by itself
};
// `pod`: the checkpointed one, null when the API server has it no more; `node`: where it ran, null when that was deleted.
End EndOf(const api::Checkpoint& checkpoint, const kube::Pod* pod, const kube::Node* node);
// Somebody confirmed that nothing runs there any more: the taint node.kubernetes.io/out-of-service, or no such node (null).
bool OutOfService(const kube::Node* node);
// An interval checkpoint that a successor born at `born` may be meant to go on from: Ready, nobody's, and its pod has ended, or may have.
bool StandsIn(const api::Checkpoint& checkpoint, const kube::Pod* pod, const kube::Node* node, WallTime born);
// An interval checkpoint, Ready and nobody's, of a pod that runs as far as is known.
bool OfALivingPod(const api::Checkpoint& checkpoint, const kube::Pod* pod, const kube::Node* node);

WallTime CreatedAt(const api::Checkpoint& checkpoint);
WallTime CompletedAt(const api::Checkpoint& checkpoint);  // completedAt, else when Ready last changed, else creation
// status.deadlineAt, once it was assigned; before, spec.deadline from its creation.
WallTime DeadlineOf(const api::Checkpoint& checkpoint);
// Until when it waits in a node's queue.
WallTime QueuedUntil(const api::Checkpoint& checkpoint);
// Until when somebody who needs what becomes of it waits: the time in a node's queue comes before its deadline begins.
WallTime WaitedForUntil(const api::Checkpoint& checkpoint);
// The same for who needs what its agent has in hand: it alone knows the end. So one that says nothing (it is cut off, or starts anew) is
// waited for a while longer, and one that stores what is left of an ended pod (reason StillStoring) without an end.
inline constexpr Duration kAgentsSilence = std::chrono::seconds(100);
WallTime AgentsWordUntil(const api::Checkpoint& checkpoint);
// Newest first.
bool Newer(const CheckpointPtr& a, const CheckpointPtr& b);

}  // namespace holdfast::reconcilers
