#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "base/log.h"
#include "runtime/beneath.h"
#include "runtime/pax.h"
#include "runtime/posix_acl.h"
#include "runtime/tree.h"

namespace holdfast::runtime {
namespace {

constexpr size_t kBlock = 1 << 20;
constexpr size_t kMaxAttribute = 65536;  // the kernel's limit, of one and of all their names

// The archive as it grows: written in blocks.
class Output {
 public:
  explicit Output(std::string path) : path_(std::move(path)) { buffer_.reserve(2 * kBlock); }

  Status Open() {
    fd_ = Fd(open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    return fd_.ok() ? Status::Ok() : FileError("create", path_, errno);
  }
  Status Append(std::string_view bytes) {
    buffer_.append(bytes);
    return buffer_.size() < kBlock ? Status::Ok() : Flush();
  }
  Status AppendZeros(off_t count) {
    for (; count > 0; count -= static_cast<off_t>(std::min<off_t>(count, kBlock))) {
      buffer_.append(static_cast<size_t>(std::min<off_t>(count, kBlock)), '\0');
      if (buffer_.size() >= kBlock) HF_RETURN_IF_ERROR(Flush());
    }
    return Status::Ok();
  }
  Status Flush() {
    for (std::string_view left = buffer_; !left.empty();) {
      const ssize_t n = write(fd_.get(), left.data(), left.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return FileError("write", path_, errno);
      left.remove_prefix(static_cast<size_t>(n));
    }
    buffer_.clear();
    return Status::Ok();
  }

 private:
  const std::string path_;
  Fd fd_;
  std::string buffer_;
};

class Writer {
 public:
  Writer(const std::string& dir, const std::string& tar, MonoTime until) : dir_(dir), out_(tar), until_(until), buffer_(kBlock, '\0') {}

  Status Run() {
    HF_ASSIGN_OR_RETURN(Fd top, OpenTop(dir_));
    HF_RETURN_IF_ERROR(out_.Open());
    HF_RETURN_IF_ERROR(Add(std::move(top), "", 0));
    HF_RETURN_IF_ERROR(out_.Append(PaxEnd()));
    return out_.Flush();
  }

 private:
  std::string Path(const std::string& relative) const { return relative.empty() ? dir_ : dir_ + "/" + relative; }

  Status InTime(const std::string& path) const {
    if (Clock::Real().Mono() < until_) return Status::Ok();
    return Status(Code::kDeadlineExceeded, "the deadline passed while " + path + " was archived");
  }

  // `file`: O_PATH, of whatever kind; or the top. `relative`: below dir_, empty for dir_ itself.
  Status Add(Fd file, const std::string& relative, int depth) {
    const std::string path = Path(relative);
    if (depth > kMaxTreeDepth) return Status(Code::kUnsupported, path + " lies deeper than " + std::to_string(kMaxTreeDepth) + " folders");
    HF_RETURN_IF_ERROR(InTime(path));
    PaxEntry entry{.path = relative.empty() ? "." : relative, .info = {}};
    if (fstat(file.get(), &entry.info) != 0) return FileError("look at", path, errno);
    const mode_t mode = entry.info.st_mode;
    const bool whiteout = S_ISCHR(mode) && entry.info.st_rdev == 0;
    if (S_ISSOCK(mode) || ((S_ISCHR(mode) || S_ISBLK(mode)) && !whiteout)) return Status::Ok();
    if (!S_ISDIR(mode) && entry.info.st_nlink > 1 && !whiteout) {
      // Whiteouts share one inode on some kernels: each is written by itself.
      auto [first, fresh] = links_.try_emplace({entry.info.st_dev, entry.info.st_ino}, relative);
      if (!fresh) {
        entry.hardlink = first->second;
        return out_.Append(PaxHeader(entry));
      }
    }
    HF_RETURN_IF_ERROR(ReadAttributes(file, path, &entry));
    if (S_ISLNK(mode)) HF_RETURN_IF_ERROR(ReadTarget(file, path, &entry));
    if (S_ISREG(mode)) return AddContent(file, path, entry);
    HF_RETURN_IF_ERROR(out_.Append(PaxHeader(entry)));
    if (!S_ISDIR(mode)) return Status::Ok();
    Fd folder(openat(file.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder.ok()) return FileError("open", path, errno);
    file = Fd();
    HF_ASSIGN_OR_RETURN(std::vector<std::string> names, NamesIn(folder.get(), path));
    for (const std::string& name : names) {
      Fd child = OpenIn(folder.get(), name, O_PATH);
      if (!child.ok() && (errno == ENOENT || errno == EXDEV)) continue;  // gone by now; mounted there
      if (!child.ok()) return FileError("open", path + "/" + name, errno);
      HF_RETURN_IF_ERROR(Add(std::move(child), relative.empty() ? name : relative + "/" + name, depth + 1));
    }
    return Status::Ok();
  }

  static Status ReadTarget(const Fd& file, const std::string& path, PaxEntry* entry) {
    char target[4097];
    const ssize_t size = readlinkat(file.get(), "", target, sizeof target);
    if (size < 0) return FileError("read the link", path, errno);
    entry->target.assign(target, static_cast<size_t>(size));
    return Status::Ok();
  }

  Status ReadAttributes(const Fd& file, const std::string& path, PaxEntry* entry) {
    const std::string at = file.Path();
    const ssize_t size = listxattr(at.c_str(), names_.data(), names_.size());
    if (size < 0) return errno == ENOTSUP ? Status::Ok() : FileError("read the attributes of", path, errno);
    for (const char* name = names_.data(); name < names_.data() + size; name += strlen(name) + 1) {
      const std::string key(name);
      if (key == "trusted.overlay.redirect" || key == "trusted.overlay.metacopy") {
        return Status(Code::kUnsupported,
                      path + " refers to another layer (" + key + "): mount the container's overlay without redirect_dir and metacopy");
      }
      const ssize_t length = getxattr(at.c_str(), name, value_.data(), value_.size());
      if (length < 0) continue;  // gone by now
      std::string value(value_.data(), static_cast<size_t>(length));
      if (key == kAccessAcl) {
        entry->acl = AclText(value);
      } else if (key == kDefaultAcl) {
        entry->default_acl = AclText(value);
      } else {
        entry->attributes[key] = std::move(value);
      }
    }
    return Status::Ok();
  }

  Status AddContent(const Fd& file, const std::string& path, PaxEntry& entry) {
    Fd content(open(file.Path().c_str(), O_RDONLY | O_CLOEXEC | O_NOATIME));
    if (!content.ok() && errno == EPERM) content = Fd(open(file.Path().c_str(), O_RDONLY | O_CLOEXEC));
    if (!content.ok()) return FileError("read", path, errno);
    HF_RETURN_IF_ERROR(FindExtents(content, path, &entry));
    HF_RETURN_IF_ERROR(out_.Append(PaxHeader(entry)));
    if (!entry.sparse) entry.extents = {{0, entry.info.st_size}};
    for (const Extent& extent : entry.extents) HF_RETURN_IF_ERROR(CopyData(content, path, extent));
    return out_.AppendZeros((512 - DataSize(entry) % 512) % 512);
  }

  // Where its data is. Each costs the pod a page that it really has: there is no bound but time.
  Status FindExtents(const Fd& content, const std::string& path, PaxEntry* entry) const {
    const off_t size = entry->info.st_size;
    if (entry->info.st_blocks >= size / 512) return Status::Ok();
    for (off_t at = 0; at < size;) {
      HF_RETURN_IF_ERROR(InTime(path));
      const off_t data = lseek(content.get(), at, SEEK_DATA);
      if (data < 0 && errno != ENXIO) return Status::Ok();  // a file system without holes
      if (data < 0 || data >= size) break;
      const off_t hole = lseek(content.get(), data, SEEK_HOLE);
      at = hole > data ? std::min(hole, size) : size;
      entry->extents.push_back({data, at - data});
    }
    entry->sparse = true;
    return Status::Ok();
  }

  Status CopyData(const Fd& content, const std::string& path, const Extent& extent) {
    for (off_t done = 0; done < extent.size;) {
      HF_RETURN_IF_ERROR(InTime(path));
      const auto want = static_cast<size_t>(std::min<off_t>(static_cast<off_t>(buffer_.size()), extent.size - done));
      const ssize_t n = pread(content.get(), buffer_.data(), want, extent.offset + done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return FileError("read", path, errno);
      if (n == 0) {
        LogWarning("a file became shorter while it was archived; the rest of it is zeros", {{"file", path}});
        return out_.AppendZeros(extent.size - done);
      }
      HF_RETURN_IF_ERROR(out_.Append(std::string_view(buffer_.data(), static_cast<size_t>(n))));
      done += n;
    }
    return Status::Ok();
  }

  const std::string dir_;
  Output out_;
  const MonoTime until_;
  std::string buffer_, names_ = std::string(kMaxAttribute, '\0'), value_ = std::string(kMaxAttribute, '\0');
  // Every file with several names that was seen: as many as such files.
  std::map<std::pair<dev_t, ino_t>, std::string> links_;
};

}  // namespace

Status ArchiveTree(const std::string& dir, const std::string& tar, MonoTime until) {
  Status status = Writer(dir, tar, until).Run();
  if (!status.ok()) unlink(tar.c_str());
  return status;
}

}  // namespace holdfast::runtime
