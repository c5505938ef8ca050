// The folders that Ingest reads and Fetch writes, without following a link out of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace holdfast::storage {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

struct TreeFile {
  std::string path;  // relative
  uint64_t size = 0;
  uint32_t mode = 0;
};

// Regular files below `dir`, sorted by path. Links, sockets and the like are logged and left out. kInvalidArgument when there are too many
// or they lie too deep for a manifest.
Result<std::vector<TreeFile>> ListTree(const std::string& dir);

Result<Descriptor> OpenFolder(const std::string& dir);
// openat(2) below `folder`; a link anywhere on the way is an error.
Result<Descriptor> OpenBelow(const Descriptor& folder, const std::string& path, int flags, unsigned mode = 0);
// The folders on the way to `path`, 0700.
Status MakeFoldersBelow(const std::string& dir, const std::string& path);

// pread and pwrite to the end. kFailedPrecondition when the file ends before.
Status ReadAt(int fd, std::span<std::byte> buffer, uint64_t offset, const std::string& path);
Status WriteAt(int fd, std::span<const std::byte> bytes, uint64_t offset, const std::string& path);

}  // namespace holdfast::storage
