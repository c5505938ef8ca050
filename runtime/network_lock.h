// CRIU drops the packets of the connections it dumps, by nftables rules in the pod's network. A CRIU that was killed leaves them there.
#pragma once

#include <string>

#include "base/status.h"

namespace holdfast::runtime {

// Removes every nftables table of CRIU's. How many there were.
Result<int> RemoveNetworkLock(const std::string& netns_path);

}  // namespace holdfast::runtime
