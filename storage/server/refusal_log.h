// Refused requests in the log: the first of a kind at once, then how many more there were, at most once a minute. So who asks a million
// times fills no disk. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "base/clock.h"
#include "base/status.h"

namespace holdfast::storage {

class RefusalLog {
 public:
  explicit RefusalLog(Clock& clock) : clock_(clock) {}
  // True when a line was logged.
  bool Refused(const std::string& operation, const std::string& id, const std::string& peer, const Status& why);

 private:
  using Kind = std::tuple<std::string, std::string, Code>;  // operation, peer
  struct Seen {
    MonoTime next;
    uint64_t untold = 0;
  };
  Clock& clock_;
  std::mutex mutex_;
  std::map<Kind, Seen> seen_;
};

}  // namespace holdfast::storage
