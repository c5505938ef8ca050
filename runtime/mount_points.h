// What is mounted where: a process's mountinfo (proc_pid_mountinfo(5)).
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace holdfast::runtime {

constexpr size_t kMaxMountinfo = 64 << 20;  // bytes

struct MountPoint {
  dev_t device;
  std::string path;
  unsigned long flags;        // MS_*
  std::string type, options;  // the file system's own options
  std::string root;           // what of the file system is mounted
  bool read_only;
};
// Every mount of a mountinfo, in its order.
std::vector<MountPoint> MountPointsIn(std::string_view mountinfo);

// Unmounts all that is mounted beneath the folder `path`, the newest first: CRIU mounts its view of the cgroups where it works, and one
// that was killed leaves it there. OK when there is none, or no such folder.
Status UnmountBeneath(const std::string& path);
// The same, and removes the folder with all that is in it.
Status UnmountAndRemove(const std::string& path);

}  // namespace holdfast::runtime
