// Where a successor may run: not on nodes whose processor or kernel lacks what its checkpoint's processes may have begun to use.
#pragma once

#include "reconcilers/view.h"

namespace holdfast::reconcilers::claim {

struct Placement {
  Json affinity;    // of a merge patch for spec.affinity; null: it may run wherever it may
  std::string why;  // no node that is there now can restore it: what one of them lacks. It waits for one then
};

// `pod` is as the API server has it: node affinities of a gated pod may only be added to. `nodes`: those that are ready for us.
Placement PlacementFor(const Json& pod, const api::Checkpoint& checkpoint, const std::vector<NodePtr>& nodes);

}  // namespace holdfast::reconcilers::claim
