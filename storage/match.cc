#include "storage/match.h"

#include <algorithm>

namespace holdfast::storage {
namespace {

// Has everything already, whatever it is.
class Having final : public Session {
 public:
  explicit Having(const HashKey& key) : key_(key) {}
  Result<std::vector<bool>> Missing(std::span<const SegmentId> ids) override { return std::vector<bool>(ids.size(), false); }
  Status Put(const SegmentId&, Codec, uint32_t, std::span<const std::byte>) override { return Nothing(); }
  Result<CommitResult> Commit(const Manifest&) override { return Nothing(); }
  Status Abort() override { return Nothing(); }
  const HashKey& hash_key() const override { return key_; }

 private:
  static Status Nothing() { return {Code::kUnsupported, "nothing is stored here"}; }
  const HashKey key_;
};

bool SameSegment(const SegmentRef& a, const SegmentRef& b) { return a.size == b.size && a.zero == b.zero && a.id == b.id; }
bool SameLeaf(const LeafRef& a, const LeafRef& b) { return a.size == b.size && a.bytes == b.bytes && a.id == b.id; }

bool Same(const FileEntry& a, const FileEntry& b) {
  return a.path == b.path && a.size == b.size && a.mode == b.mode &&
         std::equal(a.segments.begin(), a.segments.end(), b.segments.begin(), b.segments.end(), SameSegment) &&
         std::equal(a.leaves.begin(), a.leaves.end(), b.leaves.begin(), b.leaves.end(), SameLeaf);
}

}  // namespace

Status Matches(const std::string& dir, const Manifest& manifest, const HashKey& key, const IngestOptions& options) {
  Having session(key);
  IngestOptions reading;
  reading.progress = options.progress;
  reading.stop = options.stop;
  reading.threads = options.threads;
  reading.memory_bytes = options.memory_bytes;
  HF_ASSIGN_OR_RETURN(std::vector<FileEntry> files, Ingest(dir, session, reading));
  if (files.size() != manifest.files.size())
    return Status(Code::kDataLoss,
                  dir + " has " + std::to_string(files.size()) + " files, the checkpoint " + std::to_string(manifest.files.size()));
  for (size_t i = 0; i < files.size(); ++i) {
    if (!Same(files[i], manifest.files[i])) return Status(Code::kDataLoss, dir + "/" + files[i].path + " is not what was stored");
  }
  return Status::Ok();
}

}  // namespace holdfast::storage
