// What CRIU would give the processes of a checkpoint, compared with what the new container may have: whoever has root on the node that made
// the images can write into them what he likes. Asked before anything is restored. Hostile input.
#pragma once

#include <string>

#include "base/status.h"
#include "runtime/spec.h"

namespace holdfast::runtime {

// Reads the few images that say what a task may do, never memory. kFailedPrecondition: a task would hold a capability that `spec` does not
// bound, lack no_new_privs or a seccomp filter, be another user where it could not have become one, or stand in a namespace of the node.
// kDataLoss: damaged, or of another CRIU. Images without an inventory are left to CRIU, which restores none.
Status CheckImageRights(const std::string& images, const Spec& spec);

}  // namespace holdfast::runtime
