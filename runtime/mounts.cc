#include "runtime/mounts.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <system_error>
#include <vector>

#include "base/file.h"
#include "runtime/tree.h"

namespace holdfast::runtime {
namespace {

struct Mounted {
  std::string type, options;  // the file system's own options
  unsigned long flags = 0;
};

// \040 and the like, as the kernel writes space, tab, newline and backslash.
std::string Unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && text[i + 1] >= '0' && text[i + 1] <= '3') {
      out.push_back(static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0')));
      i += 3;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

std::vector<std::string_view> Split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  while (true) {
    size_t at = text.find(by);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

// The last mount at `path`: it hides those before it.
std::optional<Mounted> FindMount(std::string_view mountinfo, const std::string& path) {
  std::optional<Mounted> found;
  for (std::string_view line : Split(mountinfo, '\n')) {
    std::vector<std::string_view> fields = Split(line, ' ');
    size_t dash = 6;
    while (dash < fields.size() && fields[dash] != "-") ++dash;
    if (dash + 3 >= fields.size() || Unescape(fields[4]) != path) continue;
    found = Mounted{std::string(fields[dash + 1]), Unescape(fields[dash + 3]), 0};
    for (std::string_view flag : Split(fields[5], ',')) {
      if (flag == "nosuid") found->flags |= MS_NOSUID;
      if (flag == "nodev") found->flags |= MS_NODEV;
      if (flag == "noexec") found->flags |= MS_NOEXEC;
      if (flag == "noatime") found->flags |= MS_NOATIME;
    }
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

constexpr size_t kMaxMountinfo = 64 << 20;

}  // namespace

std::vector<MountPoint> MountPointsIn(std::string_view mountinfo) {
  std::vector<MountPoint> mounts;
  for (std::string_view line : Split(mountinfo, '\n')) {
    std::vector<std::string_view> fields = Split(line, ' ');
    unsigned major_number = 0, minor_number = 0;
    if (fields.size() < 5 || sscanf(std::string(fields[2]).c_str(), "%u:%u", &major_number, &minor_number) != 2) continue;
    mounts.push_back({makedev(major_number, minor_number), Unescape(fields[4])});
  }
  return mounts;
}

Result<std::string> OverlayUpperIn(std::string_view mountinfo, const std::string& path) {
  std::optional<Mounted> mount = FindMount(mountinfo, path);
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
  std::optional<Mounted> mount = FindMount(text, path);
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
