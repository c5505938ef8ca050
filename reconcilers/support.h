// What cannot be checkpointed, said before anything is frozen.
#pragma once

#include <optional>

#include "reconcilers/view.h"

namespace holdfast::reconcilers {

// Why this pod can never be checkpointed as it is, and what to do. Nothing: it can, as far as its spec tells.
std::optional<std::string> UnsupportedPod(const kube::Pod& pod);
// The same for a checkpoint of it: `final` ones need our RuntimeClass; the node must have passed the agent's probe.
std::optional<std::string> UnsupportedHere(const kube::Pod& pod, const kube::Node* node, bool final);
// Why a pod that is to be protected is not, as long as it is the pod that it is, and what to do. Nothing: it is.
std::optional<std::string> Unprotected(const kube::Pod& pod);

}  // namespace holdfast::reconcilers
