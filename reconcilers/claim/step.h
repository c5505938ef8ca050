// What a pod that waits behind the scheduling gate holdfast.dev/claim gets: a checkpoint, patience, or a cold start with its reason. Pure.
#pragma once

#include <optional>

#include "reconcilers/claims.h"
#include "reconcilers/lineage.h"
#include "reconcilers/text.h"

namespace holdfast::reconcilers::claim {

struct Candidate {
  CheckpointPtr checkpoint;
  PodPtr pod;       // the checkpointed one (same uid); null: gone
  PodPtr claimant;  // the one that status.claim names (same uid); null: none or gone
  NodePtr node;     // where the checkpoint was taken; null: none, or its object was deleted
};

struct World {
  PodPtr pod;
  Lineage lineage;
  Protection protection;
  std::vector<Candidate> candidates;  // all of the pod's namespace
};

enum class Action {
  kNothing,
  kWait,     // again later; the gate stays
  kClaim,    // write status.claim of `checkpoint`, then ask again
  kUnclaim,  // drop a used claim of `checkpoint`, then ask again
  kRelease,  // open the gate, restoring from `checkpoint`
  kCold,     // open the gate without it
};

struct Step {
  Action action = Action::kNothing;
  CheckpointPtr checkpoint;  // of kCold: the one whose state is not used, if any
  std::string why;
  std::optional<Notice> notice;
  std::optional<Duration> again;
};

Step Next(const World& seen, WallTime now);

// A claim whose pod vanished before it restored anything: the next successor shall have it.
bool Abandoned(const Candidate& candidate);

// The unclaimed final checkpoint beside which `pod` runs cold, because it was admitted while the webhook was down; or null.
CheckpointPtr ColdBeside(const World& seen, WallTime now);

bool Gated(const kube::Pod& pod);

}  // namespace holdfast::reconcilers::claim
