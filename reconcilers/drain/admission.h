// Who may be frozen now, of the pods that somebody drains: the node's limit, priority, and one slot of every PodDisruptionBudget each. Of
// the node's places the last one is not for a namespace that has all the others, while pods of another one wait there. Pure; the dry run of
// the eviction, which decides in the end, is the runner's.
#pragma once

#include "reconcilers/checkpoint/step.h"

namespace holdfast::reconcilers::drain {

struct Seat {
  CheckpointPtr checkpoint;
  PodPtr pod;  // null: gone already
};

struct Traffic {
  std::vector<Seat> granted;    // in an agent's hands, or Ready while the pod is still there
  std::vector<Seat> waiting;    // Pending, `me` among them or not
  std::vector<PdbPtr> budgets;  // of me's namespace
  int max_per_node = 4;
  WallTime now;
};

checkpoint::Admission Admit(const Seat& me, const Traffic& traffic);

}  // namespace holdfast::reconcilers::drain
