#include "runtime/own_files.h"

#include "base/file.h"
#include "runtime/mount_points.h"

namespace holdfast::runtime {

Status CheckEmptyDir(const std::string& path, const std::string& pod_uid, const std::string& volume) {
  const std::string own = "/pods/" + pod_uid + "/volumes/kubernetes.io~empty-dir/" + volume;
  if (IsSafeName(pod_uid) && IsSafeName(volume) && path.ends_with(own)) return Status::Ok();
  return Status(Code::kInvalidArgument, path + " is no emptyDir of pod " + pod_uid + ": it is not touched");
}

std::string SandboxShmIn(std::string_view mountinfo, const std::string& sandbox_id) {
  std::string found;
  if (!IsSafeName(sandbox_id)) return found;
  for (const MountPoint& mount : MountPointsIn(mountinfo)) {
    const bool own = mount.path.find("/" + sandbox_id + "/") != std::string::npos && mount.path.ends_with("/shm");
    if (own && mount.type == "tmpfs") found = mount.path;
  }
  return found;
}

Result<std::string> SandboxShm(const std::string& sandbox_id) {
  HF_ASSIGN_OR_RETURN(std::string text, ReadFile("/proc/self/mountinfo", kMaxMountinfo));
  return SandboxShmIn(text, sandbox_id);
}

}  // namespace holdfast::runtime
