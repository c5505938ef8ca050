#include "runtime/image_paths.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <memory>

#include "runtime/beneath.h"
#include "runtime/image_check.h"

namespace holdfast::runtime {
namespace {

constexpr int kMaxLinks = 40;  // as the kernel
constexpr size_t kMaxEntries = 1 << 20;
constexpr int64_t kMaxBytes = 256 << 20;

using Links = std::map<std::string, std::string>;  // of a tmpfs: path below it → target

// As tar takes the names in it: below the folder, whatever they begin with.
std::string Below(std::string_view name) {
  while (name.starts_with("./") || name.starts_with("/")) name.remove_prefix(name.starts_with("./") ? 2 : 1);
  return "/" + std::string(name);
}

// tmpfs-dev-N.tar.gz.img: what CRIU has tar put into a tmpfs of the container.
Result<Links> LinksIn(const std::string& images, const std::string& name) {
  Links links;
  struct Free {
    void operator()(archive* in) const { archive_read_free(in); }
  };
  const Fd file(open((images + "/" + name).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.ok() && errno == ENOENT) return links;
  if (!file.ok()) return FileError("read", images + "/" + name, errno);
  const std::unique_ptr<archive, Free> in(archive_read_new());
  archive_read_support_filter_gzip(in.get());
  archive_read_support_format_tar(in.get());
  if (archive_read_open_fd(in.get(), file.get(), 65536) != ARCHIVE_OK) return DamagedImage(images, name);
  archive_entry* entry;
  int rc;
  for (size_t count = 0; (rc = archive_read_next_header(in.get(), &entry)) >= ARCHIVE_WARN && rc != ARCHIVE_EOF; ++count) {
    if (count > kMaxEntries || archive_filter_bytes(in.get(), 0) > kMaxBytes)
      return WiderImage(name, "more is put into a tmpfs than is looked at");
    const char *path = archive_entry_pathname(entry), *same = archive_entry_hardlink(entry), *target = archive_entry_symlink(entry);
    if (path == nullptr) return DamagedImage(images, name);
    if (same == nullptr && target == nullptr) continue;
    const std::string at = Below(path);
    if (!IsPlainPath(at)) return WiderImage(name, "a tmpfs gets the link " + Shown(path));
    if (target != nullptr) links[at] = target;
    if (same == nullptr) continue;
    if (const auto link = links.find(Below(same)); link != links.end()) links[at] = link->second;
  }
  return rc == ARCHIVE_EOF ? Result<Links>(std::move(links)) : DamagedImage(images, name);
}

class Walk {
 public:
  Walk(const std::string& images, const ImageMounts& mounts, const std::string& root) : images_(images), mounts_(mounts), root_(root) {}

  // Where the last step of `path` leads, when it is a link; those before it are none.
  Result<std::optional<std::string>> LinkAt(const std::string& path) {
    const ImageMount* on = mounts_.Of(path);
    if (on == nullptr || path == on->path || on->kind == MountKind::kProc || on->kind == MountKind::kOther)
      return std::optional<std::string>();
    const std::string below = path.substr(on->path == "/" ? 0 : on->path.size());
    if (on->kind == MountKind::kTmpfs) {
      HF_ASSIGN_OR_RETURN(const Links* links, LinksOf(*on));
      const auto found = links->find(below);
      return found == links->end() ? std::optional<std::string>() : std::optional<std::string>(found->second);
    }
    HF_ASSIGN_OR_RETURN(const Fd* top, TopOf(*on));
    const Fd fd = Open(*top, below, O_NOFOLLOW);
    struct stat info;
    if (!fd.ok() || fstat(fd.get(), &info) != 0 || !S_ISLNK(info.st_mode)) return std::optional<std::string>();
    char target[4096];
    const ssize_t size = readlinkat(fd.get(), "", target, sizeof target);
    return std::optional<std::string>(std::string(target, size < 0 ? 0 : static_cast<size_t>(size)));
  }

  // Whether a step of it is a link.
  Result<bool> HasLink(const std::string& path) {
    const ImageMount* on = mounts_.Of(path);
    if (on == nullptr || path == on->path || on->kind == MountKind::kProc || on->kind == MountKind::kOther) return false;
    const std::string below = path.substr(on->path == "/" ? 0 : on->path.size());
    if (on->kind == MountKind::kTmpfs) {
      HF_ASSIGN_OR_RETURN(const Links* links, LinksOf(*on));
      for (size_t at = below.find('/', 1); at != std::string::npos; at = below.find('/', at + 1)) {
        if (links->count(below.substr(0, at)) != 0) return true;
      }
      return links->count(below) != 0;
    }
    HF_ASSIGN_OR_RETURN(const Fd* top, TopOf(*on));
    return !Open(*top, below, 0).ok() && errno == ELOOP;
  }

  // Empty when `name` leads to a place of the container.
  Result<std::string> WhatOf(const std::string& name) {
    std::deque<std::string> steps;
    Split(name, &steps);
    std::string at;
    for (int links = 0; !steps.empty();) {
      const std::string step = steps.front();
      steps.pop_front();
      if (step == "..") {
        at.resize(at.rfind('/') == std::string::npos ? 0 : at.rfind('/'));
        continue;
      }
      const std::string next = at + "/" + step;
      const ImageMount* on = mounts_.Of(next);
      if (on == nullptr ? IsWithin(next, "/proc") : on->kind == MountKind::kProc) {
        if (next != "/proc") return std::string("leads into /proc");
      }
      HF_ASSIGN_OR_RETURN(const std::optional<std::string> target, LinkAt(next));
      if (!target) {
        at = next;
        continue;
      }
      if (++links > kMaxLinks) return std::string("leads along too many links");
      if (target->starts_with("/")) at.clear();
      std::deque<std::string> more;
      Split(*target, &more);
      steps.insert(steps.begin(), more.begin(), more.end());
    }
    return std::string();
  }

 private:
  static void Split(const std::string& path, std::deque<std::string>* steps) {
    for (size_t at = 0; at < path.size();) {
      const size_t end = std::min(path.find('/', at), path.size());
      if (end > at && path.compare(at, end - at, ".") != 0) steps->push_back(path.substr(at, end - at));
      at = end + 1;
    }
  }

  // With errno of what it met first.
  static Fd Open(const Fd& top, const std::string& below, uint64_t flags) {
    open_how how = {};
    how.flags = O_PATH | O_CLOEXEC | flags;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
    return Fd(static_cast<int>(syscall(SYS_openat2, top.get(), below.c_str() + 1, &how, sizeof how)));
  }

  Result<const Fd*> TopOf(const ImageMount& mount) {
    const std::string& path = mount.kind == MountKind::kRoot ? root_ : mount.source;
    Fd& top = tops_[path];
    if (!top.ok()) top = Fd(open(path.c_str(), O_PATH | O_CLOEXEC));
    if (!top.ok()) return FileError("open", path, errno);
    return &top;
  }

  Result<const Links*> LinksOf(const ImageMount& mount) {
    const auto found = links_.find(mount.device);
    if (found != links_.end()) return &found->second;
    HF_ASSIGN_OR_RETURN(Links links, LinksIn(images_, "tmpfs-dev-" + std::to_string(mount.device) + ".tar.gz.img"));
    return &links_.emplace(mount.device, std::move(links)).first->second;
  }

  const std::string& images_;
  const ImageMounts& mounts_;
  const std::string& root_;
  std::map<std::string, Fd> tops_;
  std::map<uint32_t, Links> links_;
};

}  // namespace

Status CheckImagePaths(const std::string& images, const ImageMounts& mounts, const ImagePaths& paths, const std::string& root) {
  Walk walk(images, mounts, root);
  for (const std::string& path : paths.files) {
    HF_ASSIGN_OR_RETURN(const bool link, walk.HasLink(path));
    if (link) return WiderImage("files.img", "a file is open by a path that is a link by now: " + Shown(path));
  }
  for (const std::string& name : paths.names) {
    HF_ASSIGN_OR_RETURN(const std::string what, walk.WhatOf(name));
    if (!what.empty()) return WiderImage("files.img", "a name is used that " + what + ": " + Shown(name));
  }
  return Status::Ok();
}

}  // namespace holdfast::runtime
