// What the tasks of a checkpoint may do, compared with what the new container may. Hostile input.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "base/json.h"
#include "base/status.h"

namespace holdfast::runtime {

// The seccomp filters of the tasks, by their places in seccomp.img.
struct TaskFilters {
  std::set<uint32_t> last;    // those that a task has last
  std::set<uint32_t> shared;  // of these those that must be set for all threads of their process at once
};

// Of every process that is in the images' tree, with its threads. kFailedPrecondition: a task would hold a capability that `spec` does not
// bound, lack no_new_privs or a seccomp filter, be confined by another AppArmor profile or SELinux type, be another user or of another
// group where it could not have become one, have a limit above the spec's, be spared by the OOM killer, or run in real time.
Result<TaskFilters> CheckImageTasks(const std::string& images, const Json& spec);

}  // namespace holdfast::runtime
