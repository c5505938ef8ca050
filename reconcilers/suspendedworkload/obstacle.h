// Why a suspension cannot begin now, said before any pod is frozen.
#pragma once

#include "reconcilers/suspendedworkload/step.h"

namespace holdfast::reconcilers::suspendedworkload {

struct Obstacle {
  const char* reason;  // of the condition Suspended
  std::string message;
};

// `seen` has a target. Nothing: it can begin.
std::optional<Obstacle> ObstacleFor(const World& seen);

std::string TargetText(const World& seen);  // "Deployment web"

}  // namespace holdfast::reconcilers::suspendedworkload
