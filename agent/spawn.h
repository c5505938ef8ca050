// Starts a program that outlives us: in another mount namespace, in a session of its own, out of our cgroup (a runtime kills whatever is
// left in a container's cgroup when its first process ends, because the container has no process namespace of its own).
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace holdfast::agent {

struct SpawnOptions {
  int mount_namespace_of_pid = 0;
  std::vector<std::string> cgroup_procs;  // files as that namespace sees them; the child writes itself into each that it can
  std::string lock_file;  // opened here, locked exclusively and kept by the child for as long as it and its children live; gets its pid
  std::string output_file;
};

// The child's pid once it has executed argv[0]. kAlreadyExists when the lock is held.
Result<int> SpawnDetached(const std::vector<std::string>& argv, const SpawnOptions& options);

// Where to write a pid so that it leaves our cgroup for the root of each hierarchy, for a node whose root is at `root`.
std::vector<std::string> RootCgroups(const std::string& root);

}  // namespace holdfast::agent
