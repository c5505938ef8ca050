#include "storage/ingest_plan.h"

namespace holdfast::storage {
namespace {

constexpr size_t kShortFile = 4;                               // segments that a manifest names itself
constexpr size_t kLeastLeaf = 16;                              // segments, where a leaf ends before it is full
constexpr uint64_t kLeafSpan = kLeafSegments * kSegmentBytes;  // of addresses
static_assert(kLeafSpan <= kBatchBytes && kLeafSegments < kBatchSegments);

// Where addresses pass a multiple: so that what is inserted before does not shift the leaves behind it either.
bool EndsLeaf(size_t segments, uint64_t last_address, uint64_t next_address) {
  return segments == kLeafSegments || (segments >= kLeastLeaf && last_address / kLeafSpan != next_address / kLeafSpan);
}

Status TooLarge(size_t most, const char* what) {
  return Status(Code::kInvalidArgument, "a checkpoint has at most " + std::to_string(most) + " " + what);
}

}  // namespace

IngestPlan::IngestPlan(const Descriptor& folder, std::vector<TreeFile> tree) : folder_(folder), pagemaps_(folder, tree) {
  files_.reserve(tree.size());
  for (TreeFile& file : tree) {
    total_bytes_ += file.size;
    files_.push_back({.path = std::move(file.path), .size = file.size, .mode = file.mode, .segments = {}, .leaves = {}});
  }
}

Result<std::optional<Part>> IngestPlan::NextPart() {
  while (at_ < files_.size()) {
    FileEntry& file = files_[at_];
    if (!cutter_) {
      HF_ASSIGN_OR_RETURN(cutter_, pagemaps_.CutterOf(folder_, file.path, file.size));
      more_ = cutter_->Next(&ahead_);
      offset_ = 0;
    }
    if (!more_) {
      cutter_.reset();
      ++at_;
      continue;
    }
    Part part{.file = at_, .offset = offset_, .bytes = 0, .sizes = {}};
    for (uint64_t last = ahead_.address; more_ && !EndsLeaf(part.sizes.size(), last, ahead_.address); more_ = cutter_->Next(&ahead_)) {
      part.sizes.push_back(ahead_.size);
      part.bytes += ahead_.size;
      last = ahead_.address;
      if (++segments_ > kMaxSegments) return TooLarge(kMaxSegments, "segments");
    }
    offset_ += part.bytes;
    const bool is_short = part.offset == 0 && !more_ && part.sizes.size() <= kShortFile;
    if (!is_short) {
      part.leaf = file.leaves.size();
      file.leaves.emplace_back();
    }
    references_ += is_short ? part.sizes.size() : 1;
    if (references_ > kMaxReferences) return TooLarge(kMaxReferences, "leaves and segments of short files");
    return std::optional<Part>(std::move(part));
  }
  return std::optional<Part>();
}

Result<std::vector<Part>> IngestPlan::Next() {
  std::lock_guard lock(mutex_);
  std::vector<Part> batch;
  uint64_t bytes = 0;
  size_t segments = 0;
  while (true) {
    if (!waiting_) {
      HF_ASSIGN_OR_RETURN(waiting_, NextPart());
    }
    if (!waiting_) return batch;
    const bool is_leaf = waiting_->leaf != Part::kNoLeaf;
    const bool fits = bytes + waiting_->bytes <= kBatchBytes && segments + waiting_->sizes.size() <= kBatchSegments;
    if (!batch.empty() && (is_leaf || !fits)) return batch;
    bytes += waiting_->bytes;
    segments += waiting_->sizes.size();
    batch.push_back(std::move(*waiting_));
    waiting_.reset();
    if (is_leaf) return batch;
  }
}

void IngestPlan::Set(const Part& part, std::vector<SegmentRef> segments) {
  std::lock_guard lock(mutex_);
  files_[part.file].segments = std::move(segments);
}

void IngestPlan::Set(const Part& part, const LeafRef& leaf) {
  std::lock_guard lock(mutex_);
  files_[part.file].leaves[part.leaf] = leaf;
}

}  // namespace holdfast::storage
