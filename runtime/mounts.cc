#include "runtime/mounts.h"

#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <system_error>

#include "base/file.h"
#include "runtime/mount_points.h"
#include "runtime/tree.h"

namespace holdfast::runtime {
namespace {

// The last mount at `path`: it hides those before it.
std::optional<MountPoint> FindMount(std::string_view mountinfo, const std::string& path) {
  std::optional<MountPoint> found;
  for (MountPoint& mount : MountPointsIn(mountinfo)) {
    if (mount.path == path) found = std::move(mount);
  }
  return found;
}

// The value of `name` in comma-separated options, in which "\," is a plain comma.
std::string Option(const std::string& options, const std::string& name) {
  std::string current;
  for (size_t i = 0; i <= options.size(); ++i) {
    if (i < options.size() && options[i] == '\\' && i + 1 < options.size() && options[i + 1] == ',') {
      current.push_back(options[++i]);
    } else if (i == options.size() || options[i] == ',') {
      if (current.starts_with(name + "=")) return current.substr(name.size() + 1);
      current.clear();
    } else {
      current.push_back(options[i]);
    }
  }
  return "";
}

}  // namespace

Result<std::string> OverlayUpperIn(std::string_view mountinfo, const std::string& path) {
  std::optional<MountPoint> mount = FindMount(mountinfo, path);
  if (!mount)
    return Status(Code::kNotFound, "nothing is mounted at " + path + ": only containers of the overlayfs snapshotter can be checkpointed");
  return mount->type == "overlay" ? Option(mount->options, "upperdir") : std::string();
}

Result<std::string> OverlayUpper(const std::string& path) {
  HF_ASSIGN_OR_RETURN(std::string text, ReadFile("/proc/self/mountinfo", kMaxMountinfo));
  return OverlayUpperIn(text, path);
}

Status ResetOverlay(const std::string& path) {
  HF_ASSIGN_OR_RETURN(std::string text, ReadFile("/proc/self/mountinfo", kMaxMountinfo));
  std::optional<MountPoint> mount = FindMount(text, path);
  if (!mount || mount->type != "overlay") return Status(Code::kUnsupported, path + " is not an overlay");
  const std::string upper = Option(mount->options, "upperdir"), work = Option(mount->options, "workdir");
  if (upper.empty() || work.empty()) return Status(Code::kUnsupported, "the overlay at " + path + " has no upper directory");
  if (umount2(path.c_str(), 0) != 0)
    return Status(Code::kInternal, "cannot unmount " + path + ": " + std::generic_category().message(errno));
  HF_RETURN_IF_ERROR(EmptyDirectory(upper));
  // containerd shortens many lower directories to paths relative to the folder of all snapshots: upper is <snapshots>/<number>/fs.
  char back[4096];
  const bool have_back = getcwd(back, sizeof back) != nullptr;
  const std::string snapshots = upper + "/../..";
  if (chdir(snapshots.c_str()) != 0) return Status(Code::kInternal, "cannot enter " + snapshots);
  const int rc = ::mount("overlay", path.c_str(), "overlay", mount->flags, mount->options.c_str());
  const int error = errno;
  if (have_back && chdir(back) != 0) return Status(Code::kInternal, std::string("cannot return to ") + back);
  return rc == 0 ? Status::Ok() : Status(Code::kInternal, "cannot mount " + path + " again: " + std::generic_category().message(error));
}

Status UnmountCriuRoot(const std::string& runc_root, const std::string& container_id) {
  const std::string path = runc_root + "/" + container_id + "/criu-root";
  if (umount2(path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0 || errno == ENOENT || errno == EINVAL) return Status::Ok();
  return Status(Code::kInternal, "cannot unmount " + path + ": " + std::generic_category().message(errno));
}

}  // namespace holdfast::runtime
