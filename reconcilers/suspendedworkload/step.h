// A workload that may sleep: what comes next for it, from what is seen of the world. Pure.
//
//   Running ─► Suspending ─► Suspended ─► Resuming ─► Running
//      ▲            │ taken back: the checkpoints are deleted, so the pods are thawed
//      └────────────┘
//
// Suspending has two halves. Until status.durable each pod gets a final checkpoint, and stays frozen after it; any failure takes all of it
// back. With status.durable, written when all of them are stored, the workload is scaled to 0 under the lock of its own version. Whether it
// sleeps, the workload itself says: the annotation api::kAsleep comes and goes in the very patches that stop and start it, so whoever dies
// in between leaves nothing to guess. A workload that has the annotation and is not stopped was scaled by somebody else, who has the last
// word until spec changes.
//
// A bare pod cannot say anything while there is none. What stops it is its deletion, for the version that was seen, after its manifest was
// sealed into the very patch that wrote status.durable; a pod of its name that is not the one that was stored is somebody else's word.
#pragma once

#include <optional>

#include "reconcilers/claims.h"
#include "reconcilers/lineage.h"
#include "reconcilers/suspendedworkload/schedule.h"
#include "reconcilers/suspendedworkload/target.h"
#include "reconcilers/text.h"

namespace holdfast::reconcilers::suspendedworkload {

inline constexpr Duration kDeadline = std::chrono::seconds(100);            // of each checkpoint
inline constexpr Duration kAttempt = kDeadline + std::chrono::seconds(30);  // of all of them
inline constexpr Duration kStop = std::chrono::minutes(1);                  // then, to scale to 0
inline constexpr Duration kFirstRetry = std::chrono::seconds(10), kLastRetry = std::chrono::minutes(10);
inline constexpr size_t kMaxPods = 256;  // as in the CRD

// A pod of the workload that has not ended.
struct Member {
  PodPtr pod;
  api::Owner seat;
  NodePtr node;
  std::vector<CheckpointPtr> checkpoints;  // of this pod
};

struct World {
  SuspendedPtr object;
  std::optional<Schedule> schedule;  // where it has one
  WorkloadPtr target;                // null: there is none
  Protection protection;
  std::vector<Member> members;
  std::vector<CheckpointPtr> kept;      // those of status.checkpoints, in its order; null: there is none of that name
  std::vector<CheckpointPtr> of_owner;  // all of the workload
  std::string rival;                    // another object of this workload, which came first; empty: none
  bool store_down = false;              // known, not suspected
  std::map<std::string, int64_t> busy;  // checkpoints that are under way, by node
  int64_t max_per_node = 4;
  Prices prices;
  bool bare_pods = false;                     // the operator lets us delete them and make them again
  std::optional<Result<std::string>> sealed;  // of a bare pod, in a live look: what is to be kept of it
};

enum class Action {
  kNothing,
  kAddFinalizer,
  kPatchObject,  // metadata and spec
  kPatchStatus,
  kCheckpoint,  // create those of `names`
  kDiscard,     // delete `checkpoints`: their pods are thawed
  kPatchTarget,
  kEndPod,   // delete `pod`, if it still is as it was seen
  kMakePod,  // of what status.sealedPod has; from `checkpoint`
  kPatchPod,
  kDropFinalizer,
};

struct Step {
  Action action = Action::kNothing;
  Json patch;              // of kPatchObject, kPatchStatus, kPatchTarget and kPatchPod; who sends it adds what it is locked to
  PodPtr pod;              // of kPatchPod and kEndPod
  std::string checkpoint;  // of kMakePod; empty: none is left
  bool live = false;       // more than a word about it: to be decided again on what the API server has now, which a cache may not show yet
  std::vector<std::pair<PodPtr, std::string>> names;  // of kCheckpoint: of which pod, under which name
  std::vector<CheckpointPtr> checkpoints;
  std::string why;
  std::optional<Notice> notice;  // about the SuspendedWorkload
  std::optional<Duration> again;
};

Step Next(const World& seen, WallTime now);

// Its state was overridden by somebody's scaling it up, after whom neither the user nor the schedule has spoken.
bool Overridden(const World& seen);

// How long after the n-th failure in a row (from 1) the next attempt is made.
Duration Backoff(int64_t failures);

}  // namespace holdfast::reconcilers::suspendedworkload
