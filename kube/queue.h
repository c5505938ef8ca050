// The work queue of a controller: a key waits in it once however often it is added, is never given to two workers at a time, and a key
// added while it is being worked on comes again afterwards. Thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"

namespace holdfast::kube {

struct BackoffOptions {
  Duration base = std::chrono::milliseconds(5);
  Duration max = std::chrono::seconds(60);
};

class WorkQueue {
 public:
  explicit WorkQueue(Clock& clock = Clock::Real(), BackoffOptions backoff = {});
  ~WorkQueue();
  void Add(const std::string& key);
  void AddAfter(const std::string& key, Duration delay);  // the earliest of several delays wins
  void AddRateLimited(const std::string& key);            // after base × 2^failures
  void Forget(const std::string& key);                    // failures := 0
  int failures(const std::string& key) const;
  // Waits for a key; nothing after ShutDown once the queue is drained, or on stop. Every key got must be given back by Done.
  std::optional<std::string> Get(std::stop_token stop);
  void Done(const std::string& key);
  void ShutDown();
  size_t depth() const;  // keys ready to be worked on

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast::kube
