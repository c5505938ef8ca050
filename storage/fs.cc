#include "storage/fs.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/file.h"

namespace holdfast::storage {
namespace {

constexpr size_t kWriteBackFrom = 1 << 20;  // writes this long start on their way to the disk at once

Status Errno(std::string_view what, const std::string& path) {
  const int error = errno;
  Code code = error == ENOENT ? Code::kNotFound : error == ENOSPC || error == EDQUOT ? Code::kResourceExhausted : Code::kInternal;
  return Status(code, "cannot " + std::string(what) + " " + path + ": " + std::generic_category().message(error));
}

class RealFile final : public File {
 public:
  RealFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~RealFile() override { close(fd_); }
  RealFile(const RealFile&) = delete;
  RealFile& operator=(const RealFile&) = delete;

  Status WriteAt(uint64_t offset, std::span<const std::byte> bytes) override {
    const off_t begin = static_cast<off_t>(offset);
    for (std::span<const std::byte> rest = bytes; !rest.empty();) {
      const ssize_t n = pwrite(fd_, rest.data(), rest.size(), begin + static_cast<off_t>(bytes.size() - rest.size()));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Errno("write", path_);
      rest = rest.subspan(static_cast<size_t>(n));
    }
    // So that the Sync of a whole pack finds little left to do; what fails here fails there.
    if (bytes.size() >= kWriteBackFrom) sync_file_range(fd_, begin, static_cast<off_t>(bytes.size()), SYNC_FILE_RANGE_WRITE);
    return Status::Ok();
  }
  Status ReadAt(uint64_t offset, std::span<std::byte> bytes) const override {
    while (!bytes.empty()) {
      const ssize_t n = pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Errno("read", path_);
      if (n == 0) return Status(Code::kDataLoss, path_ + " is cut short");
      offset += static_cast<uint64_t>(n);
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return Status::Ok();
  }
  Status Truncate(uint64_t bytes) override { return ftruncate(fd_, static_cast<off_t>(bytes)) == 0 ? Status::Ok() : Errno("cut", path_); }
  Status Allocate(uint64_t bytes) override {
    return fallocate(fd_, 0, 0, static_cast<off_t>(bytes)) == 0 ? Status::Ok() : Errno("allocate", path_);
  }
  Status Sync() override { return fdatasync(fd_) == 0 ? Status::Ok() : Errno("sync", path_); }
  void Forget() override { [[maybe_unused]] int advised = posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED); }
  Result<uint64_t> Size() const override {
    struct stat info;
    if (fstat(fd_, &info) != 0) return Errno("look at", path_);
    return static_cast<uint64_t>(info.st_size);
  }

 private:
  const int fd_;
  const std::string path_;
};

class RealLock final : public FileLock {
 public:
  explicit RealLock(int fd) : fd_(fd) {}
  ~RealLock() override { close(fd_); }
  RealLock(const RealLock&) = delete;
  RealLock& operator=(const RealLock&) = delete;

 private:
  const int fd_;
};

class RealFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<File>> Create(const std::string& path) override { return Opened(path, O_RDWR | O_CREAT | O_TRUNC); }
  Result<std::unique_ptr<File>> Open(const std::string& path, For use) override {
    return Opened(path, use == For::kReading ? O_RDONLY : O_RDWR);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    return rename(from.c_str(), to.c_str()) == 0 ? Status::Ok() : Errno("rename", from + " to " + to);
  }
  Status Remove(const std::string& path) override {
    return unlink(path.c_str()) == 0 || errno == ENOENT ? Status::Ok() : Errno("remove", path);
  }
  Status MakeDir(const std::string& path) override { return MakeDirs(path); }
  Status SyncDir(const std::string& path) override { return holdfast::SyncDir(path); }
  Result<std::vector<std::string>> List(const std::string& path) override { return ListDir(path); }
  Result<Space> FreeSpace(const std::string& path) override {
    struct statvfs info;
    if (statvfs(path.c_str(), &info) != 0) return Errno("look at the free space of", path);
    return Space{.total = info.f_blocks * info.f_frsize, .free = info.f_bavail * info.f_frsize};
  }
  Result<std::unique_ptr<FileLock>> Lock(const std::string& path) override {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return Errno("open", path);
    auto lock = std::make_unique<RealLock>(fd);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) return Status(Code::kFailedPrecondition, "another process has " + path);
    return std::unique_ptr<FileLock>(std::move(lock));
  }

 private:
  static Result<std::unique_ptr<File>> Opened(const std::string& path, int flags) {
    const int fd = open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return Errno("open", path);
    return std::unique_ptr<File>(std::make_unique<RealFile>(fd, path));
  }
};

}  // namespace

FileSystem& FileSystem::Real() {
  static RealFileSystem real;
  return real;
}

Status WriteDurably(FileSystem& fs, const std::string& path, std::string_view bytes) {
  const std::string tmp = path + ".tmp";
  Status status;
  {
    HF_ASSIGN_OR_RETURN(std::unique_ptr<File> file, fs.Create(tmp));
    status = file->WriteAt(0, std::as_bytes(std::span(bytes)));
    if (status.ok()) status = file->Sync();
  }
  if (status.ok()) status = fs.Rename(tmp, path);
  if (!status.ok()) {
    [[maybe_unused]] Status removed = fs.Remove(tmp);  // a start removes what stays
    return status;
  }
  return fs.SyncDir(path.substr(0, path.rfind('/')));
}

Result<std::string> ReadWhole(FileSystem& fs, const std::string& path, size_t max_bytes) {
  HF_ASSIGN_OR_RETURN(std::unique_ptr<File> file, fs.Open(path, FileSystem::For::kReading));
  HF_ASSIGN_OR_RETURN(uint64_t size, file->Size());
  if (size > max_bytes) return Status(Code::kResourceExhausted, path + " is longer than " + std::to_string(max_bytes) + " bytes");
  std::string bytes(size, '\0');
  HF_RETURN_IF_ERROR(file->ReadAt(0, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

}  // namespace holdfast::storage
