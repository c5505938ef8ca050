// The store's folder on a volume, and nothing that is kept in memory:
//   FORMAT                     "holdfast-store 1"; another number is refused
//   TERM                       highest term of leadership that deleted anything (base/fence.h)
//   LOCK                       held (flock) by the one process that writes
//   keys/<ns>                  32 random bytes: the key of that namespace's segment ids
//   objects/<ns>/ab/<hex id>   a segment: header of 16 bytes (magic "HFS1", codec, 3 zero bytes, size, stored bytes; little endian), bytes
//   sessions/<id>              {"ns"} of a session that was opened and neither committed nor aborted
//   manifests/<id>             one JSON line {"digest","new_bytes"}, then the manifest: its rename is the commit
//   aborted/<id>               empty: this id never commits
//   tmp/                       being written; emptied at start
// An object is renamed into place without fsync: it counts only when a manifest refers to it (written after syncfs) or after a re-hash.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "storage/hash.h"

namespace holdfast::storage {

struct StoredSegment {
  Codec codec = Codec::kRaw;
  uint32_t size = 0;  // uncompressed
  std::string bytes;
};

struct StoredManifest {
  std::string text;  // Manifest::Serialize
  std::string digest;
  uint64_t new_bytes = 0;
};

struct Space {
  uint64_t total = 0, free = 0;  // for this process: without what is reserved for root
};

// Thread-safe: every call is one file operation or a few; two writers of one object write different temporary files.
class Volume {
 public:
  enum class Mode { kWrite, kInspect };  // kInspect: changes nothing, takes no lock
  static Result<std::unique_ptr<Volume>> Open(const std::string& dir, Mode mode);
  ~Volume();
  Volume(const Volume&) = delete;
  Volume& operator=(const Volume&) = delete;

  Result<HashKey> Key(const std::string& ns);  // kWrite: made, durably, when it is not there

  // Two steps, so that the caller holds its lock only for the second.
  Result<std::string> StageObject(Codec codec, uint32_t size, std::span<const std::byte> bytes);  // the temporary file's path
  Status PlaceObject(const std::string& staged, const std::string& ns, const SegmentId& id);
  void Unstage(const std::string& staged);
  Result<StoredSegment> ReadObject(const std::string& ns, const SegmentId& id) const;
  // kDataLoss when the bytes on disk are not `id`'s content.
  Result<std::string> ReadVerified(const std::string& ns, const SegmentId& id, const HashKey& key) const;
  Status RemoveObject(const std::string& ns, const SegmentId& id);
  using ObjectVisitor = std::function<void(const SegmentId& id, uint64_t stored_bytes)>;
  Status VisitObjects(const std::string& ns, const ObjectVisitor& visit) const;
  Result<std::vector<std::string>> Namespaces() const;

  Status Sync();  // syncfs: everything written so far is durable
  Status WriteManifest(const std::string& id, const StoredManifest& manifest);
  Result<StoredManifest> ReadManifest(const std::string& id) const;  // kDataLoss when it does not match its digest
  Status RemoveManifest(const std::string& id);

  // Marks are files in sessions/ and aborted/: durable when the call returns.
  Status WriteMark(const char* folder, const std::string& id, std::string_view text);
  Status RemoveMark(const char* folder, const std::string& id);
  Result<std::string> ReadMark(const char* folder, const std::string& id) const;
  Result<std::vector<std::string>> List(const char* folder) const;

  Result<Space> FreeSpace() const;
  const std::string& dir() const { return dir_; }

 private:
  Volume(std::string dir, Mode mode) : dir_(std::move(dir)), mode_(mode) {}
  Status Prepare();
  std::string ObjectPath(const std::string& ns, const SegmentId& id) const;

  const std::string dir_;
  const Mode mode_;
  int lock_fd_ = -1;
  std::atomic<uint64_t> next_temporary_{0};
};

}  // namespace holdfast::storage
