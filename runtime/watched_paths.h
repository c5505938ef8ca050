// What processes watch by inotify. The kernel tells inodes, and CRIU wants paths: it opens inodes by their handles, which overlayfs does
// not let it, and else looks only where it was told to (irmap-scan-path).
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace holdfast::runtime {

// The paths, as the container sees them, of all that `pids` watch; they share one mount namespace. kUnsupported when one has no name (any
// more), or is not found among the first million files. Nothing is looked for when nothing is watched.
Result<std::vector<std::string>> WatchedPaths(const std::vector<int>& pids, const std::string& proc = "/proc");

}  // namespace holdfast::runtime
