// What CRIU cannot dump, found before anything is frozen: a failed dump costs a freeze, and one of these hangs it.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace holdfast::runtime {

// kUnsupported names the process and what it holds. `proc`: where procfs is mounted. Processes that end meanwhile are passed over.
Status CheckDumpable(const std::vector<int>& pids, bool unified_cgroup, const std::string& proc = "/proc");

}  // namespace holdfast::runtime
