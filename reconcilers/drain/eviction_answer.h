// What an eviction request of a pod is answered, from what is seen. Pure, and never an error: 429 makes every drainer come again, anything
// else would make it give up.
#pragma once

#include <optional>

#include "reconcilers/claims.h"
#include "reconcilers/lineage.h"
#include "reconcilers/text.h"

namespace holdfast::reconcilers::drain {

// How long a failed attempt speaks for the pod. Later an eviction belongs to another drain, and gets an attempt of its own.
inline constexpr Duration kAttemptStands = std::chrono::minutes(10);
inline constexpr Duration kAfterReclaim = std::chrono::seconds(60);
// A pod that is kept frozen and still was not evicted by us: whoever asks may end it.
inline constexpr Duration kEvictingStands = std::chrono::seconds(60);

// kubectl asks again every 5 s by the pod's name alone. So long after a pod was moved, such a request means that pod, not the one of the
// same name that took its place (StatefulSets).
inline constexpr Duration kOldRequestStands = std::chrono::seconds(60);

// A pod that is being restored is checkpointed once it runs; so long after its restore began it is not waited for any more.
inline constexpr Duration kRestoreStands = std::chrono::minutes(5);

struct EvictionWorld {
  std::string ns, name;
  std::string asked_uid;  // of the request's preconditions; empty: any
  PodPtr pod;             // null: not known
  Protection protection;
  std::vector<CheckpointPtr> checkpoints;   // of this pod's uid
  std::vector<CheckpointPtr> predecessors;  // of other uids, with this pod's name
  NodePtr node;                             // of the pod
  CheckpointPtr restored_from;              // of one that does not run yet: what its gate was opened with; null: nothing
  bool store_down = false;                  // known, not suspected
};

struct EvictionAnswer {
  bool allow = true;
  bool gone = false;    // refused with NotFound: the pod that was meant is not there any more
  std::string message;  // of the refusal
  bool create = false;  // make the checkpoint of attempt `ordinal`
  int ordinal = 0;
  std::optional<Notice> notice;  // once a pod
};

EvictionAnswer AnswerEviction(const EvictionWorld& seen, WallTime now);

}  // namespace holdfast::reconcilers::drain
