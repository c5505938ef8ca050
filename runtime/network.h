// The old-address trick: a restored process finds its old pod address on `lo`, so CRIU can rebuild its TCP connections; those that lead
// outside are then reset, and the address goes. Addresses are text, IPv4 or IPv6, without prefix length.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace holdfast::runtime {

// Global addresses of every interface but lo, IPv4 first.
Result<std::vector<std::string>> GlobalAddresses(const std::string& netns_path);
// OK when it is there already / not there any more.
Status AddLoopbackAddress(const std::string& netns_path, const std::string& address);
Status RemoveLoopbackAddress(const std::string& netns_path, const std::string& address);
// Resets every TCP connection whose source is `address` (IPv4 also in its IPv6-mapped form); listeners stay. How many were reset.
Result<int> ResetConnections(const std::string& netns_path, const std::string& address);
// Programs that ask for Multipath TCP get plain TCP from then on (Go's net.Listen asks by itself), which CRIU can dump. OK where the kernel
// has none.
Status TurnOffMultipathTcp(const std::string& netns_path);
bool IsAddress(const std::string& text);

}  // namespace holdfast::runtime
