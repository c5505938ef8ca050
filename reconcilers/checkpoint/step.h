// What to do next for one Checkpoint, from what is seen of the world. Pure: every decision of the controller about a Checkpoint up to
// Assigned, about its end, and about one that is made anew around what the store has; from Freezing on the agent of its node decides.
#pragma once

#include <optional>

#include "reconcilers/checkpoint/contents.h"
#include "reconcilers/claims.h"
#include "reconcilers/group/cut.h"
#include "reconcilers/lineage.h"
#include "reconcilers/text.h"

namespace holdfast::reconcilers::checkpoint {

// Whether a drain may freeze this pod now (reconcilers/drain/admission.h).
struct Admission {
  bool granted = false;
  std::string waits_for;            // why not
  bool budget = false;              // a PodDisruptionBudget is why: letting go would not end the pod either
  bool queued = false;              // others of its node are before it, and get on
  int64_t position = 0;             // its place among those that wait on its node, from 1 on; 0: it has none
  std::optional<Duration> about{};  // until its turn, as far as can be told
  std::optional<Duration> most{};   // of those that are granted: how long it may be under way, whatever its spec says
};

struct World {
  CheckpointPtr checkpoint;
  PodPtr pod;                        // the one of podRef.name now, whatever its uid; null: none
  NodePtr node;                      // of `pod`; when there is none, where the checkpoint is being made
  Lineage lineage;                   // of `pod`
  CheckpointPtr other;               // another one that has this pod in hand
  PodPtr claimant;                   // the pod that status.claim names, if it still exists
  std::string policy;                // RestorePolicy that the pod follows; empty: the built-in one
  std::string group;                 // of `pod`, where one is to be asked about it: the checkpoint may open a cut
  std::vector<group::Member> mates;  // the pods of that group now
  std::string leaving;               // another one of that group, which is being deleted: one in its place may come
  size_t mates_before = 0;           // members of the last good cut that `pod` was in
  std::vector<group::Member> cut;    // the members of spec.cut
  bool relied_on = false;            // a SuspendedWorkload is just ending its pod, because its state is here
  std::string over_quota;            // why the namespace may have no further one; empty: it may
  std::optional<Admission> admission;
  std::optional<Result<Content>> content;  // that its annotation holdfast.dev/manifest names
  int64_t term = 0;                        // of leadership: ours
};

enum class Action {
  kNothing,
  kPrepare,       // patch metadata and spec: finalizer, uid, cut
  kOpenCut,       // create the Checkpoints of World::cut that are not there
  kAskAdmission,  // find World::admission and ask again
  kAskStore,      // find World::content and ask again
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

}  // namespace holdfast::reconcilers::checkpoint
