// What a container sees at /sys/fs/cgroup. runc has CRIU mount there the cgroups in which runc itself runs, not the container's: a program
// that reads its limit would see another's, or none.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "runtime/spec.h"

namespace holdfast::runtime {

struct CgroupMount {
  std::string path;              // as the container sees it
  std::string own;               // the cgroup that belongs there, as a folder of the node
  unsigned long attributes = 0;  // MOUNT_ATTR_*
};
// Those of a process's mountinfo that show another cgroup than its container's. `at`: where its spec has its cgroups mounted; what it sees
// elsewhere, a folder of the node perhaps, is as it should be. `own`: the folder in each hierarchy, by the names of its
// controllers, as runc's state has them; "" for cgroup v2. What is not of these hierarchies is left as it is.
std::vector<CgroupMount> StrayCgroupMounts(std::string_view mountinfo, const std::vector<std::string>& at,
                                           const std::map<std::string, std::string>& own);

// Puts each container's own cgroups where others are mounted, with the flags that those had. The container runs already.
Status MendCgroupView(const std::string& runc_root, const std::string& container_id, const Spec& spec);

}  // namespace holdfast::runtime
