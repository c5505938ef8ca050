#include "runtime/watched_paths.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <map>

#include "base/file.h"
#include "runtime/mount_points.h"

namespace holdfast::runtime {
namespace {

constexpr size_t kMaxFiles = 1000000;
constexpr int kMaxDepth = 128;

struct Inode {
  dev_t device;
  ino_t number;
  auto operator<=>(const Inode&) const = default;  // NOLINT(modernize-use-nullptr)
};

using Wanted = std::map<Inode, int>;  // to a process that watches it

// Lines "inotify wd:3 ino:9e7e sdev:800013 mask:…": hexadecimal; the device as the kernel has it, 12 bits of major and 20 of minor.
void ReadWatches(const std::string& fdinfo, int pid, Wanted* wanted) {
  for (size_t at = fdinfo.find("inotify wd:"); at != std::string::npos; at = fdinfo.find("\ninotify wd:", at + 1)) {
    uint64_t inode = 0;
    unsigned device = 0;
    if (sscanf(fdinfo.c_str() + at + (fdinfo[at] == '\n' ? 1 : 0), "inotify wd:%*x ino:%" SCNx64 " sdev:%x", &inode, &device) != 2)
      continue;
    wanted->emplace(Inode{makedev(device >> 20, device & 0xfffff), inode}, pid);
  }
}

class Search {
 public:
  Search(std::string root, Wanted* wanted) : root_(std::move(root)), wanted_(wanted) {}

  // Everything at and below `path` that lies on the same file system.
  void Look(const std::string& path, dev_t device, int depth) {
    struct stat info;
    if (wanted_->empty() || depth > kMaxDepth || ++seen_ > kMaxFiles || lstat((root_ + (path.empty() ? "/" : path)).c_str(), &info) != 0 ||
        info.st_dev != device)
      return;
    if (wanted_->erase(Inode{info.st_dev, info.st_ino}) > 0) found_.push_back(path.empty() ? "/" : path);
    if (!S_ISDIR(info.st_mode)) return;
    for (const std::string& name : ListDir(root_ + path).value_or({})) Look(path + "/" + name, device, depth + 1);
  }

  std::vector<std::string> found() { return std::move(found_); }

 private:
  const std::string root_;
  Wanted* wanted_;
  std::vector<std::string> found_;
  size_t seen_ = 0;
};

}  // namespace

Result<std::vector<std::string>> WatchedPaths(const std::vector<int>& pids, const std::string& proc) {
  Wanted wanted;
  int of = 0;
  for (int pid : pids) {
    const std::string dir = proc + "/" + std::to_string(pid);
    for (const std::string& fd : ListDir(dir + "/fd").value_or({})) {
      char target[32] = {};
      if (readlink((dir + "/fd/" + fd).c_str(), target, sizeof target - 1) < 0 || std::string_view(target) != "anon_inode:inotify")
        continue;
      ReadWatches(ReadFile(dir + "/fdinfo/" + fd).value_or(""), pid, &wanted);
    }
    if (of == 0 && !wanted.empty()) of = pid;
  }
  if (wanted.empty()) return std::vector<std::string>();
  const std::string root = proc + "/" + std::to_string(of) + "/root";
  HF_ASSIGN_OR_RETURN(std::string mountinfo, ReadFile(proc + "/" + std::to_string(of) + "/mountinfo"));
  Search search(root, &wanted);
  for (const MountPoint& mount : MountPointsIn(mountinfo)) {
    bool needed = false;
    for (const auto& [inode, pid] : wanted) needed = needed || inode.device == mount.device;
    if (needed) search.Look(mount.path == "/" ? "" : mount.path, mount.device, 0);
  }
  if (!wanted.empty()) {
    return Status(Code::kUnsupported, "process " + std::to_string(wanted.begin()->second) +
                                          " watches by inotify a file that has no name any more (inode " +
                                          std::to_string(wanted.begin()->first.number) + ")");
  }
  return search.found();
}

}  // namespace holdfast::runtime
