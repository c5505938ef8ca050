// Who may be frozen now, of the pods that somebody drains: the node's limit, a namespace after the other, priority, one slot of every
// PodDisruptionBudget each, and no more at a time than the node can store by their deadlines (pace.h). Pure; the dry run of the eviction,
// which decides in the end, is the runner's.
#pragma once

#include "reconcilers/checkpoint/step.h"

namespace holdfast::reconcilers::drain {

struct Seat {
  CheckpointPtr checkpoint;
  PodPtr pod;         // null: gone already
  int64_t bytes = 0;  // that it is expected to be; 0: not known
};

struct Traffic {
  std::vector<Seat> granted;             // in an agent's hands, or Ready while the pod is still there
  std::vector<Seat> waiting;             // Pending, `me` among them or not
  std::vector<PdbPtr> budgets;           // of their namespaces
  std::vector<CheckpointPtr> done_here;  // of me's node, whatever became of their pods: how fast it is
  int max_per_node = 4;
  Duration longest = std::chrono::hours(1);  // that one may be under way
  WallTime now;
};

checkpoint::Admission Admit(const Seat& me, const Traffic& traffic);

}  // namespace holdfast::reconcilers::drain
