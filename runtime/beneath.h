// Files of a pod by descriptors, one name at a time. Whoever may change a tree while we walk it can swap a folder for a link between two
// looks at the same path: here nothing is looked at twice. What a descriptor was opened for is what is read, written or removed, and no
// step follows a link, leaves the mount, or goes up. Errors: kUnavailable when what is at a name keeps changing.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace holdfast::runtime {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  // A way to the very file for calls that take a path, also where the descriptor is O_PATH.
  std::string Path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_ = -1;
};

inline constexpr int kMaxTreeDepth = 512;  // a descriptor a level is held

// With what errno says: kResourceExhausted when there is no room.
Status FileError(const std::string& what, const std::string& path, int error);

// A folder that the pod cannot replace: the last step is no link.
Result<Fd> OpenTop(const std::string& dir);
// `name`, a single one, in `folder`; not ok with errno set when it cannot be opened: ELOOP for a link (not with O_PATH | O_NOFOLLOW, which
// opens the link itself), EXDEV for what is mounted there, ENOTDIR with O_DIRECTORY for what is no folder.
Fd OpenIn(int folder, const std::string& name, int flags, mode_t mode = 0);
// The names in it, sorted.
Result<std::vector<std::string>> NamesIn(int folder, const std::string& path);

// Removes `name` with all that is below it, what is mounted there excepted: kFailedPrecondition. OK when there is none. `path`: for errors.
Status RemoveIn(int folder, const std::string& name, const std::string& path);
// Removes everything in it.
Status EmptyFolder(int folder, const std::string& path);

}  // namespace holdfast::runtime
