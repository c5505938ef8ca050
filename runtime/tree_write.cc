#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <memory>
#include <system_error>
#include <vector>

#include "base/file.h"
#include "runtime/tree.h"

namespace holdfast::runtime {
namespace {

constexpr int kMaxDepth = 512;
constexpr size_t kBlock = 1 << 20;

struct Freed {
  void operator()(archive* a) const { archive_free(a); }
  void operator()(archive_entry* e) const { archive_entry_free(e); }
};

Status Failed(const std::string& what, const std::string& path, int error) {
  Code code = error == ENOSPC || error == EDQUOT ? Code::kResourceExhausted : Code::kInternal;
  return Status(code, "cannot " + what + " " + path + ": " + std::generic_category().message(error));
}

class Writer {
 public:
  Writer(const std::string& dir, const std::string& tar) : dir_(dir), tar_(tar), buffer_(kBlock) {}

  Status Run() {
    out_.reset(archive_write_new());
    disk_.reset(archive_read_disk_new());
    archive_read_disk_set_symlink_physical(disk_.get());
    if (archive_write_set_format_pax(out_.get()) != ARCHIVE_OK) return Error("start", tar_);
    archive_write_set_bytes_per_block(out_.get(), kBlock);
    archive_write_set_bytes_in_last_block(out_.get(), 512);
    int fd = open(tar_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return Failed("create", tar_, errno);
    Status status = Status::Ok();
    struct stat info;
    if (archive_write_open_fd(out_.get(), fd) != ARCHIVE_OK) {
      status = Error("write", tar_);
    } else if (lstat(dir_.c_str(), &info) != 0) {
      status = Failed("look at", dir_, errno);
    } else {
      device_ = info.st_dev;
      status = Add("", info, 0);
      if (archive_write_close(out_.get()) != ARCHIVE_OK && status.ok()) status = Error("finish", tar_);
    }
    close(fd);
    if (!status.ok()) unlink(tar_.c_str());
    return status;
  }

 private:
  Status Error(const std::string& what, const std::string& path) {
    const char* text = archive_error_string(out_.get());
    Code code = archive_errno(out_.get()) == ENOSPC ? Code::kResourceExhausted : Code::kInternal;
    return Status(code, "cannot " + what + " " + path + ": " + (text != nullptr ? text : "unknown error"));
  }

  // `relative`: below dir_, empty for dir_ itself.
  Status Add(const std::string& relative, const struct stat& info, int depth) {
    const std::string path = relative.empty() ? dir_ : dir_ + "/" + relative;
    if (depth > kMaxDepth) return Status(Code::kUnsupported, path + " lies deeper than 512 folders");
    const bool whiteout = S_ISCHR(info.st_mode) && info.st_rdev == 0;
    if (S_ISSOCK(info.st_mode) || ((S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode)) && !whiteout)) return Status::Ok();
    std::unique_ptr<archive_entry, Freed> entry(archive_entry_new());
    archive_entry_copy_pathname(entry.get(), relative.empty() ? "." : relative.c_str());
    archive_entry_copy_sourcepath(entry.get(), path.c_str());
    int fd = -1;
    if (S_ISREG(info.st_mode)) {
      fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOATIME);
      if (fd < 0 && errno == EPERM) fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
      if (fd < 0) return errno == ENOENT ? Status::Ok() : Failed("read", path, errno);
    }
    Status status = AddEntry(entry.get(), relative, path, info, fd);
    if (fd >= 0) close(fd);
    HF_RETURN_IF_ERROR(status);
    if (!S_ISDIR(info.st_mode)) return Status::Ok();
    HF_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDir(path));
    for (const std::string& name : names) {
      struct stat child;
      if (lstat((path + "/" + name).c_str(), &child) != 0 || child.st_dev != device_) continue;
      HF_RETURN_IF_ERROR(Add(relative.empty() ? name : relative + "/" + name, child, depth + 1));
    }
    return Status::Ok();
  }

  Status AddEntry(archive_entry* entry, const std::string& relative, const std::string& path, const struct stat& info, int fd) {
    int rc = archive_read_disk_entry_from_file(disk_.get(), entry, fd, &info);
    if (rc < ARCHIVE_WARN) return Status(Code::kInternal, "cannot read the attributes of " + path);
    int left = archive_entry_xattr_reset(entry);
    const char* name;
    const void* value;
    size_t size;
    while (left-- > 0 && archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK) {
      std::string_view key(name);
      if (key == "trusted.overlay.redirect" || key == "trusted.overlay.metacopy") {
        return Status(Code::kUnsupported,
                      path + " refers to another layer (" + name + "): mount the container's overlay without redirect_dir and metacopy");
      }
    }
    archive_entry_set_hardlink(entry, nullptr);
    if (!S_ISDIR(info.st_mode) && info.st_nlink > 1 && !(S_ISCHR(info.st_mode) && info.st_rdev == 0)) {
      // Whiteouts share one inode on some kernels: each is written by itself.
      auto [first, fresh] = links_.try_emplace(info.st_ino, relative);
      if (!fresh) {
        archive_entry_copy_hardlink(entry, first->second.c_str());
        archive_entry_set_size(entry, 0);
        archive_entry_sparse_clear(entry);
        fd = -1;
      }
    }
    if (archive_write_header(out_.get(), entry) < ARCHIVE_WARN) return Error("archive", path);
    return fd >= 0 ? CopyData(entry, path, fd, info.st_size) : Status::Ok();
  }

  // Only the parts that hold data; libarchive fills what lies between with zeros or, in sparse entries, leaves it out.
  Status CopyData(archive_entry* entry, const std::string& path, int fd, off_t size) {
    const bool sparse = archive_entry_sparse_count(entry) > 0;
    off_t at = 0;
    while (at < size) {
      off_t end = size;
      if (sparse) {
        off_t data = lseek(fd, at, SEEK_DATA);
        if (data < 0) data = size;
        // A sparse entry's data is written as if it were whole: the writer drops the holes itself.
        if (data > at) {
          HF_RETURN_IF_ERROR(WriteZeros(data - at, path));
          at = data;
        }
        off_t hole = lseek(fd, at, SEEK_HOLE);
        end = hole > at ? std::min(hole, size) : size;
      }
      while (at < end) {
        ssize_t n = pread(fd, buffer_.data(), std::min<off_t>(static_cast<off_t>(buffer_.size()), end - at), at);
        if (n < 0) return Failed("read", path, errno);
        if (n == 0) return Status(Code::kDataLoss, path + " became shorter while it was archived");
        if (archive_write_data(out_.get(), buffer_.data(), static_cast<size_t>(n)) != n) return Error("write", tar_);
        at += n;
      }
    }
    return Status::Ok();
  }

  Status WriteZeros(off_t count, const std::string& path) {
    static const std::vector<char> kZeros(kBlock);
    while (count > 0) {
      auto n = static_cast<size_t>(std::min<off_t>(count, static_cast<off_t>(kZeros.size())));
      if (archive_write_data(out_.get(), kZeros.data(), n) != static_cast<ssize_t>(n)) return Error("archive", path);
      count -= static_cast<off_t>(n);
    }
    return Status::Ok();
  }

  const std::string dir_, tar_;
  std::unique_ptr<archive, Freed> out_, disk_;
  std::vector<char> buffer_;
  std::map<ino_t, std::string> links_;  // every file with several names that was seen: as many as such files
  dev_t device_ = 0;
};

}  // namespace

Status ArchiveTree(const std::string& dir, const std::string& tar) { return Writer(dir, tar).Run(); }

}  // namespace holdfast::runtime
