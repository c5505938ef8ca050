// What an Ingest reads, in order, a batch at a time, and the files that come of it. Thread-safe.
#pragma once

#include <mutex>

#include "storage/cutter.h"
#include "storage/limits.h"
#include "storage/recipe.h"

namespace holdfast::storage {

// Segments that follow each other in a file: those of a leaf, or of a whole short file.
struct Part {
  static constexpr size_t kNoLeaf = ~size_t{0};
  size_t file = 0;
  uint64_t offset = 0, bytes = 0;
  std::vector<uint32_t> sizes;
  size_t leaf = kNoLeaf;  // of the file's
};

class IngestPlan {
 public:
  // `folder` outlives it.
  IngestPlan(const Descriptor& folder, std::vector<TreeFile> tree);
  uint64_t total_bytes() const { return total_bytes_; }
  const FileEntry& file(size_t index) const { return files_[index]; }  // its path, size and mode

  // kUnsupported when there is something that no cut helps.
  Status Check() const { return pagemaps_.Check(folder_); }
  // One leaf, or several short files: at most kBatchBytes and, with the leaves themselves, kBatchSegments. Empty at the end.
  Result<std::vector<Part>> Next();
  void Set(const Part& part, std::vector<SegmentRef> segments);
  void Set(const Part& part, const LeafRef& leaf);
  std::vector<FileEntry> Take() { return std::move(files_); }

 private:
  Result<std::optional<Part>> NextPart();

  const Descriptor& folder_;
  const PagemapFinder pagemaps_;
  std::vector<FileEntry> files_;
  uint64_t total_bytes_ = 0;

  std::mutex mutex_;
  size_t at_ = 0;  // of files_
  std::optional<Cutter> cutter_;
  bool more_ = false;  // `ahead_` is a piece that nobody has yet
  Cutter::Piece ahead_;
  uint64_t offset_ = 0;
  size_t segments_ = 0, references_ = 0;
  std::optional<Part> waiting_;  // it did not fit
};

}  // namespace holdfast::storage
