// The cgroups that a checkpoint names: CRIU makes them and writes their files as root, by path. Hostile input.
#pragma once

#include <set>
#include <string>

#include "base/status.h"

namespace holdfast::runtime {

// `hierarchies`: the controllers of this node as a process's cgroup file names them ("cpu", "name=systemd", "" for the unified one).
// kFailedPrecondition: what is named is not the container's one cgroup of each hierarchy and what is beneath it, for which runc's own takes
// its place at a restore; or it would be given to another user.
Status CheckImageCgroups(const std::string& images, const std::set<std::string>& hierarchies);

// From /proc/self/cgroup.
Result<std::set<std::string>> CgroupHierarchies();

}  // namespace holdfast::runtime
