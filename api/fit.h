// Whether a pod is made so that a checkpoint's processes find in it what they had: room for their memory, and their mounts. What CRIU would
// find out in the middle of a restore, asked before the checkpoint is given to anybody.
#pragma once

#include <optional>
#include <string>

#include "api/checkpoint.h"
#include "kube/objects.h"

namespace holdfast::api {

// {memory, mounts: [{path, readOnly}]}: a container's memory limit ("": it has none), and where its volumes are mounted. A part of its
// record in status.security (api/security.h), from the API server's object of the pod.
Json FitOf(const kube::Container& container);

// Why this pod cannot hold what the checkpoint has, and what to change, for people; nothing when it can, or when that is not known
// (checkpoints of earlier releases). Compared for each container by name:
// - a memory limit that is smaller than it was, with the pages that were dumped (status.containers[].pages). File caches and the pod's own
//   tmpfs volumes are not in there, so a limit that passes may still be too tight; System V shared memory of its neighbours is, so what
//   fitted once is not asked again;
// - the places of its mounts, each of which must be one of the new container, and writable if it was. More of them do no harm: restored
//   processes do not see those.
// Pure.
std::optional<std::string> RefusedByFit(const Checkpoint& checkpoint, const kube::Pod& pod);

}  // namespace holdfast::api
