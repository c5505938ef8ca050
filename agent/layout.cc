#include "agent/layout.h"

#include "base/file.h"
#include "runtime/mount_points.h"

namespace holdfast::agent {

Status Layout::Make() const {
  for (const std::string& dir :
       {run, Containers(), Pods(), run + "/restored", run + "/dumps", state, state + "/landing", JournalFolder(), state + "/restore"}) {
    HF_RETURN_IF_ERROR(MakeDirs(dir));
  }
  return MakeDirs(run + "/wait", 0755);
}

Status Layout::RemoveLanding(const std::string& checkpoint_uid) const {
  HF_RETURN_IF_ERROR(runtime::UnmountAndRemove(Landing(checkpoint_uid, Place::kMemory)));
  return runtime::UnmountAndRemove(Landing(checkpoint_uid, Place::kDisk));
}

Status Layout::RemoveRestore(const std::string& pod_uid) const {
  HF_RETURN_IF_ERROR(runtime::UnmountAndRemove(RestoreMemory(pod_uid)));
  return runtime::UnmountAndRemove(RestoreFolder(pod_uid));
}

}  // namespace holdfast::agent
