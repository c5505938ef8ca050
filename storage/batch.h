// Work for several threads: the segments of a list of files, in order, cut into batches of bounded size; and the first error of any of
// them.
#pragma once

#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "storage/limits.h"

namespace holdfast::storage {

struct Piece {
  size_t file = 0, segment = 0;
  uint64_t offset = 0;
  uint32_t size = 0;
};

// Thread-safe.
class Batches {
 public:
  Batches(const std::vector<FileEntry>& files, size_t batch_bytes) : files_(files), batch_bytes_(batch_bytes) {}

  // Empty: nothing is left, or a thread failed, or the caller asked to stop.
  std::vector<Piece> Next(const std::stop_token& stop) {
    std::lock_guard lock(mutex_);
    std::vector<Piece> batch;
    if (stop.stop_requested() && error_.ok()) error_ = Status(Code::kCancelled, "stopped");
    if (!error_.ok()) return batch;
    for (size_t bytes = 0; file_ < files_.size() && batch.size() < kBatchSegments;) {
      if (segment_ == files_[file_].segments.size()) {
        ++file_;
        segment_ = 0;
        offset_ = 0;
        continue;
      }
      const uint32_t size = files_[file_].segments[segment_].size;
      if (bytes > 0 && bytes + size > batch_bytes_) break;
      batch.push_back({file_, segment_, offset_, size});
      bytes += size;
      offset_ += size;
      ++segment_;
    }
    return batch;
  }

  void Fail(Status error) {
    std::lock_guard lock(mutex_);
    if (error_.ok()) error_ = std::move(error);
  }

  // Adds to the progress and reports it. One report at a time.
  void Done(uint64_t bytes, uint64_t sent, const IngestOptions& options) {
    std::lock_guard lock(mutex_);
    progress_.bytes += bytes;
    progress_.sent += sent;
    if (options.progress) options.progress(progress_);
  }

  // Runs `work` until there is no batch left, on this thread and `threads` - 1 more.
  Status Run(int threads, const IngestOptions& options, uint64_t total, const std::function<Status()>& work) {
    progress_.total = total;
    auto body = [&] {
      Status status = work();
      if (!status.ok()) Fail(status);
    };
    {
      std::vector<std::jthread> others;
      for (int i = 1; i < threads; ++i) others.emplace_back(body);
      body();
    }
    if (options.progress && error_.ok()) options.progress(progress_);
    return error_;
  }

 private:
  const std::vector<FileEntry>& files_;
  const size_t batch_bytes_;
  std::mutex mutex_;
  size_t file_ = 0, segment_ = 0;
  uint64_t offset_ = 0;
  Progress progress_;
  Status error_;
};

// `parts`: how many buffers of a batch one thread needs.
inline size_t BatchBytes(const IngestOptions& options, int threads, size_t parts) {
  return std::clamp(options.memory_bytes / static_cast<size_t>(threads) / parts, kMaxSegmentBytes, kBatchBytes);
}
inline int ThreadsOf(const IngestOptions& options) { return std::clamp(options.threads, 1, 16); }

}  // namespace holdfast::storage
