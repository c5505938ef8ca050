#include "storage/file_tree.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/file.h"
#include "base/log.h"
#include "storage/limits.h"

namespace holdfast::storage {
namespace {

Status Errno(std::string_view what, const std::string& path) {
  const int error = errno;
  Code code = error == ENOENT ? Code::kNotFound : error == ENOSPC || error == EDQUOT ? Code::kResourceExhausted : Code::kInternal;
  if (error == ELOOP || error == EXDEV) code = Code::kFailedPrecondition;
  return Status(code, "cannot " + std::string(what) + " " + path + ": " + std::generic_category().message(error));
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

Result<std::vector<TreeFile>> ListTree(const std::string& dir) {
  std::vector<TreeFile> files;
  struct Folder {
    std::string path;
    size_t depth;
  };
  std::vector<Folder> folders = {{"", 1}};
  size_t seen = 0;
  while (!folders.empty()) {
    Folder folder = std::move(folders.back());
    folders.pop_back();
    if (folder.depth > kMaxPathDepth) return Status(Code::kInvalidArgument, dir + "/" + folder.path + " lies too deep for a checkpoint");
    HF_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDir(dir + "/" + folder.path));
    seen += names.size();
    if (seen > 2 * kMaxFiles) return Status(Code::kInvalidArgument, dir + " has more than " + std::to_string(kMaxFiles) + " files");
    for (const std::string& name : names) {
      const std::string path = folder.path + name;
      struct stat info;
      if (lstat((dir + "/" + path).c_str(), &info) != 0) return Errno("look at", dir + "/" + path);
      if (S_ISDIR(info.st_mode)) {
        folders.push_back({path + "/", folder.depth + 1});
      } else if (S_ISREG(info.st_mode)) {
        files.push_back({.path = path, .size = static_cast<uint64_t>(info.st_size), .mode = info.st_mode & 0777U});
      } else {
        LogWarning("not a regular file: it does not go into the checkpoint", {{"path", dir + "/" + path}});
      }
    }
  }
  if (files.size() > kMaxFiles) return Status(Code::kInvalidArgument, dir + " has more than " + std::to_string(kMaxFiles) + " files");
  std::sort(files.begin(), files.end(), [](const TreeFile& a, const TreeFile& b) { return a.path < b.path; });
  return files;
}

Result<Descriptor> OpenFolder(const std::string& dir) {
  int fd = open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return Errno("open", dir);
  return Descriptor(fd);
}

Result<Descriptor> OpenBelow(const Descriptor& folder, const std::string& path, int flags, unsigned mode) {
  open_how how = {};
  how.flags = static_cast<unsigned>(flags) | O_CLOEXEC | O_NOFOLLOW;
  how.mode = (flags & O_CREAT) != 0 ? mode : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  long fd = syscall(SYS_openat2, folder.get(), path.c_str(), &how, sizeof how);
  if (fd < 0) return Errno("open", path);
  return Descriptor(static_cast<int>(fd));
}

Status MakeFoldersBelow(const std::string& dir, const std::string& path) {
  for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string folder = dir + "/" + path.substr(0, slash);
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return Errno("create folder", folder);
    struct stat info;
    if (lstat(folder.c_str(), &info) != 0) return Errno("look at", folder);
    if (!S_ISDIR(info.st_mode)) return Status(Code::kFailedPrecondition, folder + " is in the way: it is not a folder");
  }
  return Status::Ok();
}

Status ReadAt(int fd, std::span<std::byte> buffer, uint64_t offset, const std::string& path) {
  while (!buffer.empty()) {
    ssize_t n = pread(fd, buffer.data(), buffer.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Errno("read", path);
    if (n == 0) return Status(Code::kFailedPrecondition, path + " became shorter while it was read: it must not change any more");
    buffer = buffer.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return Status::Ok();
}

Status WriteAt(int fd, std::span<const std::byte> bytes, uint64_t offset, const std::string& path) {
  while (!bytes.empty()) {
    ssize_t n = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Errno("write", path);
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return Status::Ok();
}

}  // namespace holdfast::storage
