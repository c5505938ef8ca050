// Reading a folder into a session: each thread takes a batch of segments, reads and hashes them, asks which the store lacks, and sends
// those.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault_point.h"
#include "storage/batch.h"
#include "storage/codec.h"
#include "storage/file_tree.h"
#include "storage/hash.h"
#include "storage/object_index.h"

namespace holdfast::storage {
namespace {

class Reader {
 public:
  Reader(const std::string& dir, std::vector<FileEntry>& files, Session& session, Batches& batches, const IngestOptions& options,
         size_t batch_bytes)
      : dir_(dir), files_(files), session_(session), batches_(batches), options_(options), raw_(batch_bytes), packed_(batch_bytes) {}

  Status Run() {
    HF_ASSIGN_OR_RETURN(folder_, OpenFolder(dir_));
    for (std::vector<Piece> batch = batches_.Next(options_.stop); !batch.empty(); batch = batches_.Next(options_.stop)) {
      HF_RETURN_IF_ERROR(Send(batch));
    }
    return Status::Ok();
  }

 private:
  struct Hashed {
    SegmentId id;
    std::span<const std::byte> content;
  };

  Status Send(const std::vector<Piece>& batch) {
    std::vector<Hashed> hashed;
    uint64_t bytes = 0;
    HF_RETURN_IF_ERROR(Read(batch, hashed, bytes));
    uint64_t sent = 0;
    if (!hashed.empty()) {
      HF_ASSIGN_OR_RETURN(sent, Put(hashed));
    }
    batches_.Done(bytes, sent, options_);
    return Status::Ok();
  }

  // Fills in the pieces' segments; those that are not zero go to `hashed`, each content once.
  Status Read(const std::vector<Piece>& batch, std::vector<Hashed>& hashed, uint64_t& bytes) {
    SegmentSet seen;
    size_t used = 0;
    for (const Piece& piece : batch) {
      FileEntry& file = files_[piece.file];
      HF_RETURN_IF_ERROR(Open(piece.file));
      SegmentRef& segment = file.segments[piece.segment];
      bytes += piece.size;
      if (InHole(piece)) {
        segment.zero = true;
        continue;
      }
      std::span<std::byte> buffer(raw_.data() + used, piece.size);
      HF_RETURN_IF_ERROR(ReadAt(fd_.get(), buffer, piece.offset, dir_ + "/" + file.path));
      segment.zero = IsZero(buffer);
      if (segment.zero) continue;
      segment.id = HashSegment(session_.hash_key(), buffer);
      if (!seen.insert(segment.id).second) continue;
      hashed.push_back({segment.id, buffer});
      used += piece.size;
    }
    return Status::Ok();
  }

  Status Open(size_t file) {
    if (open_file_ == file && fd_.get() >= 0) return Status::Ok();
    HF_ASSIGN_OR_RETURN(fd_, OpenBelow(folder_, files_[file].path, O_RDONLY));
    open_file_ = file;
    data_at_ = 0;
    struct stat info;
    if (fstat(fd_.get(), &info) != 0 || !S_ISREG(info.st_mode) || static_cast<uint64_t>(info.st_size) != files_[file].size) {
      return Status(Code::kFailedPrecondition, dir_ + "/" + files_[file].path + " changed while it was read");
    }
    return Status::Ok();
  }

  bool InHole(const Piece& piece) {
    if (piece.offset < data_at_) return piece.offset + piece.size <= data_at_;
    off_t data = lseek(fd_.get(), static_cast<off_t>(piece.offset), SEEK_DATA);
    if (data < 0) {
      // ENXIO: only a hole is left. Anything else: this file system cannot tell.
      if (errno != ENXIO) return false;
      data_at_ = files_[piece.file].size;
    } else {
      data_at_ = static_cast<uint64_t>(data);
    }
    return piece.offset + piece.size <= data_at_;
  }

  // Returns how many bytes went over.
  Result<uint64_t> Put(const std::vector<Hashed>& hashed) {
    std::vector<SegmentId> ids;
    for (const Hashed& segment : hashed) ids.push_back(segment.id);
    HF_ASSIGN_OR_RETURN(std::vector<bool> missing, session_.Missing(ids));
    if (missing.size() != ids.size()) return Status(Code::kInternal, "the store answered for another number of segments");
    std::vector<PutItem> items;
    size_t used = 0;
    uint64_t sent = 0;
    for (size_t i = 0; i < hashed.size(); ++i) {
      if (!missing[i]) continue;
      PutItem item{
          .id = hashed[i].id, .codec = Codec::kRaw, .size = static_cast<uint32_t>(hashed[i].content.size()), .bytes = hashed[i].content};
      std::span<std::byte> room(packed_.data() + used, hashed[i].content.size());
      if (size_t n = TryCompress(hashed[i].content, room); n > 0) {
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
  std::vector<FileEntry>& files_;
  Session& session_;
  Batches& batches_;
  const IngestOptions& options_;
  std::vector<std::byte> raw_, packed_;
  Descriptor folder_, fd_;
  size_t open_file_ = 0;
  uint64_t data_at_ = 0;  // what lies between the last position asked for and here is a hole
};

}  // namespace

Result<std::vector<FileEntry>> Ingest(const std::string& dir, Session& session, const IngestOptions& options) {
  HF_ASSIGN_OR_RETURN(std::vector<TreeFile> tree, ListTree(dir));
  std::vector<FileEntry> files;
  uint64_t total = 0;
  size_t segments = 0;
  for (const TreeFile& entry : tree) {
    FileEntry file{.path = entry.path, .size = entry.size, .mode = entry.mode, .segments = {}};
    const uint64_t count = (entry.size + kMaxSegmentBytes - 1) / kMaxSegmentBytes;
    if (count > kMaxSegments - segments) return Status(Code::kInvalidArgument, dir + " is larger than a checkpoint may be (1 TiB)");
    segments += count;
    total += entry.size;
    for (uint64_t i = 0; i < count; ++i) {
      file.segments.push_back(
          {.id = {}, .size = static_cast<uint32_t>(std::min<uint64_t>(kMaxSegmentBytes, entry.size - i * kMaxSegmentBytes))});
    }
    files.push_back(std::move(file));
  }
  const int threads = ThreadsOf(options);
  const size_t batch_bytes = BatchBytes(options, threads, 2);
  Batches batches(files, batch_bytes);
  HF_RETURN_IF_ERROR(batches.Run(threads, options, total, [&] { return Reader(dir, files, session, batches, options, batch_bytes).Run(); })
                         .With("storing " + dir));
  return files;
}

}  // namespace holdfast::storage
