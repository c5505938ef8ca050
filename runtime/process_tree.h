// A process and what came from it, held still and let go: for CRIU, which must not be killed at any moment.
#pragma once

#include <sys/types.h>

#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace holdfast::runtime {

// The descendants of `pid`, without itself; what ends or begins meanwhile may be missing. At most 1024.
std::vector<pid_t> Descendants(pid_t pid);
// SIGSTOP to all descendants of `pid`, new ones too, until none of them runs. kDeadlineExceeded when one still does after `limit`.
Status StopDescendants(pid_t pid, Duration limit);
void ContinueDescendants(pid_t pid);

}  // namespace holdfast::runtime
