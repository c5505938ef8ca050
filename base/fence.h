// Fencing: who acts for a leader says in which term, and whoever was reached by a newer leader refuses an older one, which has lost its
// lease and does not know it yet. The highest term seen is kept in a file, so that a restart forgets nothing. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"

namespace holdfast {

class Fence {
 public:
  // kDataLoss when the file is there and holds no number.
  static Result<std::unique_ptr<Fence>> Open(std::string path);
  // kFailedPrecondition: a leader of a later term has been here. The term is durable before this returns OK. Term 0 is nobody's (there is
  // no election) and always passes.
  Status Admit(int64_t term);

 private:
  Fence(std::string path, int64_t highest) : path_(std::move(path)), highest_(highest) {}
  const std::string path_;
  std::mutex mutex_;
  int64_t highest_;
};

}  // namespace holdfast
