// What the threads of one Ingest or Fetch share: the first error of any of them, and how far they are together. Thread-safe.
#pragma once

#include <algorithm>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "storage/limits.h"

namespace holdfast::storage {

class Work {
 public:
  Work(const IngestOptions& options, uint64_t total) : options_(options) { progress_.total = total; }

  // True when nothing more is to be begun: a thread failed, or the caller asked to stop.
  bool Over() {
    std::lock_guard lock(mutex_);
    if (options_.stop.stop_requested() && error_.ok()) error_ = Status(Code::kCancelled, "stopped");
    return !error_.ok();
  }

  // Adds to the progress and reports it. One report at a time.
  void Done(uint64_t bytes, uint64_t sent) {
    std::lock_guard lock(mutex_);
    progress_.bytes += bytes;
    progress_.sent += sent;
    if (options_.progress) options_.progress(progress_);
  }

  // Runs `body` on this thread and as many more as the options allow and have memory for: each needs two buffers of a batch.
  Status Run(const std::function<Status()>& body) {
    auto run = [&] {
      Status status = body();
      std::lock_guard lock(mutex_);
      if (error_.ok()) error_ = status;
    };
    {
      const size_t affordable = std::max<size_t>(options_.memory_bytes / (2 * kBatchBytes), 1);
      const size_t threads = std::min<size_t>(affordable, static_cast<size_t>(std::clamp(options_.threads, 1, 16)));
      std::vector<std::jthread> others;
      for (size_t i = 1; i < threads; ++i) others.emplace_back(run);
      run();
    }
    if (options_.progress && error_.ok()) options_.progress(progress_);
    return error_;
  }

 private:
  const IngestOptions& options_;
  std::mutex mutex_;
  Progress progress_;
  Status error_;
};

}  // namespace holdfast::storage
