#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace holdfast {
namespace {

Status Errno(std::string_view what, const std::string& path) {
  int error = errno;
  Code code = Code::kInternal;
  if (error == ENOENT) code = Code::kNotFound;
  if (error == ENOSPC || error == EDQUOT) code = Code::kResourceExhausted;
  if (error == EACCES || error == EPERM) code = Code::kPermissionDenied;
  return Status(code, "cannot " + std::string(what) + " " + path + ": " + std::generic_category().message(error));
}

Status WriteWhole(const std::string& path, std::string_view data, unsigned mode, bool sync) {
  const std::string tmp = path + ".tmp";
  int fd = open(tmp.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
  if (fd < 0) return Errno("create", tmp);
  while (!data.empty()) {
    ssize_t n = write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      Status status = Errno("write", tmp);
      close(fd);
      unlink(tmp.c_str());
      return status;
    }
    data.remove_prefix(static_cast<size_t>(n));
  }
  if (sync && fsync(fd) != 0) {
    Status status = Errno("fsync", tmp);
    close(fd);
    unlink(tmp.c_str());
    return status;
  }
  close(fd);
  if (rename(tmp.c_str(), path.c_str()) != 0) return Errno("rename to", path);
  return Status::Ok();
}

std::string Parent(const std::string& path) {
  size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

Status WriteFileDurably(const std::string& path, std::string_view data, unsigned mode) {
  HF_RETURN_IF_ERROR(WriteWhole(path, data, mode, true));
  return SyncDir(Parent(path));
}

Status WriteFileAtomically(const std::string& path, std::string_view data, unsigned mode) { return WriteWhole(path, data, mode, false); }

Result<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Errno("open", path);
  std::string data;
  char buffer[65536];
  while (true) {
    ssize_t n = read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      Status status = Errno("read", path);
      close(fd);
      return status;
    }
    if (n == 0) break;
    data.append(buffer, static_cast<size_t>(n));
    if (data.size() > max_bytes) {
      close(fd);
      return Status(Code::kResourceExhausted, path + " is longer than " + std::to_string(max_bytes) + " bytes");
    }
  }
  close(fd);
  return data;
}

Status MakeDirs(const std::string& path, unsigned mode) {
  for (size_t at = 1; at != std::string::npos;) {
    at = path.find('/', at);
    std::string part = path.substr(0, at);
    if (at != std::string::npos) ++at;
    if (part.empty()) continue;
    if (mkdir(part.c_str(), mode) != 0 && errno != EEXIST) return Errno("create folder", part);
  }
  return Status::Ok();
}

Status RemoveAll(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return errno == ENOENT ? Status::Ok() : Errno("look at", path);
  if (!S_ISDIR(info.st_mode)) return unlink(path.c_str()) == 0 || errno == ENOENT ? Status::Ok() : Errno("remove", path);
  HF_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDir(path));
  for (const std::string& name : names) {
    struct stat child;
    std::string full = path + "/" + name;
    // Of files an overlay says where they lie below it; one that is mounted cannot be unlinked anyway.
    if (lstat(full.c_str(), &child) == 0 && S_ISDIR(child.st_mode) && child.st_dev != info.st_dev) {
      return Status(Code::kFailedPrecondition, full + " is on another file system: not removed");
    }
    HF_RETURN_IF_ERROR(RemoveAll(full));
  }
  return rmdir(path.c_str()) == 0 || errno == ENOENT ? Status::Ok() : Errno("remove", path);
}

Result<std::vector<std::string>> ListDir(const std::string& path) {
  DIR* dir = opendir(path.c_str());
  if (dir == nullptr) return Errno("list", path);
  std::vector<std::string> names;
  while (dirent* entry = readdir(dir)) {  // NOLINT(concurrency-mt-unsafe): safe for distinct streams in glibc
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) names.emplace_back(entry->d_name);
  }
  closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

Status SyncDir(const std::string& path) {
  int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return Errno("open", path);
  int rc = fsync(fd);
  close(fd);
  return rc == 0 ? Status::Ok() : Errno("fsync", path);
}

bool IsSafeName(std::string_view name) {
  return !name.empty() && name.size() <= 253 && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

}  // namespace holdfast
