// What was made for one pod and for it alone: only this is read into a checkpoint, emptied or filled, wherever a path may lead.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace holdfast::runtime {

// kInvalidArgument unless `path` is where a kubelet puts the emptyDir `volume` of this pod.
Status CheckEmptyDir(const std::string& path, const std::string& pod_uid, const std::string& volume);

// The tmpfs that the runtime mounted for this sandbox, and that its containers see as /dev/shm unless they have something else there (a
// volume, a folder of the node). Empty when there is none: a pod that shares the node's IPC has the node's own.
Result<std::string> SandboxShm(const std::string& sandbox_id);
// The same from the text of a mountinfo.
std::string SandboxShmIn(std::string_view mountinfo, const std::string& sandbox_id);

}  // namespace holdfast::runtime
