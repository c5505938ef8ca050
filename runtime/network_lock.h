// CRIU drops the packets of the connections it dumps, by nftables rules in the pod's network, and puts their sockets into repair mode. A
// CRIU that was killed leaves both: the pod would go on without its connections.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace holdfast::runtime {

// Removes every nftables table of CRIU's. How many there were.
Result<int> RemoveNetworkLock(const std::string& netns_path);
// Ends the repair mode of every TCP socket that the processes hold; they may be frozen. How many there were.
int EndSocketRepair(const std::vector<int>& pids);

}  // namespace holdfast::runtime
