// What the seccomp filters of a checkpoint let pass, compared with the profile that the new container's spec has. Hostile input.
#pragma once

#include <string>

#include "base/json.h"
#include "base/status.h"
#include "runtime/image_tasks.h"

namespace holdfast::runtime {

// Each filter that a task has last, with all that come before it (seccomp.img). kFailedPrecondition: they let a call pass that the profile
// refuses, or threads that share them would not get them. Not compared, since the default profiles of two releases of a runtime differ in
// them, and pods move between them when nodes are upgraded: calls that came with Linux 5.1 and later, but for those that mount or clone,
// and arguments, but for what clone makes.
Status CheckImageSeccomp(const std::string& images, const Json& spec, const TaskFilters& filters);

}  // namespace holdfast::runtime
