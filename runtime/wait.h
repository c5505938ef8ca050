// What holdfast-wait does: follows the state file until the pod's memory is on its node.
#pragma once

#include <functional>
#include <string>

#include "base/clock.h"

namespace holdfast::runtime {

// Reads `state_path` every 20 ms. Prints a progress line when something changed, at most one a second and always the last one.
// Returns the exit code: 0 on ready or cold, 1 on failed or when stopped.
int WaitForState(const std::string& state_path, Clock& clock, const std::function<void(const std::string&)>& print,
                 std::stop_token stop = {});

}  // namespace holdfast::runtime
