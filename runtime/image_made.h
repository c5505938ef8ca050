// What a restore makes anew by the images, as root: files that were deleted while they were open, and networks. Hostile input.
#pragma once

#include <string>

#include "base/json.h"
#include "base/status.h"

namespace holdfast::runtime {

// kFailedPrecondition: a device, a link, a program that runs as its owner in a container of another user than root, or a network that is
// not the pod's.
Status CheckImageMade(const std::string& images, const Json& spec);

}  // namespace holdfast::runtime
