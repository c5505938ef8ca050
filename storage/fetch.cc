// Writing a checkpoint's files below a folder. Files get their length first, so holes stay holes; then threads take batches of segments.
// What an earlier try left is hashed, and only what differs is fetched again.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "storage/batch.h"
#include "storage/file_tree.h"
#include "storage/hash.h"

namespace holdfast::storage {
namespace {

class Writer {
 public:
  Writer(Store& store, const std::string& id, const Manifest& manifest, const std::string& dir, const std::vector<bool>& found,
         Batches& batches, const IngestOptions& options)
      : store_(store), id_(id), manifest_(manifest), dir_(dir), found_(found), batches_(batches), options_(options) {}

  Status Run() {
    HF_ASSIGN_OR_RETURN(folder_, OpenFolder(dir_));
    Result<HashKey> key = store_.HashKeyOf(id_);
    if (!key.ok() && key.status().code() != Code::kUnsupported) return key.status();
    has_key_ = key.ok();
    if (has_key_) key_ = *key;
    for (std::vector<Piece> batch = batches_.Next(options_.stop); !batch.empty(); batch = batches_.Next(options_.stop)) {
      HF_RETURN_IF_ERROR(Write(batch));
    }
    return Status::Ok();
  }

 private:
  Status Write(const std::vector<Piece>& batch) {
    std::vector<SegmentRef> wanted;
    std::vector<Piece> pieces;
    uint64_t bytes = 0, fetched = 0;
    for (const Piece& piece : batch) {
      const SegmentRef& segment = manifest_.files[piece.file].segments[piece.segment];
      bytes += piece.size;
      HF_ASSIGN_OR_RETURN(bool there, IsThere(piece, segment));
      if (there) continue;
      if (segment.zero) {
        HF_RETURN_IF_ERROR(Zero(piece));
        continue;
      }
      wanted.push_back(segment);
      pieces.push_back(piece);
      fetched += piece.size;
    }
    if (!wanted.empty()) {
      HF_RETURN_IF_ERROR(store_.GetSegments(id_, wanted, [&](size_t i, std::span<const std::byte> content) -> Status {
        if (content.size() != pieces[i].size)
          return Status(Code::kDataLoss, "the store gave another number of bytes than the manifest says");
        HF_RETURN_IF_ERROR(Open(pieces[i].file));
        return WriteAt(fd_.get(), content, pieces[i].offset, Path(pieces[i].file));
      }));
    }
    batches_.Done(bytes, fetched, options_);
    return Status::Ok();
  }

  // A file made just now has only holes.
  Result<bool> IsThere(const Piece& piece, const SegmentRef& segment) {
    if (!found_[piece.file]) return segment.zero;
    if (!has_key_ && !segment.zero) return false;
    HF_RETURN_IF_ERROR(Open(piece.file));
    old_.resize(piece.size);
    HF_RETURN_IF_ERROR(ReadAt(fd_.get(), old_, piece.offset, Path(piece.file)));
    return segment.zero ? IsZero(old_) : HashSegment(key_, old_) == segment.id;
  }

  Status Zero(const Piece& piece) {
    HF_RETURN_IF_ERROR(Open(piece.file));
    if (fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(piece.offset), piece.size) == 0)
      return Status::Ok();
    return WriteAt(fd_.get(), std::vector<std::byte>(piece.size), piece.offset, Path(piece.file));
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
  Batches& batches_;
  const IngestOptions& options_;
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
  const int threads = ThreadsOf(options);
  Batches batches(manifest.files, BatchBytes(options, threads, 2));
  HF_RETURN_IF_ERROR(batches
                         .Run(threads, options, manifest.TotalBytes(),
                              [&] { return Writer(store, manifest_id, manifest, dir, found, batches, options).Run(); })
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
