#include "runtime/beneath.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/file.h"

namespace holdfast::runtime {
namespace {

constexpr int kRounds = 1000;  // whoever still changes what is at a name by then means to

Status Remove(int folder, const std::string& name, const std::string& path, int depth);

Status Empty(int folder, const std::string& path, int depth) {
  HF_ASSIGN_OR_RETURN(std::vector<std::string> names, NamesIn(folder, path));
  for (const std::string& name : names) HF_RETURN_IF_ERROR(Remove(folder, name, path + "/" + name, depth));
  return Status::Ok();
}

Status Remove(int folder, const std::string& name, const std::string& path, int depth) {
  if (depth > kMaxTreeDepth) return Status(Code::kUnsupported, path + " lies deeper than " + std::to_string(kMaxTreeDepth) + " folders");
  for (int round = 0; round < kRounds; ++round) {
    if (unlinkat(folder, name.c_str(), 0) == 0 || errno == ENOENT) return Status::Ok();
    if (errno != EISDIR) return FileError("remove", path, errno);
    const Fd inside = OpenIn(folder, name, O_RDONLY | O_DIRECTORY);
    if (!inside.ok() && errno == EXDEV) return Status(Code::kFailedPrecondition, path + " is on another file system: not removed");
    if (!inside.ok() && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)) continue;  // it is another one by now
    if (!inside.ok()) return FileError("open", path, errno);
    HF_RETURN_IF_ERROR(Empty(inside.get(), path, depth + 1));
    if (unlinkat(folder, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return Status::Ok();
    if (errno != ENOTDIR && errno != ENOTEMPTY && errno != EEXIST) return FileError("remove", path, errno);
  }
  return Status(Code::kUnavailable, "cannot remove " + path + ": somebody makes it anew again and again");
}

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

Status FileError(const std::string& what, const std::string& path, int error) {
  Code code = error == ENOSPC || error == EDQUOT ? Code::kResourceExhausted : Code::kInternal;
  if (error == ENOENT) code = Code::kNotFound;
  return Status(code, "cannot " + what + " " + path + ": " + std::generic_category().message(error));
}

Result<Fd> OpenTop(const std::string& dir) {
  Fd top(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!top.ok()) return FileError("enter", dir, errno);
  return top;
}

Fd OpenIn(int folder, const std::string& name, int flags, mode_t mode) {
  open_how how = {};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC | O_NOFOLLOW);
  how.mode = mode;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
  return Fd(static_cast<int>(syscall(SYS_openat2, folder, name.c_str(), &how, sizeof how)));
}

Result<std::vector<std::string>> NamesIn(int folder, const std::string& path) {
  Result<std::vector<std::string>> names = ListDir("/proc/self/fd/" + std::to_string(folder));  // read anew, whatever `folder` was read to
  if (!names.ok()) return names.status().With("in " + path);
  return names;
}

Status RemoveIn(int folder, const std::string& name, const std::string& path) { return Remove(folder, name, path, 0); }

Status EmptyFolder(int folder, const std::string& path) { return Empty(folder, path, 0); }

}  // namespace holdfast::runtime
