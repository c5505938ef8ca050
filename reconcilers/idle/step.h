// holdfast.dev/suspend-when-idle: 30m on a Deployment or StatefulSet stands for a SuspendedWorkload of the same name with that
// spec.idle.after: made, kept true to the annotation, and deleted with it, which resumes what sleeps. What a user made for the workload
// comes first, and the annotation does nothing then. Pure.
#pragma once

#include <optional>

#include "reconcilers/text.h"
#include "reconcilers/view.h"

namespace holdfast::reconcilers::idle {

struct World {
  std::string kind;  // of the workload
  WorkloadPtr workload;
  SuspendedPtr named;               // the SuspendedWorkload of its name; null: none
  std::vector<SuspendedPtr> of_it;  // all that name it
};

enum class Action { kNothing, kCreate, kPatch, kDelete };

struct Step {
  Action action = Action::kNothing;
  Json object;                   // of kCreate whole, of kPatch a merge patch; of `named`, as is kDelete
  std::optional<Notice> notice;  // about the workload
};

Step Next(const World& seen);

}  // namespace holdfast::reconcilers::idle
