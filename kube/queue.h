// The work queue of a controller. A key waits in it once however often it is added, is never given to two workers at a time, and one that
// was added while it was worked on comes again afterwards. Higher priorities come first; keys of one priority come in the order in which
// they became ready. A key that is being worked on is passed over and keeps nobody waiting. Thread-safe.
//
// Adding a key that waits already keeps the higher priority (a raised key goes to the end of its new class) and the earlier time.
//
// Memory: one entry (about 120 bytes, and the key where it is longer than 15) for each key that is ready, delayed, being worked on, or has
// failed since Forget; nothing else grows. What a call costs does not depend on how many keys there are, but for delays (its logarithm).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"

namespace holdfast::kube {

class QueueMetrics;

// For what was there when a watch began, and for resyncs: news overtakes it.
inline constexpr int kLowPriority = -100;

struct BackoffOptions {
  Duration base = std::chrono::milliseconds(5);
  Duration max = std::chrono::seconds(60);
};

// base × 2^failures, at most max. Never overflows.
Duration Backoff(const BackoffOptions& options, int failures);

struct AddOptions {
  Duration after{0};          // not before; 0 or less: at once
  bool rate_limited = false;  // not before its Backoff, which each such call makes longer until Forget; the sooner of both counts
  int priority = 0;
};

class WorkQueue {
 public:
  struct Item {
    std::string key;
    int priority;
  };

  // `metrics` (may be null) outlives the queue and serves one queue at a time.
  explicit WorkQueue(Clock& clock = Clock::Real(), BackoffOptions backoff = {}, QueueMetrics* metrics = nullptr);
  ~WorkQueue();  // nobody may be in Get or ShutDownWithDrain

  void Add(const std::string& key, const AddOptions& options = {});
  void AddAfter(const std::string& key, Duration delay) { Add(key, {.after = delay}); }
  void AddRateLimited(const std::string& key) { Add(key, {.rate_limited = true}); }
  void Forget(const std::string& key);  // failures := 0; due after each success, or the count and its entry stay
  int failures(const std::string& key) const;

  // Waits for a key; nothing on stop, or after ShutDown when no key is left that could be had now. Every key got is given back by Done.
  std::optional<Item> Get(std::stop_token stop);
  void Done(const std::string& key);

  // Takes nothing more and forgets delayed keys; what is ready is still handed out. Also ends a ShutDownWithDrain.
  void ShutDown();
  // The same, and waits until everything that was ready or being worked on is done. False when stopped or shut down before that.
  bool ShutDownWithDrain(std::stop_token stop);

  size_t depth() const;  // keys ready to be worked on, also those that must wait until another worker gives them back
  size_t size() const;   // entries: see Memory above

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast::kube
