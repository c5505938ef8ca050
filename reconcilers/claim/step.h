// What a pod that waits behind the scheduling gate holdfast.dev/claim gets: a checkpoint, patience, or a cold start with its reason. Pure.
#pragma once

#include <optional>

#include "reconcilers/group/cut.h"
#include "reconcilers/lineage.h"
#include "reconcilers/text.h"

namespace holdfast::reconcilers::claim {

struct Candidate {
  CheckpointPtr checkpoint;
  PodPtr pod;       // the checkpointed one (same uid); null: gone
  PodPtr claimant;  // the one that status.claim names (same uid); null: none or gone
  NodePtr node;     // where the checkpoint was taken; null: none, or its object was deleted
  // Of a cut (group/cut.h): why it is not whole, and the member of the group whose state is from beyond it. Empty: neither.
  std::string broken{}, beyond{};
  std::optional<group::Ending> ending{};  // and the member that has not ended yet
};

struct World {
  PodPtr pod;
  Lineage lineage;
  Protection protection;
  std::vector<Candidate> candidates;  // that concern the pod (live.h)
  std::vector<PodPtr> stopping;       // of its seat, that end
  bool others_run = false;            // pods of its seat that run on
  bool others_wait = false;           // pods of its seat that stand behind their gates, and do not come after its end
  bool on_stop = false;               // reconcilers/stop decides whether those that end are checkpointed; of some it may not have yet
};

enum class Action {
  kNothing,
  kWait,     // again later; the gate stays
  kClaim,    // write status.claim of `checkpoint`, then ask again
  kUnclaim,  // drop a used claim of `checkpoint`, then ask again
  kRelease,  // open the gate, restoring from `checkpoint`
  kCold,     // open the gate without it; with a notice, if it has a predecessor
};

struct Step {
  Action action = Action::kNothing;
  CheckpointPtr checkpoint;  // of kCold: the one whose state is not used, if any
  std::string why;
  std::optional<Notice> notice;
  std::optional<Duration> again;
};

Step Next(const World& seen, WallTime now);

// What was done after a checkpoint that left its pod running is lost, and somebody wants to know.
struct OlderState {
  CheckpointPtr checkpoint;
  WallTime at{};  // of the claim
  std::string why;
};
// Nothing: `pod` has claimed no such checkpoint, or a user asked for it by name.
std::optional<OlderState> StateIsOlder(const World& seen);

// A claim whose pod vanished, or has ended and stays (a Job's, or one that its node refused), before anything of it ran: the next successor
// shall have it.
bool Abandoned(const Candidate& candidate);

// When a pod that is terminating was deleted, or evicted; max(): it is not.
WallTime AskedToEnd(const kube::Pod& pod);

// The unclaimed final checkpoint without which `pod` runs, or has run, in the place of the checkpointed one, because no gate held
// it: the webhook did not answer; or null: there is none, or it is known (PassedOver).
CheckpointPtr ColdBeside(const World& seen, WallTime now);
// What the condition and the events say of it: what is lost, and what brings it back.
std::string ColdBesideText(const World& seen, const api::Checkpoint& checkpoint);

}  // namespace holdfast::reconcilers::claim
