// What to do next for one Checkpoint, from what is seen of the world. Pure: every decision of the controller about a Checkpoint up to
// Assigned, about its end, and nothing else; from Freezing on the agent of its node decides.
#pragma once

#include <optional>

#include "reconcilers/claims.h"
#include "reconcilers/lineage.h"
#include "reconcilers/text.h"

namespace holdfast::reconcilers::checkpoint {

// Whether a drain may freeze this pod now (reconcilers/drain/admission.h).
struct Admission {
  bool granted = false;
  std::string waits_for;  // why not
  bool budget = false;    // a PodDisruptionBudget is why: letting go would not end the pod either
};

struct World {
  CheckpointPtr checkpoint;
  PodPtr pod;              // the one of podRef.name now, whatever its uid; null: none
  NodePtr node;            // of `pod`; when there is none, where the checkpoint is being made
  Lineage lineage;         // of `pod`
  CheckpointPtr other;     // another one that has this pod in hand
  PodPtr claimant;         // the pod that status.claim names, if it still exists
  bool last_good = false;  // the newest Ready one of a workload that still exists
  std::optional<Admission> admission;
  int64_t term = 0;  // of leadership: ours
};

enum class Action {
  kNothing,
  kPrepare,       // patch metadata and spec: finalizer, uid
  kAskAdmission,  // find World::admission and ask again
  kPatchStatus,
  kReclaim,        // status.claim := the checkpointed pod itself, so that the agent thaws it
  kDelete,         // the Checkpoint
  kRemoveContent,  // delete what the store holds, then drop the finalizer
};

struct Step {
  Action action = Action::kNothing;
  Json patch;  // of kPrepare and kPatchStatus; who sends it adds what it is locked to (reconcilers/context.h)
  std::string why;
  std::optional<Notice> notice;
  std::optional<Duration> again;
};

Step Next(const World& seen, WallTime now);

// Which of `checkpoints` (all of one owner) retention drops: Drain ones that led to a restore (or failed) beyond the newest `keep_last` of
// their ordinal, except what a live pod came from and has no newer one for; Interval ones beyond the newest `keep_last` of their pod, and
// those whose pod went on from another one. `pod_lives` answers for a pod uid.
std::vector<CheckpointPtr> Superseded(std::vector<CheckpointPtr> checkpoints, int64_t keep_last,
                                      const std::function<bool(const std::string& pod_uid)>& pod_lives);

}  // namespace holdfast::reconcilers::checkpoint
