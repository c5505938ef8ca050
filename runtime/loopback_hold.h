// CRIU restores sockets one after the other, and containers of one pod come one after the other: what a socket sends to one that is not
// there yet (CRIU lets it send what was never sent before) would be answered by a reset, and end the connection. So resets on lo are
// dropped until the last one is there; what was lost meanwhile, TCP sends again by itself.
#pragma once

#include <string>

#include "base/status.h"

namespace holdfast::runtime {

Result<bool> HoldLoopback(const std::string& netns_path);  // idempotent; false on a kernel without nftables
Status ReleaseLoopback(const std::string& netns_path);     // OK when it is not held

}  // namespace holdfast::runtime
