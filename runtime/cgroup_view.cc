#include "runtime/cgroup_view.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/file.h"
#include "base/json.h"
#include "runtime/beneath.h"
#include "runtime/mount_points.h"

namespace holdfast::runtime {
namespace {

// The folder of a mounted hierarchy; empty when runc's state has none.
std::string OwnOf(const MountPoint& mount, const std::map<std::string, std::string>& own) {
  const std::string options = "," + mount.options + ",";
  for (const auto& [name, folder] : own) {
    const bool its = name.empty() ? mount.type == "cgroup2" : mount.type == "cgroup" && options.find("," + name + ",") != std::string::npos;
    if (its) return folder;
  }
  return "";
}

unsigned long AttributesOf(const MountPoint& mount) {
  unsigned long attributes = mount.read_only ? MOUNT_ATTR_RDONLY : 0;
  if ((mount.flags & MS_NOSUID) != 0) attributes |= MOUNT_ATTR_NOSUID;
  if ((mount.flags & MS_NODEV) != 0) attributes |= MOUNT_ATTR_NODEV;
  if ((mount.flags & MS_NOEXEC) != 0) attributes |= MOUNT_ATTR_NOEXEC;
  return attributes;
}

struct Ready {
  std::string path;
  Fd tree;
};

// In a child, which enters the container's mounts and ends: errno, or 0.
int PutInPlace(const Fd& mounts, const std::vector<Ready>& all) {
  if (setns(mounts.get(), CLONE_NEWNS) != 0) return errno;
  for (const Ready& ready : all) {
    if (umount2(ready.path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0) return errno;
    if (move_mount(ready.tree.get(), "", AT_FDCWD, ready.path.c_str(), MOVE_MOUNT_F_EMPTY_PATH) != 0) return errno;
  }
  return 0;
}

}  // namespace

std::vector<CgroupMount> StrayCgroupMounts(std::string_view mountinfo, const std::vector<std::string>& at,
                                           const std::map<std::string, std::string>& own) {
  std::vector<CgroupMount> stray;
  for (const MountPoint& mount : MountPointsIn(mountinfo)) {
    auto there = [&](const std::string& place) { return mount.path == place || mount.path.starts_with(place + "/"); };
    if (std::none_of(at.begin(), at.end(), there)) continue;
    const std::string folder = OwnOf(mount, own);
    if (!folder.empty() && !folder.ends_with(mount.root)) stray.push_back({mount.path, folder, AttributesOf(mount)});
  }
  return stray;
}

Status MendCgroupView(const std::string& runc_root, const std::string& container_id, const Spec& spec) {
  std::vector<std::string> at;
  for (const Spec::Mount& mount : spec.Mounts()) {
    if (mount.type == "cgroup") at.push_back(mount.destination);
  }
  if (at.empty()) return Status::Ok();
  if (!IsSafeName(container_id)) return Status(Code::kInvalidArgument, "container id is not a plain name");
  HF_ASSIGN_OR_RETURN(const std::string text, ReadFile(runc_root + "/" + container_id + "/state.json"));
  HF_ASSIGN_OR_RETURN(const Json state, ParseJson(text));
  const std::string proc = "/proc/" + std::to_string(GetInt(state, {"init_process_pid"}));
  HF_ASSIGN_OR_RETURN(const std::string mountinfo, ReadFile(proc + "/mountinfo", kMaxMountinfo));
  std::map<std::string, std::string> folders;
  for (const auto& [name, folder] : GetObject(state, {"cgroup_paths"}).items()) {
    if (folder.is_string()) folders[name] = folder.get<std::string>();
  }
  std::vector<Ready> all;
  for (const CgroupMount& mount : StrayCgroupMounts(mountinfo, at, folders)) {
    const std::string& own = mount.own;
    Fd tree(open_tree(AT_FDCWD, own.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
    if (!tree.ok()) return FileError("take", own, errno);
    mount_attr attributes = {};
    attributes.attr_set = mount.attributes;
    if (mount_setattr(tree.get(), "", AT_EMPTY_PATH, &attributes, sizeof attributes) != 0) return FileError("set the flags of", own, errno);
    all.push_back({mount.path, std::move(tree)});
  }
  if (all.empty()) return Status::Ok();
  const Fd mounts(open((proc + "/ns/mnt").c_str(), O_RDONLY | O_CLOEXEC));
  if (!mounts.ok()) return FileError("open", proc + "/ns/mnt", errno);
  const pid_t child = fork();
  if (child < 0) return Status(Code::kResourceExhausted, "cannot fork to enter a container's mounts");
  if (child == 0) _exit(PutInPlace(mounts, all));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Status::Ok();
  return FileError("mount its own cgroups in container", container_id, WIFEXITED(status) ? WEXITSTATUS(status) : EIO);
}

}  // namespace holdfast::runtime
