// spec.idle at a moment: is the workload used? Its nodes' agents say so of each pod (api/idle.h); here it is put together, and made into
// what the user could have asked for as well: spec.state: Suspended.
#pragma once

#include "reconcilers/suspendedworkload/step.h"

namespace holdfast::reconcilers::suspendedworkload {

struct Use {
  std::string status, reason, message;  // of the condition Idle. True: every pod is idle
  std::optional<WallTime> since;        // when the last of them was active; with status True
  std::optional<Duration> due_in;       // until it has been idle for spec.idle.after; 0: it has
};

// `seen` has a target and spec.idle.
Use UseOf(const World& seen, WallTime now);

// What is to be done for it, before everything else; nothing: go on. Shortens `again`.
std::optional<Step> NextIdle(const World& seen, WallTime now, std::optional<Duration>* again);

// Nobody is to measure its pods any more.
std::optional<Step> Unwatch(const World& seen);

}  // namespace holdfast::reconcilers::suspendedworkload
