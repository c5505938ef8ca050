// A pack that is being filled. Several threads append: each encrypts into its place in a buffer, and whoever completes a full buffer writes
// it, while the others fill the next.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "storage/fs.h"
#include "storage/pack_format.h"

namespace holdfast::storage {

struct PackLimits {
  uint64_t pack_bytes = kMaxPackBytes;  // of records: the footer comes after them
  size_t buffer_bytes = 4 << 20;        // of a write; a record that is longer gets its own
};

// The buffers of all packs together. When many lie partly filled, each is written as soon as it has something.
class BufferCount {
 public:
  bool Many() const { return count_.load() > 24; }
  void Add(int by) { count_ += by; }
  uint64_t bytes() const { return static_cast<uint64_t>(bytes_.load()); }  // that are to be written yet
  void AddBytes(int64_t by) { bytes_ += by; }

 private:
  std::atomic<int> count_{0};
  std::atomic<int64_t> bytes_{0};
};

class PackWriter {
 public:
  // `tight`: see PackIndex.
  PackWriter(std::unique_ptr<File> file, PackId id, std::string ns, const PackKeys& keys, PackLimits limits, BufferCount& buffers,
             bool tight = false);
  ~PackWriter();

  // Nothing when the pack is full or finished: use another. An error stays: nothing of the pack that was not synced can be relied on.
  Result<std::optional<PackRecord>> Append(const SegmentId& id, Codec codec, uint32_t size, std::span<const std::byte> bytes);
  Status Flush();  // what was appended is with the file system: it outlives this process, not a power cut
  // Writes the rest and the footer, and syncs the file. Once.
  Status Finish();

  std::vector<PackRecord> Records();
  uint64_t file_bytes() const { return file_bytes_; }  // after Finish
  std::string IndexFile() const;                       // after Finish
  void Forget();                                       // after Finish: lets go of file and records

 private:
  struct Buffer;
  Status CloseBuffer(std::unique_lock<std::mutex>& lock);
  Status Write(std::shared_ptr<Buffer> buffer, std::unique_lock<std::mutex>& lock);

  std::unique_ptr<File> file_;
  const PackId id_;
  const std::string ns_;
  const PackKeys keys_;
  const PackLimits limits_;
  BufferCount& buffers_;
  const bool tight_;

  std::mutex mutex_;
  std::condition_variable written_;
  Status status_;
  bool full_ = false;
  uint64_t next_ = 0;  // where the next buffer begins
  std::shared_ptr<Buffer> filling_;
  int unwritten_ = 0;  // closed buffers
  std::vector<PackRecord> records_;
  uint64_t file_bytes_ = 0;
  std::string footer_;
};

}  // namespace holdfast::storage
