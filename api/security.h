// What the processes of a checkpoint were allowed to do, and whether a pod may have them back. CRIU restores a process with the user, the
// capabilities, no_new_privs and the seccomp filters that it had, whatever the new pod's securityContext says: so what is restored may be
// no more than what the new pod is allowed itself.
//
// The record is what the API server had of the pod when its checkpoint was assigned, in Kubernetes' words. The controller writes it into
// status.security, and no agent can (the chart's policies): what a node says of its own images does not count here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/checkpoint.h"
#include "kube/objects.h"

namespace holdfast::api {

// status.security of a checkpoint of this pod: {hostNetwork, hostPID, hostIPC, containers: [{name, image, privileged, runAsUser, …,
// memory, mounts}]}. What is not said is left out; memory is "" where there is no limit.
Json SecurityOf(const kube::Pod& pod);

// Why the pod may not have what this checkpoint holds, by its rights and its images, for people; nothing when it may. A checkpoint without
// the record (made by an earlier release) is not refused. Pure.
std::optional<std::string> RefusedBySecurity(const Checkpoint& checkpoint, const kube::Pod& pod);

// Whether the container may change its pod's network (addresses, routes, filters). What it does there is the sandbox's, and in no
// checkpoint.
bool MaySetUpNetwork(const kube::Container& container);

// `kept`: the digest of the image that a checkpointed container ran. `here`: the digests by which the node knows the image that the new one
// is made of. False: it is another one. Either of them unknown says nothing.
bool SameImage(const std::string& kept, const std::vector<std::string>& here);

}  // namespace holdfast::api
