// Reading a folder into a session: each thread takes a batch of segments, reads and hashes them, asks which the store lacks, and sends
// those.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault_point.h"
#include "base/log.h"
#include "storage/codec.h"
#include "storage/hash.h"
#include "storage/ingest_plan.h"
#include "storage/object_index.h"
#include "storage/sent_log.h"
#include "storage/work.h"

namespace holdfast::storage {
namespace {

constexpr size_t kMostKnown = 1 << 20;  // segments of a parent, 64 GiB of it: 24 MiB of memory
constexpr uint64_t kReadAheadBytes = 2 * uint64_t{kBatchBytes};

// What the parent refers to, which the session then holds. What cannot be had of it is asked for as anything else.
Status LearnParent(Session& session, const IngestOptions& options, IdSet& known) {
  HF_RETURN_IF_ERROR(session.Hold(options.parent));
  HF_ASSIGN_OR_RETURN(Manifest parent, options.store->GetManifest(options.parent));
  auto learn = [&](const std::vector<SegmentRef>& segments) {
    for (const SegmentRef& segment : segments) {
      if (!segment.zero && known.size() < kMostKnown) known.Insert(IdKey(segment.id));
    }
    return Status::Ok();
  };
  for (const FileEntry& file : parent.files) {
    HF_RETURN_IF_ERROR(learn(file.segments));
    for (size_t at = 0; at < file.leaves.size() && known.size() < kMostKnown; at += kBatchSegments) {
      const auto some = std::span(file.leaves).subspan(at, std::min(kBatchSegments, file.leaves.size() - at));
      HF_RETURN_IF_ERROR(ReadLeaves(*options.store, options.parent, some,
                                    [&](size_t, const std::vector<SegmentRef>& segments) { return learn(segments); }));
      for (const LeafRef& leaf : some) known.Insert(IdKey(leaf.id));
    }
  }
  return Status::Ok();
}

class Reader {
 public:
  // `known`: ids that the session holds. `sent_log`: null when nothing is to be punched.
  Reader(const std::string& dir, const Descriptor& folder, IngestPlan& plan, IdSet& known, SentLog* sent_log, Session& session, Work& work)
      : dir_(dir),
        folder_(folder),
        plan_(plan),
        known_(known),
        sent_log_(sent_log),
        session_(session),
        work_(work),
        raw_(new std::byte[kBatchBytes]),
        packed_(new std::byte[kBatchBytes + kMaxLeafBytes]) {}

  Status Run() {
    while (!work_.Over()) {
      HF_ASSIGN_OR_RETURN(std::vector<Part> batch, plan_.Next());
      if (batch.empty()) break;
      HF_RETURN_IF_ERROR(Send(batch));
    }
    return Status::Ok();
  }

 private:
  struct Hashed {
    SegmentId id;
    std::span<const std::byte> content;
  };

  Status Send(const std::vector<Part>& batch) {
    hashed_.clear();
    seen_.clear();
    used_ = 0;
    uint64_t bytes = 0;
    std::function<void()> told;  // what the log of a leaf that came is told; a batch has one leaf at most
    for (const Part& part : batch) {
      bytes += part.bytes;
      HF_ASSIGN_OR_RETURN(const bool gone, IsGone(part));
      if (gone) continue;
      HF_ASSIGN_OR_RETURN(std::vector<SegmentRef> segments, Read(part));
      if (part.leaf == Part::kNoLeaf) {
        plan_.Set(part, std::move(segments));
        continue;
      }
      leaf_ = EncodeLeaf(segments);
      const LeafRef leaf{
          .id = HashSegment(session_.hash_key(), AsBytes(leaf_)), .size = static_cast<uint32_t>(leaf_.size()), .bytes = part.bytes};
      if (!Known(leaf.id)) hashed_.push_back({leaf.id, AsBytes(leaf_)});
      plan_.Set(part, leaf);
      if (MayBePunched(part)) {
        told = [this, &part, leaf, ids = IdsOf(segments)] { sent_log_->Sent(plan_.file(part.file).path, part.offset, leaf, ids); };
      }
    }
    uint64_t sent = 0;
    if (!hashed_.empty()) {
      HF_ASSIGN_OR_RETURN(sent, Put());
    }
    if (told) told();
    work_.Done(bytes, sent);
    return Status::Ok();
  }

  // Punched by an earlier try: its leaf is known.
  Result<bool> IsGone(const Part& part) {
    if (sent_log_ == nullptr || part.leaf == Part::kNoLeaf) return false;
    const std::optional<LeafRef> leaf = sent_log_->Find(plan_.file(part.file).path, part.offset);
    if (!leaf) return false;
    if (leaf->bytes != part.bytes) {
      return Status(Code::kDataLoss, PathOf(part.file) + " was cut otherwise when a part of it was sent, and that part is gone here");
    }
    plan_.Set(part, *leaf);
    return true;
  }

  // Not the pagemaps: a later try cuts the pages by them.
  bool MayBePunched(const Part& part) const {
    const std::string& path = plan_.file(part.file).path;
    return sent_log_ != nullptr && !std::string_view(path).substr(path.rfind('/') + 1).starts_with("pagemap-");
  }

  static std::vector<SegmentId> IdsOf(const std::vector<SegmentRef>& segments) {
    std::vector<SegmentId> ids;
    for (const SegmentRef& segment : segments) {
      if (!segment.zero) ids.push_back(segment.id);
    }
    return ids;
  }

  // The part's segments; those that are not zeros go to `hashed_`, each content once.
  Result<std::vector<SegmentRef>> Read(const Part& part) {
    HF_RETURN_IF_ERROR(Open(part.file));
    std::vector<SegmentRef> segments;
    segments.reserve(part.sizes.size());
    uint64_t offset = part.offset;
    // The disk reads on while we compute.
    posix_fadvise(fd_.get(), static_cast<off_t>(offset + part.bytes), kReadAheadBytes, POSIX_FADV_WILLNEED);
    for (const uint32_t size : part.sizes) {
      SegmentRef& segment = segments.emplace_back(SegmentRef{.id = {}, .size = size, .zero = InHole(part.file, offset, size)});
      const std::span<std::byte> buffer(raw_.get() + used_, size);
      if (!segment.zero) {
        HF_RETURN_IF_ERROR(ReadAt(fd_.get(), buffer, offset, PathOf(part.file)));
        segment.zero = IsZero(buffer);
      }
      offset += size;
      if (segment.zero) continue;
      segment.id = HashSegment(session_.hash_key(), buffer);
      if (Known(segment.id) || !seen_.insert(segment.id).second) continue;
      hashed_.push_back({segment.id, buffer});
      used_ += size;
    }
    return segments;
  }

  bool Known(const SegmentId& id) { return known_.Find(IdKey(id)) != nullptr; }
  std::string PathOf(size_t file) const { return dir_ + "/" + plan_.file(file).path; }

  Status Open(size_t file) {
    if (open_file_ == file && fd_.get() >= 0) return Status::Ok();
    HF_ASSIGN_OR_RETURN(fd_, OpenBelow(folder_, plan_.file(file).path, O_RDONLY));
    open_file_ = file;
    data_at_ = 0;
    struct stat info;
    if (fstat(fd_.get(), &info) != 0 || !S_ISREG(info.st_mode) || static_cast<uint64_t>(info.st_size) != plan_.file(file).size)
      return Status(Code::kFailedPrecondition, PathOf(file) + " changed while it was read");
    return Status::Ok();
  }

  bool InHole(size_t file, uint64_t offset, uint32_t size) {
    if (offset < data_at_) return offset + size <= data_at_;
    off_t data = lseek(fd_.get(), static_cast<off_t>(offset), SEEK_DATA);
    if (data < 0) {
      // ENXIO: only a hole is left. Anything else: this file system cannot tell.
      if (errno != ENXIO) return false;
      data_at_ = plan_.file(file).size;
    } else {
      data_at_ = static_cast<uint64_t>(data);
    }
    return offset + size <= data_at_;
  }

  // Returns how many bytes went over.
  Result<uint64_t> Put() {
    std::vector<SegmentId> ids;
    for (const Hashed& segment : hashed_) ids.push_back(segment.id);
    HF_ASSIGN_OR_RETURN(std::vector<bool> missing, session_.Missing(ids));
    if (missing.size() != ids.size()) return Status(Code::kInternal, "the store answered for another number of segments");
    std::vector<PutItem> items;
    size_t used = 0;
    uint64_t sent = 0;
    for (size_t i = 0; i < hashed_.size(); ++i) {
      if (!missing[i]) continue;
      const auto& [id, content] = hashed_[i];
      PutItem item{.id = id, .codec = Codec::kRaw, .size = static_cast<uint32_t>(content.size()), .bytes = content};
      const std::span<std::byte> room(packed_.get() + used, content.size());
      if (size_t n = TryCompress(content, room); n > 0) {
        item.codec = Codec::kLz4;
        item.bytes = room.first(n);
        used += n;
      }
      sent += item.bytes.size();
      items.push_back(item);
    }
    if (items.empty()) return sent;
    HF_RETURN_IF_ERROR(session_.PutMany(items));
    HF_FAULT_POINT("ingest.segment_sent");
    return sent;
  }

  const std::string& dir_;
  const Descriptor& folder_;
  IngestPlan& plan_;
  IdSet& known_;  // not changed
  SentLog* const sent_log_;
  Session& session_;
  Work& work_;
  const std::unique_ptr<std::byte[]> raw_, packed_;
  size_t used_ = 0;  // of raw_
  std::vector<Hashed> hashed_;
  SegmentSet seen_;
  std::string leaf_;
  Descriptor fd_;
  size_t open_file_ = 0;
  uint64_t data_at_ = 0;  // what lies between the last position asked for and here is a hole
};

}  // namespace

Result<std::vector<FileEntry>> Ingest(const std::string& dir, Session& session, const IngestOptions& options) {
  HF_ASSIGN_OR_RETURN(std::vector<TreeFile> tree, ListTree(dir));
  HF_ASSIGN_OR_RETURN(Descriptor folder, OpenFolder(dir));
  IngestPlan plan(folder, std::move(tree));
  HF_RETURN_IF_ERROR(plan.Check().With("storing " + dir));
  IdSet known;
  if (options.store != nullptr && !options.parent.empty()) {
    Status learned = LearnParent(session, options, known);
    if (!learned.ok())
      LogInfo("a checkpoint is stored without its parent's help", {{"parent", options.parent}, {"why", learned.ToString()}});
  }
  std::unique_ptr<SentLog> sent_log;
  if (!options.sent_log.empty()) {
    HF_ASSIGN_OR_RETURN(sent_log, SentLog::Open(options.sent_log, folder, session, options.punch_every_bytes));
  }
  Work work(options, plan.total_bytes());
  HF_RETURN_IF_ERROR(
      work.Run([&] { return Reader(dir, folder, plan, known, sent_log.get(), session, work).Run(); }).With("storing " + dir));
  if (sent_log != nullptr) sent_log->Flush();
  return plan.Take();
}

}  // namespace holdfast::storage
