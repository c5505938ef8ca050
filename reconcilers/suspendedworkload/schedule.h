// spec.schedule at a moment: what was due last, and what is next.
#pragma once

#include "api/suspended_workload.h"
#include "reconcilers/suspendedworkload/cron.h"

namespace holdfast::reconcilers::suspendedworkload {

struct Due {
  WallTime at{};
  bool suspend = false;  // at the same time both are due: this
};

struct Schedule {
  std::string problem;  // why it cannot be followed, and what to write; then nothing is due
  std::optional<Due> last, next;
};

// Reads the time zone from `zones`, the system's folder of them.
Schedule ScheduleOf(const api::SuspendedWorkload& object, WallTime now, const std::string& zones = "/usr/share/zoneinfo");

}  // namespace holdfast::reconcilers::suspendedworkload
