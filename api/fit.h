// Whether a pod is made so that a checkpoint's processes find in it what they had: room for their memory, and their mounts. What CRIU would
// find out in the middle of a restore, asked before the checkpoint is given to anybody.
#pragma once

#include <optional>
#include <string>

#include "api/checkpoint.h"
#include "kube/objects.h"

namespace holdfast::api {

// Where a container's volumes are mounted, as a list of {path, readOnly}: a part of its record in status.security (api/security.h), from
// the API server's object of the pod.
Json MountsOf(const kube::Container& container);

// Why this pod cannot hold what the checkpoint has, and what to change, for people; nothing when it can, or when that is not known
// (checkpoints of earlier releases). Compared for each container by name:
// - its memory limit with the pages that were dumped (status.containers[].pages). File caches and the pod's own tmpfs volumes are not in
//   there, so a limit that passes may still be too tight;
// - the places of its mounts, each of which must be one of the new container, and writable if it was. More of them do no harm: restored
//   processes do not see those.
// Pure.
std::optional<std::string> RefusedByFit(const Checkpoint& checkpoint, const kube::Pod& pod);

}  // namespace holdfast::api
