#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/file.h"
#include "runtime/tree.h"

namespace holdfast::runtime {
namespace {

constexpr int kFlags = ARCHIVE_EXTRACT_OWNER | ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_ACL | ARCHIVE_EXTRACT_XATTR |
                       ARCHIVE_EXTRACT_SPARSE | ARCHIVE_EXTRACT_SECURE_NODOTDOT | ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS |
                       ARCHIVE_EXTRACT_SECURE_SYMLINKS;

struct Freed {
  void operator()(archive* a) const { archive_free(a); }
};

// libarchive writes relative to the working directory.
class WorkingDirectory {
 public:
  explicit WorkingDirectory(const std::string& dir) : back_(open(".", O_PATH | O_DIRECTORY | O_CLOEXEC)), ok_(chdir(dir.c_str()) == 0) {}
  ~WorkingDirectory() {
    if (back_ >= 0 && fchdir(back_) != 0) ok_ = false;
    if (back_ >= 0) close(back_);
  }
  bool ok() const { return ok_; }

 private:
  int back_;
  bool ok_;
};

// A relative path without "." and ".." steps, and "." itself.
bool IsInside(std::string_view path) {
  if (path.empty() || path[0] == '/' || path.size() > 4096) return false;
  while (!path.empty()) {
    size_t slash = path.find('/');
    if (path.substr(0, slash) == "..") return false;
    path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
  }
  return true;
}

// True when every folder above `path` is a real folder: nothing that we remove lies behind a link.
bool ParentsAreFolders(const std::string& path) {
  for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    struct stat info;
    if (lstat(path.substr(0, slash).c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return false;
  }
  return true;
}

// Takes overlayfs's own attributes away. True when the entry was an opaque directory.
bool StripOverlay(archive_entry* entry) {
  struct Attribute {
    std::string name, value;
  };
  std::vector<Attribute> kept;
  bool opaque = false;
  const char* name;
  const void* value;
  size_t size;
  int left = archive_entry_xattr_reset(entry);
  while (left-- > 0 && archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK) {
    std::string key(name), text(static_cast<const char*>(value), size);
    if (key == "trusted.overlay.opaque" && text == "y") opaque = true;
    if (!key.starts_with("trusted.overlay.")) kept.push_back({std::move(key), std::move(text)});
  }
  archive_entry_xattr_clear(entry);
  for (const Attribute& a : kept) archive_entry_xattr_add_entry(entry, a.name.c_str(), a.value.data(), a.value.size());
  return opaque;
}

class Reader {
 public:
  Reader(std::string tar, bool upper) : tar_(std::move(tar)), upper_(upper) {}

  Status Run(const std::string& dir) {
    in_.reset(archive_read_new());
    archive_read_support_format_tar(in_.get());
    int fd = open(tar_.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
      return Status(errno == ENOENT ? Code::kNotFound : Code::kInternal,
                    "cannot open " + tar_ + ": " + std::generic_category().message(errno));
    out_.reset(archive_write_disk_new());
    archive_write_disk_set_options(out_.get(), kFlags);
    Status status = Status::Ok();
    {
      WorkingDirectory inside(dir);
      if (!inside.ok()) {
        status = Status(Code::kNotFound, "cannot enter " + dir);
      } else if (archive_read_open_fd(in_.get(), fd, 1 << 20) != ARCHIVE_OK) {
        status = Error(in_.get(), "read", tar_);
      } else {
        status = Entries();
        // Closing sets the times and modes of directories, which needs the working directory.
        if (archive_write_close(out_.get()) < ARCHIVE_WARN && status.ok()) status = Error(out_.get(), "finish", dir);
      }
    }
    close(fd);
    return status.ok() ? status : status.With(tar_);
  }

 private:
  static Status Error(archive* which, const std::string& what, const std::string& path) {
    const char* text = archive_error_string(which);
    Code code = archive_errno(which) == ENOSPC ? Code::kResourceExhausted : Code::kDataLoss;
    return Status(code, "cannot " + what + " " + path + ": " + (text != nullptr ? text : "unknown error"));
  }

  Status Entries() {
    archive_entry* entry;
    int rc;
    while ((rc = archive_read_next_header(in_.get(), &entry)) >= ARCHIVE_WARN && rc != ARCHIVE_EOF) {
      const char* raw = archive_entry_pathname(entry);
      std::string path = raw != nullptr ? raw : "";
      while (path.size() > 1 && path.ends_with('/')) path.pop_back();
      const char* link = archive_entry_hardlink(entry);
      if (!IsInside(path) || (link != nullptr && !IsInside(link)))
        return Status(Code::kDataLoss, "entry \"" + path.substr(0, 200) + "\" leaves its folder");
      HF_RETURN_IF_ERROR(Entry(entry, path));
    }
    return rc == ARCHIVE_EOF ? Status::Ok() : Error(in_.get(), "read", tar_);
  }

  Status Entry(archive_entry* entry, const std::string& path) {
    const auto type = archive_entry_filetype(entry);
    const bool hardlink = archive_entry_hardlink(entry) != nullptr;
    if (!hardlink && type == AE_IFCHR && archive_entry_rdev(entry) == 0)
      return upper_ && ParentsAreFolders(path) ? RemoveAll(path) : Status::Ok();
    if (!hardlink && type != AE_IFREG && type != AE_IFDIR && type != AE_IFLNK && type != AE_IFIFO) return Status::Ok();
    const bool opaque = StripOverlay(entry);
    if (path != ".") {
      if (!ParentsAreFolders(path)) return Status(Code::kDataLoss, "entry \"" + path + "\" lies behind a link");
      struct stat there;
      if (lstat(path.c_str(), &there) == 0 && (!S_ISDIR(there.st_mode) || type != AE_IFDIR || hardlink))
        HF_RETURN_IF_ERROR(RemoveAll(path));
      if (opaque && upper_ && Exists(path)) HF_RETURN_IF_ERROR(EmptyDirectory(path));
    }
    if (archive_write_header(out_.get(), entry) < ARCHIVE_WARN) return Error(out_.get(), "create", path);
    if (!hardlink && type == AE_IFREG) HF_RETURN_IF_ERROR(Data(path));
    return archive_write_finish_entry(out_.get()) < ARCHIVE_WARN ? Error(out_.get(), "finish", path) : Status::Ok();
  }

  Status Data(const std::string& path) {
    const void* block;
    size_t size;
    la_int64_t offset;
    int rc;
    while ((rc = archive_read_data_block(in_.get(), &block, &size, &offset)) >= ARCHIVE_WARN && rc != ARCHIVE_EOF) {
      if (archive_write_data_block(out_.get(), block, size, offset) < ARCHIVE_WARN) return Error(out_.get(), "write", path);
    }
    return rc == ARCHIVE_EOF ? Status::Ok() : Error(in_.get(), "read", tar_);
  }

  const std::string tar_;
  const bool upper_;
  std::unique_ptr<archive, Freed> in_, out_;
};

}  // namespace

Status EmptyDirectory(const std::string& dir) {
  HF_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDir(dir));
  for (const std::string& name : names) HF_RETURN_IF_ERROR(RemoveAll(dir + "/" + name));
  return Status::Ok();
}

Status ExtractTree(const std::string& tar, const std::string& dir) {
  if (!Exists(tar)) return Status(Code::kNotFound, "no " + tar);
  HF_RETURN_IF_ERROR(EmptyDirectory(dir));
  return Reader(tar, false).Run(dir);
}

Status ExtractUpper(const std::string& tar, const std::string& rootfs) { return Reader(tar, true).Run(rootfs); }

}  // namespace holdfast::runtime
