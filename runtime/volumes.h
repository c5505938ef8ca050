// A pod's volumes and /dev/shm in a restore: filled before anything of it runs, and never again after something may have written to them.
// All of it under the pod's lock.
#pragma once

#include "base/clock.h"
#include "base/status.h"
#include "runtime/node.h"
#include "runtime/protocol.h"
#include "runtime/spec.h"

namespace holdfast::runtime {

// True when a container was restored from the checkpoint in `dir`, or was let start beside those that are restored from it.
bool VolumesAreInUse(const std::string& dir);
Status MarkVolumesInUse(const std::string& dir);

// Empties and fills them as `answer` says, unless they are in use, or it is not the first of its pod that is restored. Other containers of
// the pod that run already stand still meanwhile. `spec`: of one of its containers.
Status FillVolumes(const Node& node, const std::string& runc_root, const Spec& spec, const CreateAnswer& answer);

// Before a cold start in place of a restore that failed: empty, as a new pod has them; or, where other containers are still to be restored,
// as the checkpoint has them, and in use from now on: they are the pod's, and outlive the containers that crash in it.
Status ResetVolumes(const Node& node, const std::string& runc_root, const Spec& spec, const CreateAnswer& answer);

}  // namespace holdfast::runtime
