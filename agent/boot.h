// Which boot of its node this is. What lay in /run is gone after another one, and what nobody synced may be anything.
#pragma once

#include <optional>
#include <string>

namespace holdfast::agent {

// When a process began, in ticks since the kernel's boot (field 22 of /proc/PID/stat, proc(5)). Nothing: it has ended.
std::optional<long long> StartTicks(const std::string& pid, const std::string& proc = "/proc");

// The kernel's boot id, and when the node's first process began: nodes that are containers themselves (kind, k3d) start anew under the
// kernel that was there. `proc`: of the node's pid namespace. Empty: not known.
std::string BootId(const std::string& proc = "/proc");

// By the ids of its boots. An empty id is not known, and says no; one of before the first process was part of it is compared by what it
// has.
bool NodeRestarted(const std::string& boot_then, const std::string& boot_now);

}  // namespace holdfast::agent
