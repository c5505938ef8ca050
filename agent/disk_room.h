// The node's disk, on which dumps and fetched checkpoints land: looked at before a pod is frozen and before anything is fetched, so that
// neither ends in the middle, nor takes the disk from everything else on the node. What has been let in and is not written yet counts as
// used. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "base/status.h"

namespace holdfast::agent {

struct DiskSpace {
  uint64_t size_bytes = 0, free_bytes = 0;
};

// Of the file system that holds `path`.
Result<DiskSpace> LookAtDisk(const std::string& path);

class DiskRoom {
 public:
  using Look = std::function<Result<DiskSpace>(const std::string& path)>;
  // What dumps have landed and will land in the folders of `folder`, stored or not, is never more than `bytes` in all; 0: than three
  // quarters of the file system. What is fetched for a restore is not bounded by it: a pod would wait for it for ever.
  struct Landing {
    std::string folder{};  // empty: nothing is bounded
    uint64_t bytes = 0;
  };
  explicit DiskRoom(Look look = LookAtDisk) : DiskRoom(std::move(look), Landing()) {}
  DiskRoom(Look look, Landing landing) : look_(std::move(look)), landing_(std::move(landing)) {}

  // Looks at what holds the folder, which need not exist. OK: a folder that will take `bytes` in all may be written, and the bytes are set
  // aside until Release of it. kUnavailable: not now, but when what else is under way is over. kResourceExhausted: not. Both say what there
  // is. A disk that cannot be looked at is no reason.
  Status Reserve(const std::string& folder, uint64_t bytes);
  void Hold(const std::string& folder, uint64_t bytes);  // again, by a new process
  void Release(const std::string& folder);               // it is written, or given up; idempotent

 private:
  Status WithinLanding(const std::string& folder, uint64_t needed, const DiskSpace& disk) const;  // locked

  const Look look_;
  const Landing landing_;
  mutable std::mutex mutex_;
  std::map<std::string, uint64_t> reserved_;  // by folder
};

}  // namespace holdfast::agent
