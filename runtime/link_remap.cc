#include "runtime/link_remap.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <system_error>

#include "base/file.h"
#include "base/protobuf.h"
#include "runtime/criu_entries.h"

namespace holdfast::runtime {
namespace {

constexpr uint32_t kRegular = 3, kId = 1, kName = 6;           // fdinfo.proto, regfile.proto
constexpr uint32_t kOrigId = 1, kRemapId = 2, kRemapType = 3;  // remap-file-path.proto
constexpr size_t kMaxImage = 256 << 20;

using protobuf::Field;
using protobuf::ReadField;

// Never above the container's root: CRIU writes absolute paths without "..".
bool IsPlainPath(const std::string& path) {
  return path.starts_with('/') && path.size() < 4096 && ("/" + path + "/").find("/../") == std::string::npos;
}

// A regular file that a process holds by a name that is gone, while another name leads to it.
struct Nameless {
  std::string fd;    // the way to it: /proc/PID/fd/N or /proc/PID/map_files/A-B
  std::string name;  // that name, as the process sees it
  dev_t device;
  ino_t inode;
};

// Calls `each` for every file that is open or mapped in `pid`, until it returns false.
void ForEachNameless(int pid, const std::function<bool(const Nameless& file)>& each) {
  constexpr std::string_view kGone = " (deleted)";
  for (const char* kind : {"/fd", "/map_files"}) {
    const std::string dir = "/proc/" + std::to_string(pid) + kind;
    for (const std::string& entry : ListDir(dir).value_or({})) {
      const std::string path = dir + "/" + entry;
      char target[4096];
      const ssize_t size = readlink(path.c_str(), target, sizeof target);
      std::string_view name(target, size < 0 ? 0 : static_cast<size_t>(size));
      if (!name.ends_with(kGone)) continue;
      name.remove_suffix(kGone.size());
      struct stat info;
      if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_nlink == 0) continue;
      if (!each({path, std::string(name), info.st_dev, info.st_ino})) return;
    }
  }
}

bool IsLinkRemap(std::string_view name) {
  constexpr std::string_view kPrefix = "link_remap.";
  return name.starts_with(kPrefix) && name.find_first_not_of("0123456789", kPrefix.size()) == std::string_view::npos;
}

// As a process sees it whose root is `root`: never outside of it, wherever links lead.
int OpenExactly(int root, const std::string& folder) {
  open_how how = {};
  how.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  return static_cast<int>(syscall(SYS_openat2, root, folder.c_str(), &how, sizeof how));
}

// The folder where CRIU makes the name: the old one's, or the nearest above it that still exists.
int OpenFolderOf(int root, std::string_view name) {
  while (!name.empty()) {
    name.remove_suffix(name.size() - std::min(name.rfind('/'), name.size()));
    const int fd = OpenExactly(root, name.empty() ? "/" : std::string(name));
    if (fd >= 0 || errno != ENOENT) return fd;
  }
  return -1;
}

}  // namespace

Result<std::vector<LinkRemap>> LinkRemapsOf(const std::string& images) {
  std::vector<LinkRemap> found;
  Result<std::string> remaps = ReadFile(images + "/remap-fpath.img", kMaxImage);
  if (remaps.status().code() == Code::kNotFound) return found;
  if (!remaps.ok()) return remaps.status();
  std::vector<std::pair<uint64_t, uint64_t>> linked;
  bool whole = ForEachEntry(*remaps, kRemapMagic, [&](std::string_view entry) {
    uint64_t orig = 0, remap = 0, type = 0;
    for (Field field; !entry.empty();) {
      if (!ReadField(&entry, &field)) return false;
      if (field.number == kOrigId) orig = field.value;
      if (field.number == kRemapId) remap = field.value;
      if (field.number == kRemapType) type = field.value;
    }
    if (type == 0) linked.emplace_back(orig, remap);
    return true;
  });
  if (!whole) return Status(Code::kDataLoss, images + "/remap-fpath.img is damaged or of another CRIU");
  if (linked.empty()) return found;
  HF_ASSIGN_OR_RETURN(std::string files, ReadFile(images + "/files.img", kMaxImage));
  std::map<uint64_t, std::string> names;
  whole = ForEachEntry(files, kFilesMagic, [&](std::string_view entry) {
    for (Field field; !entry.empty();) {
      if (!ReadField(&entry, &field)) return false;
      if (field.number != kRegular || field.wire != 2) continue;
      uint64_t id = 0;
      std::string name;
      Field inner;
      for (std::string_view regular = field.content; !regular.empty();) {
        if (!ReadField(&regular, &inner)) return false;
        if (inner.number == kId) id = inner.value;
        if (inner.number == kName) name = inner.content;
      }
      names[id] = name;
    }
    return true;
  });
  if (!whole) return Status(Code::kDataLoss, images + "/files.img is damaged or of another CRIU");
  for (const auto& [orig, remap] : linked) {
    LinkRemap next{names[orig], names[remap]};
    if (!IsPlainPath(next.opened) || !IsPlainPath(next.link))
      return Status(Code::kDataLoss, "CRIU names \"" + next.link + "\" as a file to keep");
    found.push_back(std::move(next));
  }
  return found;
}

Status LinkRemaps::Make(const std::string& images, const std::string& root, const std::vector<int>& pids) {
  HF_ASSIGN_OR_RETURN(const std::vector<LinkRemap> remaps, LinkRemapsOf(images));
  std::set<std::string> used;  // two files may have had one name, one after the other
  const Fd top(remaps.empty() ? -1 : open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (const LinkRemap& remap : remaps) {
    Fd folder(OpenExactly(top.get(), remap.link.substr(0, remap.link.rfind('/') + 1)));
    const std::string name = remap.link.substr(remap.link.rfind('/') + 1);
    int error = folder.ok() ? ENOENT : errno;
    bool done = !folder.ok();
    for (size_t i = 0; i < pids.size() && !done; ++i) {
      ForEachNameless(pids[i], [&](const Nameless& file) {
        if (file.name != remap.opened || used.contains(file.fd)) return true;
        error = linkat(AT_FDCWD, file.fd.c_str(), folder.get(), name.c_str(), AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
        used.insert(file.fd);
        done = true;
        return false;
      });
    }
    if (error != 0)
      return Status(Code::kNotFound,
                    "cannot keep " + remap.opened + ", which is open without its name: " + std::generic_category().message(error));
    made_.push_back({std::move(folder), name});
  }
  return Status::Ok();
}

void LinkRemaps::Remove() {
  for (const Name& made : made_) unlinkat(made.folder.get(), made.name.c_str(), 0);
  made_.clear();
}

int RemoveLeftLinks(const std::string& root, const std::vector<int>& pids) {
  const int top = open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (top < 0) return 0;
  int removed = 0;
  std::set<std::pair<dev_t, ino_t>> seen;
  for (int pid : pids) {
    ForEachNameless(pid, [&](const Nameless& file) {
      if (!seen.emplace(file.device, file.inode).second) return true;
      const int folder = OpenFolderOf(top, file.name);
      if (folder < 0) return true;
      for (const std::string& name : ListDir("/proc/self/fd/" + std::to_string(folder)).value_or({})) {
        struct stat info;
        const bool left = IsLinkRemap(name) && fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                          info.st_dev == file.device && info.st_ino == file.inode;
        if (left && unlinkat(folder, name.c_str(), 0) == 0) ++removed;
      }
      close(folder);
      return true;
    });
  }
  close(top);
  return removed;
}

}  // namespace holdfast::runtime
