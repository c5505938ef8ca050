// The seam to files: what the store needs of a file system, and what it may rely on after a power cut. A file's content is durable after
// Sync, a name (made, renamed, removed) after SyncDir of its folder; until then either may be there, not be there, or be there in part.
// The real one is here; tests have one that loses what was not synced. Thread-safe, but for one File written by two threads at one place.
// Errors: kNotFound, kResourceExhausted (no space), kInternal (anything else the kernel said).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace holdfast::storage {

struct Space {
  uint64_t total = 0, free = 0;  // for this process: without what is reserved for root
};

class File {  // closed by its end
 public:
  virtual ~File() = default;
  virtual Status WriteAt(uint64_t offset, std::span<const std::byte> bytes) = 0;  // all of them
  virtual Status ReadAt(uint64_t offset, std::span<std::byte> bytes) const = 0;   // kDataLoss when the file ends before
  virtual Status Truncate(uint64_t bytes) = 0;
  virtual Status Allocate(uint64_t bytes) = 0;  // takes the space now
  virtual Status Sync() = 0;                    // fdatasync
  virtual void Forget() {}                      // what memory has of it: the next reads are the disk's
  virtual Result<uint64_t> Size() const = 0;
};

class FileLock {  // let go by its end
 public:
  virtual ~FileLock() = default;
};

class FileSystem {
 public:
  enum class For { kReading, kWriting };
  virtual ~FileSystem() = default;
  virtual Result<std::unique_ptr<File>> Create(const std::string& path) = 0;  // empty, also when it was there; for reading and writing
  virtual Result<std::unique_ptr<File>> Open(const std::string& path, For use) = 0;
  virtual Status Rename(const std::string& from, const std::string& to) = 0;  // over what was there
  virtual Status Remove(const std::string& path) = 0;                         // a file; OK when it is not there
  virtual Status MakeDir(const std::string& path) = 0;                        // and its parents; OK when it is there
  virtual Status SyncDir(const std::string& path) = 0;
  virtual Result<std::vector<std::string>> List(const std::string& path) = 0;   // names, sorted
  virtual Result<Space> FreeSpace(const std::string& path) = 0;                 // of the volume that `path` lies on
  virtual Result<std::unique_ptr<FileLock>> Lock(const std::string& path) = 0;  // kFailedPrecondition: another process has it
  static FileSystem& Real();
};

// `path`.tmp written, synced, renamed, its folder synced: whole and durable, or not there.
Status WriteDurably(FileSystem& fs, const std::string& path, std::string_view bytes);
// kResourceExhausted when longer than `max_bytes`.
Result<std::string> ReadWhole(FileSystem& fs, const std::string& path, size_t max_bytes);

}  // namespace holdfast::storage
