// The Checkpoints that concern a pod, as the API server has them now. What is asked for, and what is kept in memory, grows with the pod's
// own workload, not with its namespace: fields that the CRD lets be selected name it, in checkpoints of every release. Where the CRD is an
// earlier one, and names no such fields, the namespace is read item by item: dearer, and the same is found.
#pragma once

#include "reconcilers/claim/step.h"
#include "reconcilers/context.h"

namespace holdfast::reconcilers::claim {

// Those of the pod's owner, those that it has claimed, the one that it asks for by name, and, of pods of its seat that are being stopped
// (world.stopping), those that are not assigned yet and so name no owner. By name, each once.
Result<std::vector<CheckpointPtr>> LiveCheckpoints(kube::Client& client, const World& world, std::stop_token stop);

}  // namespace holdfast::reconcilers::claim
