// What becomes of a protected pod that something else than a drain stops: kubectl delete, a taint, a preemption by the scheduler, a drain
// without evictions. When its owner wants it back, it is checkpointed in place of its signal; else it is let go, and its agent, which holds
// the signal back for a moment, is told so. Pure.
#pragma once

#include "reconcilers/claims.h"
#include "reconcilers/lineage.h"

namespace holdfast::reconcilers::stop {

struct World {
  PodPtr pod;
  NodePtr node;
  Lineage lineage;
  Protection protection;
  WorkloadPtr parent;              // its ReplicaSet, StatefulSet or Job as the API server has it now; null: gone, or of another kind
  std::vector<PodPtr> siblings;    // all pods of that parent
  std::vector<CheckpointPtr> own;  // of this pod
};

enum class Action {
  kNothing,
  kCheckpoint,  // create a final Checkpoint with trigger Stop
  kLetGo,       // annotate the pod with holdfast.dev/let-go: `why`
};

struct Step {
  Action action = Action::kNothing;
  std::string why;
};

// A pod under our RuntimeClass that ends, of which nobody has said yet whether its state is kept: who wants that waits.
bool Undecided(const kube::Pod& pod, const std::vector<CheckpointPtr>& own);

Step Next(const World& seen, WallTime now);

}  // namespace holdfast::reconcilers::stop
