// Writing a checkpoint's files below a folder. Files get their length first, so holes stay holes; then threads take batches of segments.
// What an earlier try left is hashed, and only what differs is fetched again.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <deque>

#include "base/file.h"
#include "storage/file_tree.h"
#include "storage/hash.h"
#include "storage/recipe.h"
#include "storage/work.h"

namespace holdfast::storage {
namespace {

constexpr size_t kLeavesAtOnce = 32;  // in one question: a quarter of a GiB of a file

struct Piece {
  size_t file = 0;
  uint64_t offset = 0;
  SegmentRef segment;
};

// The manifest's segments in order, a batch at a time. Thread-safe: whoever comes while another reads leaves waits for them too.
class Source {
 public:
  Source(Store& store, const std::string& id, const Manifest& manifest) : store_(store), id_(id), manifest_(manifest) {}

  // Empty at the end.
  Result<std::vector<Piece>> Next() {
    std::lock_guard lock(mutex_);
    std::vector<Piece> batch;
    size_t bytes = 0;
    while (ready_.empty() && file_ < manifest_.files.size()) {
      const FileEntry& file = manifest_.files[file_];
      if (!file.leaves.empty()) {
        if (!batch.empty()) return batch;
        HF_RETURN_IF_ERROR(ReadSome(file));
        continue;
      }
      while (segment_ < file.segments.size()) {
        const SegmentRef& segment = file.segments[segment_];
        if (batch.size() == kBatchSegments || (bytes > 0 && bytes + segment.size > kBatchBytes)) return batch;
        batch.push_back({.file = file_, .offset = offset_, .segment = segment});
        bytes += segment.size;
        offset_ += segment.size;
        ++segment_;
      }
      NextFile();
    }
    if (ready_.empty() || !batch.empty()) return batch;
    batch = std::move(ready_.front());
    ready_.pop_front();
    return batch;
  }

 private:
  Status ReadSome(const FileEntry& file) {
    const std::span<const LeafRef> some = std::span(file.leaves).subspan(leaf_, std::min(kLeavesAtOnce, file.leaves.size() - leaf_));
    HF_RETURN_IF_ERROR(ReadLeaves(store_, id_, some, [&](size_t, const std::vector<SegmentRef>& segments) {
      std::vector<Piece>& batch = ready_.emplace_back();
      for (const SegmentRef& segment : segments) {
        batch.push_back({.file = file_, .offset = offset_, .segment = segment});
        offset_ += segment.size;
      }
      return Status::Ok();
    }));
    leaf_ += some.size();
    if (leaf_ == file.leaves.size()) NextFile();
    return Status::Ok();
  }

  void NextFile() {
    ++file_;
    segment_ = leaf_ = 0;
    offset_ = 0;
  }

  Store& store_;
  const std::string& id_;
  const Manifest& manifest_;
  std::mutex mutex_;
  size_t file_ = 0, segment_ = 0, leaf_ = 0;
  uint64_t offset_ = 0;
  std::deque<std::vector<Piece>> ready_;
};

class Writer {
 public:
  Writer(Store& store, const std::string& id, const Manifest& manifest, const std::string& dir, const std::vector<bool>& found,
         Source& source, Work& work)
      : store_(store), id_(id), manifest_(manifest), dir_(dir), found_(found), source_(source), work_(work) {}

  Status Run() {
    HF_ASSIGN_OR_RETURN(folder_, OpenFolder(dir_));
    Result<HashKey> key = store_.HashKeyOf(id_);
    if (!key.ok() && key.status().code() != Code::kUnsupported) return key.status();
    has_key_ = key.ok();
    if (has_key_) key_ = *key;
    while (!work_.Over()) {
      HF_ASSIGN_OR_RETURN(std::vector<Piece> batch, source_.Next());
      if (batch.empty()) break;
      HF_RETURN_IF_ERROR(Write(batch));
    }
    return Status::Ok();
  }

 private:
  Status Write(const std::vector<Piece>& batch) {
    std::vector<SegmentRef> wanted;
    std::vector<const Piece*> pieces;
    uint64_t bytes = 0, fetched = 0;
    for (const Piece& piece : batch) {
      bytes += piece.segment.size;
      HF_ASSIGN_OR_RETURN(bool there, IsThere(piece));
      if (there) continue;
      if (piece.segment.zero) {
        HF_RETURN_IF_ERROR(Zero(piece));
        continue;
      }
      wanted.push_back(piece.segment);
      pieces.push_back(&piece);
      fetched += piece.segment.size;
    }
    if (!wanted.empty()) {
      HF_RETURN_IF_ERROR(store_.GetSegments(id_, wanted, [&](size_t i, std::span<const std::byte> content) -> Status {
        if (content.size() != pieces[i]->segment.size)
          return Status(Code::kDataLoss, "the store gave another number of bytes than the manifest says");
        HF_RETURN_IF_ERROR(Open(pieces[i]->file));
        return WriteAt(fd_.get(), content, pieces[i]->offset, Path(pieces[i]->file));
      }));
    }
    work_.Done(bytes, fetched);
    return Status::Ok();
  }

  // A file made just now has only holes.
  Result<bool> IsThere(const Piece& piece) {
    const SegmentRef& segment = piece.segment;
    if (!found_[piece.file]) return segment.zero;
    if (!has_key_ && !segment.zero) return false;
    HF_RETURN_IF_ERROR(Open(piece.file));
    old_.resize(segment.size);
    HF_RETURN_IF_ERROR(ReadAt(fd_.get(), old_, piece.offset, Path(piece.file)));
    return segment.zero ? IsZero(old_) : HashSegment(key_, old_) == segment.id;
  }

  Status Zero(const Piece& piece) {
    HF_RETURN_IF_ERROR(Open(piece.file));
    if (fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(piece.offset), piece.segment.size) == 0)
      return Status::Ok();
    return WriteAt(fd_.get(), std::vector<std::byte>(piece.segment.size), piece.offset, Path(piece.file));
  }

  Status Open(size_t file) {
    if (fd_.get() >= 0 && open_file_ == file) return Status::Ok();
    HF_ASSIGN_OR_RETURN(fd_, OpenBelow(folder_, manifest_.files[file].path, O_RDWR));
    open_file_ = file;
    return Status::Ok();
  }

  std::string Path(size_t file) const { return dir_ + "/" + manifest_.files[file].path; }

  Store& store_;
  const std::string& id_;
  const Manifest& manifest_;
  const std::string& dir_;
  const std::vector<bool>& found_;
  Source& source_;
  Work& work_;
  Descriptor folder_, fd_;
  size_t open_file_ = 0;
  HashKey key_{};
  bool has_key_ = false;
  std::vector<std::byte> old_;
};

// Makes every file with its length and the owner's right to write; true for those that were there with that length.
Result<std::vector<bool>> Prepare(const Manifest& manifest, const std::string& dir) {
  HF_RETURN_IF_ERROR(MakeDirs(dir, 0700));
  HF_ASSIGN_OR_RETURN(Descriptor folder, OpenFolder(dir));
  if (fchmod(folder.get(), 0700) != 0) return Status(Code::kInternal, "cannot make " + dir + " private");
  std::vector<bool> found;
  for (const FileEntry& file : manifest.files) {
    HF_RETURN_IF_ERROR(MakeFoldersBelow(dir, file.path));
    HF_ASSIGN_OR_RETURN(Descriptor fd, OpenBelow(folder, file.path, O_RDWR | O_CREAT | O_NONBLOCK, 0600));
    struct stat info;
    if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode))
      return Status(Code::kFailedPrecondition, dir + "/" + file.path + " is in the way: not a regular file");
    found.push_back(file.size > 0 && static_cast<uint64_t>(info.st_size) == file.size);
    // A file of another length starts again from holes.
    if (!found.back() && (ftruncate(fd.get(), 0) != 0 || ftruncate(fd.get(), static_cast<off_t>(file.size)) != 0)) {
      return Status(errno == ENOSPC || errno == EFBIG ? Code::kResourceExhausted : Code::kInternal,
                    "cannot give " + dir + "/" + file.path + " its length of " + std::to_string(file.size));
    }
    if (fchmod(fd.get(), 0600) != 0) return Status(Code::kInternal, "cannot set the mode of " + dir + "/" + file.path);
  }
  return found;
}

}  // namespace

Status Fetch(Store& store, const std::string& manifest_id, const std::string& dir, const IngestOptions& options) {
  HF_ASSIGN_OR_RETURN(Manifest manifest, store.GetManifest(manifest_id));
  HF_RETURN_IF_ERROR(CheckManifest(manifest));  // whatever kind of store this came from
  HF_ASSIGN_OR_RETURN(std::vector<bool> found, Prepare(manifest, dir));
  Work work(options, manifest.TotalBytes());
  Source source(store, manifest_id, manifest);
  HF_RETURN_IF_ERROR(work.Run([&] { return Writer(store, manifest_id, manifest, dir, found, source, work).Run(); })
                         .With("fetching the checkpoint " + manifest_id));
  HF_ASSIGN_OR_RETURN(Descriptor folder, OpenFolder(dir));
  for (const FileEntry& file : manifest.files) {
    if (file.mode == 0600) continue;
    HF_ASSIGN_OR_RETURN(Descriptor fd, OpenBelow(folder, file.path, O_RDWR));
    if (fchmod(fd.get(), file.mode) != 0) return Status(Code::kInternal, "cannot set the mode of " + dir + "/" + file.path);
  }
  return Status::Ok();
}

}  // namespace holdfast::storage
