#include "runtime/mount_points.h"

#include <sys/mount.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "base/file.h"

namespace holdfast::runtime {
namespace {

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

unsigned long FlagsIn(std::string_view text) {
  unsigned long flags = 0;
  for (std::string_view flag : Split(text, ',')) {
    if (flag == "nosuid") flags |= MS_NOSUID;
    if (flag == "nodev") flags |= MS_NODEV;
    if (flag == "noexec") flags |= MS_NOEXEC;
    if (flag == "noatime") flags |= MS_NOATIME;
  }
  return flags;
}

}  // namespace

std::vector<MountPoint> MountPointsIn(std::string_view mountinfo) {
  std::vector<MountPoint> mounts;
  for (std::string_view line : Split(mountinfo, '\n')) {
    const std::vector<std::string_view> fields = Split(line, ' ');
    unsigned major_number = 0, minor_number = 0;
    size_t dash = 6;
    while (dash < fields.size() && fields[dash] != "-") ++dash;
    if (dash + 3 >= fields.size() || sscanf(std::string(fields[2]).c_str(), "%u:%u", &major_number, &minor_number) != 2) continue;
    const std::vector<std::string_view> flags = Split(fields[5], ',');
    mounts.push_back({makedev(major_number, minor_number), Unescape(fields[4]), FlagsIn(fields[5]), std::string(fields[dash + 1]),
                      Unescape(fields[dash + 3]), Unescape(fields[3]), std::find(flags.begin(), flags.end(), "ro") != flags.end()});
  }
  return mounts;
}

Status UnmountBeneath(const std::string& path) {
  char real[PATH_MAX];
  if (realpath(path.c_str(), real) == nullptr) return Status::Ok();
  HF_ASSIGN_OR_RETURN(const std::string mountinfo, ReadFile("/proc/self/mountinfo", kMaxMountinfo));
  const std::vector<MountPoint> mounts = MountPointsIn(mountinfo);
  const std::string beneath = std::string(real) + "/";
  for (auto mount = mounts.rbegin(); mount != mounts.rend(); ++mount) {
    if (!mount->path.starts_with(beneath) || umount2(mount->path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) continue;
    if (errno != ENOENT && errno != EINVAL)
      return Status(Code::kInternal, "cannot unmount " + mount->path + ": " + std::generic_category().message(errno));
  }
  return Status::Ok();
}

Status UnmountAndRemove(const std::string& path) {
  HF_RETURN_IF_ERROR(UnmountBeneath(path));
  return RemoveAll(path);
}

}  // namespace holdfast::runtime
