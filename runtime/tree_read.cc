#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/beneath.h"
#include "runtime/posix_acl.h"
#include "runtime/tree.h"

namespace holdfast::runtime {
namespace {

constexpr int kRounds = 1000;  // as in beneath.cc

struct Freed {
  void operator()(archive* a) const { archive_free(a); }
};

// The names of a relative path, without "." steps. False when it is none, or leaves its folder.
bool Split(std::string_view path, std::vector<std::string>* names) {
  if (path.empty() || path[0] == '/' || path.size() > 4096) return false;
  while (!path.empty()) {
    const size_t slash = path.find('/');
    const std::string_view name = path.substr(0, slash);
    if (name == "..") return false;
    if (!name.empty() && name != ".") names->emplace_back(name);
    path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
  }
  return names->size() <= kMaxTreeDepth;
}

// The attributes of an entry but overlayfs's own. `opaque`: it was an opaque directory.
std::map<std::string, std::string> AttributesOf(archive_entry* entry, bool* opaque) {
  std::map<std::string, std::string> kept;
  const char* name;
  const void* value;
  size_t size;
  int left = archive_entry_xattr_reset(entry);
  while (left-- > 0 && archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK) {
    std::string key(name), text(static_cast<const char*>(value), size);
    if (key == "trusted.overlay.opaque" && text == "y") *opaque = true;
    if (!key.starts_with("trusted.overlay.") && key != kAccessAcl && key != kDefaultAcl) kept[key] = std::move(text);
  }
  for (bool of_default : {false, true}) {
    std::string acl = AclAttribute(entry, of_default);
    if (!acl.empty()) kept[of_default ? kDefaultAcl : kAccessAcl] = std::move(acl);
  }
  return kept;
}

// As utimensat takes them: of access, of content.
std::array<timespec, 2> TimesOf(archive_entry* entry) {
  std::array<timespec, 2> times = {{{0, UTIME_OMIT}, {0, UTIME_OMIT}}};
  if (archive_entry_atime_is_set(entry) != 0) times[0] = {archive_entry_atime(entry), archive_entry_atime_nsec(entry)};
  if (archive_entry_mtime_is_set(entry) != 0) times[1] = {archive_entry_mtime(entry), archive_entry_mtime_nsec(entry)};
  return times;
}

class Reader {
 public:
  Reader(std::string tar, bool upper) : tar_(std::move(tar)), upper_(upper) {}

  Status Run(Fd top) {
    open_.push_back({"", std::move(top)});
    in_.reset(archive_read_new());
    archive_read_support_format_tar(in_.get());
    const Fd tar(open(tar_.c_str(), O_RDONLY | O_CLOEXEC));
    if (!tar.ok()) return FileError("open", tar_, errno);
    if (archive_read_open_fd(in_.get(), tar.get(), 1 << 20) != ARCHIVE_OK) return ReadError();
    Status status = Entries();
    while (!open_.empty()) Leave();
    return status.ok() ? status : status.With(tar_);
  }

 private:
  // A folder that is being filled. Its times are set when it is left, since what comes into it changes them; so is the ACL that what
  // comes into it would inherit.
  struct Folder {
    std::string name;
    Fd fd;
    std::array<timespec, 2> times = {};
    bool timed = false;
    std::string default_acl = {};
  };

  Status ReadError() {
    const char* text = archive_error_string(in_.get());
    return Status(Code::kDataLoss, "cannot read " + tar_ + ": " + (text != nullptr ? text : "unknown error"));
  }

  Status Entries() {
    archive_entry* entry;
    int rc;
    while ((rc = archive_read_next_header(in_.get(), &entry)) >= ARCHIVE_WARN && rc != ARCHIVE_EOF) {
      const char* raw = archive_entry_pathname(entry);
      const char* link = archive_entry_hardlink(entry);
      const std::string path = raw != nullptr ? raw : "";
      std::vector<std::string> names, target;
      if (!Split(path, &names) || (link != nullptr && (!Split(link, &target) || target.empty())))
        return Status(Code::kDataLoss, "entry \"" + path.substr(0, 200) + "\" leaves its folder");
      HF_RETURN_IF_ERROR(Entry(entry, path, names, link != nullptr ? &target : nullptr));
    }
    return rc == ARCHIVE_EOF ? Status::Ok() : ReadError();
  }

  void Leave() {
    const Folder& folder = open_.back();
    const std::string& acl = folder.default_acl;
    // A file system need not take either.
    if (!acl.empty()) setxattr(folder.fd.Path().c_str(), kDefaultAcl, acl.data(), acl.size(), 0);
    if (folder.timed) futimens(folder.fd.get(), folder.times.data());
    open_.pop_back();
  }

  // Goes to the folder of these names. False when one of them is none.
  bool Enter(const std::vector<std::string>& names) {
    size_t same = 0;
    while (same < names.size() && same + 1 < open_.size() && open_[same + 1].name == names[same]) ++same;
    while (open_.size() > same + 1) Leave();
    for (; same < names.size(); ++same) {
      Fd next = OpenIn(open_.back().fd.get(), names[same], O_RDONLY | O_DIRECTORY);
      if (!next.ok()) return false;
      open_.push_back({names[same], std::move(next)});
    }
    return true;
  }

  Status Entry(archive_entry* entry, const std::string& path, std::vector<std::string> names, std::vector<std::string>* link) {
    const mode_t type = archive_entry_filetype(entry);
    const bool whiteout = link == nullptr && type == AE_IFCHR && archive_entry_rdev(entry) == 0;
    if (whiteout && !upper_) return Status::Ok();
    if (!whiteout && link == nullptr && type != AE_IFREG && type != AE_IFDIR && type != AE_IFLNK && type != AE_IFIFO) return Status::Ok();
    if (names.empty()) {
      if (type != AE_IFDIR || link != nullptr) return Status(Code::kDataLoss, "the top is no folder");
      while (open_.size() > 1) Leave();
      return FillFolder(entry, path, open_.back());
    }
    const std::string name = names.back();
    names.pop_back();
    if (!Enter(names))
      return whiteout ? Status::Ok() : Status(Code::kDataLoss, "entry \"" + path + "\" lies behind a link, or in no folder");
    const int folder = open_.back().fd.get();
    if (whiteout) return RemoveIn(folder, name, path);
    if (link != nullptr) return MakeLink(folder, name, path, *link);
    if (type == AE_IFDIR) return MakeFolder(entry, name, path);
    return MakeFile(entry, folder, name, path);
  }

  // Calls `make` until it has made what was not there before.
  template <class Make>
  static Status MakeAnew(int folder, const std::string& name, const std::string& path, Make make) {
    for (int round = 0; round < kRounds; ++round) {
      if (make()) return Status::Ok();
      if (errno != EEXIST) return FileError("create", path, errno);
      HF_RETURN_IF_ERROR(RemoveIn(folder, name, path));
    }
    return Status(Code::kUnavailable, "cannot create " + path + ": somebody makes it again and again");
  }

  Status MakeLink(int folder, const std::string& name, const std::string& path, const std::vector<std::string>& target) {
    Fd from;  // the folder of the first name; the top's own descriptor is none to close
    int at = open_.front().fd.get();
    for (size_t i = 0; i + 1 < target.size(); ++i) {
      from = OpenIn(at, target[i], O_PATH | O_DIRECTORY);
      if (!from.ok()) return Status(Code::kDataLoss, "entry \"" + path + "\" is a link to nothing in its folder");
      at = from.get();
    }
    return MakeAnew(folder, name, path, [&] { return linkat(at, target.back().c_str(), folder, name.c_str(), 0) == 0; });
  }

  Status MakeFolder(archive_entry* entry, const std::string& name, const std::string& path) {
    const int folder = open_.back().fd.get();
    for (int round = 0; round < kRounds; ++round) {
      if (mkdirat(folder, name.c_str(), 0700) != 0 && errno != EEXIST) return FileError("create", path, errno);
      Fd made = OpenIn(folder, name, O_RDONLY | O_DIRECTORY);
      if (!made.ok() && errno == EXDEV) return Status(Code::kFailedPrecondition, path + " is on another file system: not written to");
      if (made.ok()) {
        open_.push_back({name, std::move(made)});
        return FillFolder(entry, path, open_.back());
      }
      HF_RETURN_IF_ERROR(RemoveIn(folder, name, path));  // something else is there
    }
    return Status(Code::kUnavailable, "cannot create " + path + ": somebody makes something else of it again and again");
  }

  Status FillFolder(archive_entry* entry, const std::string& path, Folder& folder) {
    bool opaque = false;
    std::map<std::string, std::string> attributes = AttributesOf(entry, &opaque);
    if (auto acl = attributes.extract(kDefaultAcl)) folder.default_acl = std::move(acl.mapped());
    if (opaque && upper_ && open_.size() > 1) HF_RETURN_IF_ERROR(EmptyFolder(folder.fd.get(), path));
    HF_RETURN_IF_ERROR(Dress(entry, folder.fd, path, attributes));
    folder.times = TimesOf(entry);
    folder.timed = true;
    return Status::Ok();
  }

  // A file, symbolic link or pipe.
  Status MakeFile(archive_entry* entry, int folder, const std::string& name, const std::string& path) {
    const mode_t type = archive_entry_filetype(entry);
    Fd made;
    const char* symlink = archive_entry_symlink(entry);
    HF_RETURN_IF_ERROR(MakeAnew(folder, name, path, [&] {
      if (type == AE_IFLNK) return symlinkat(symlink != nullptr ? symlink : "", folder, name.c_str()) == 0;
      if (type == AE_IFIFO) return mkfifoat(folder, name.c_str(), 0600) == 0;
      made = OpenIn(folder, name, O_WRONLY | O_CREAT | O_EXCL, 0600);
      return made.ok();
    }));
    if (type == AE_IFREG) {
      HF_RETURN_IF_ERROR(Content(made, archive_entry_size(entry), path));
    } else {
      made = OpenIn(folder, name, O_PATH);
      struct stat info;
      if (!made.ok() || fstat(made.get(), &info) != 0 || (info.st_mode & S_IFMT) != type)
        return Status(Code::kUnavailable, path + " was changed by somebody while it was written");
    }
    bool opaque = false;
    HF_RETURN_IF_ERROR(Dress(entry, made, path, AttributesOf(entry, &opaque)));
    const std::array<timespec, 2> times = TimesOf(entry);
    utimensat(AT_FDCWD, made.Path().c_str(), times.data(), 0);  // a file system need not take them
    return Status::Ok();
  }

  // Owner, mode, attributes: in this order, since a new owner takes set-user-id bits and capabilities away.
  static Status Dress(archive_entry* entry, const Fd& file, const std::string& path, const std::map<std::string, std::string>& attributes) {
    const auto uid = static_cast<uid_t>(archive_entry_uid(entry));
    const auto gid = static_cast<gid_t>(archive_entry_gid(entry));
    if (fchownat(file.get(), "", uid, gid, AT_EMPTY_PATH) != 0) return FileError("set the owner of", path, errno);
    const std::string at = file.Path();
    if (archive_entry_filetype(entry) != AE_IFLNK && chmod(at.c_str(), archive_entry_mode(entry) & 07777) != 0)
      return FileError("set the mode of", path, errno);
    // A file system, or a security module, need not take them.
    for (const auto& [name, value] : attributes) setxattr(at.c_str(), name.c_str(), value.data(), value.size(), 0);
    return Status::Ok();
  }

  Status Content(const Fd& file, int64_t file_size, const std::string& path) {
    const void* block;
    size_t size;
    la_int64_t offset;
    int rc;
    while ((rc = archive_read_data_block(in_.get(), &block, &size, &offset)) >= ARCHIVE_WARN && rc != ARCHIVE_EOF) {
      HF_RETURN_IF_ERROR(WriteBut0(file, {static_cast<const char*>(block), size}, offset, path));
    }
    if (rc != ARCHIVE_EOF) return ReadError();
    if (ftruncate(file.get(), file_size) != 0) return FileError("write", path, errno);
    return Status::Ok();
  }

  // Pages of zeros become holes.
  static Status WriteBut0(const Fd& file, std::string_view bytes, off_t offset, const std::string& path) {
    static constexpr std::array<char, 4096> kZeros = {};
    while (!bytes.empty()) {
      size_t n = 0, zeros = 0;
      while (n < bytes.size()) {
        const size_t page = std::min(kZeros.size(), bytes.size() - n);
        if (memcmp(bytes.data() + n, kZeros.data(), page) == 0) {
          zeros = page;
          break;
        }
        n += page;
      }
      for (std::string_view left = bytes.substr(0, n); !left.empty();) {
        const ssize_t written = pwrite(file.get(), left.data(), left.size(), offset + static_cast<off_t>(n - left.size()));
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return FileError("write", path, errno);
        left.remove_prefix(static_cast<size_t>(written));
      }
      bytes.remove_prefix(n + zeros);
      offset += static_cast<off_t>(n + zeros);
    }
    return Status::Ok();
  }

  const std::string tar_;
  const bool upper_;
  std::unique_ptr<archive, Freed> in_;
  std::vector<Folder> open_;  // the way from the top to where entries come now
};

Status Extract(const std::string& tar, const std::string& dir, bool upper) {
  if (access(tar.c_str(), F_OK) != 0) return Status(Code::kNotFound, "no " + tar);
  HF_ASSIGN_OR_RETURN(Fd top, OpenTop(dir));
  if (!upper) HF_RETURN_IF_ERROR(EmptyFolder(top.get(), dir));
  return Reader(tar, upper).Run(std::move(top));
}

}  // namespace

Status EmptyDirectory(const std::string& dir) {
  HF_ASSIGN_OR_RETURN(Fd top, OpenTop(dir));
  return EmptyFolder(top.get(), dir);
}

Status ExtractTree(const std::string& tar, const std::string& dir) { return Extract(tar, dir, false); }

Status ExtractUpper(const std::string& tar, const std::string& rootfs) { return Extract(tar, rootfs, true); }

}  // namespace holdfast::runtime
