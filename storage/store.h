// The checkpoint store. A checkpoint is a Manifest: a list of files, each a list of segments, which are named by a keyed hash of their
// content and kept once. LocalStore (one writer process on a volume) and RemoteStore (the client of a holdfast-store server) implement the
// same interface. All methods are thread-safe unless said otherwise; ids from outside are checked before they touch a path.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace holdfast::storage {

inline constexpr size_t kSegmentBytes = 64 << 10;    // as Ingest cuts them
inline constexpr size_t kMaxSegmentBytes = 1 << 20;  // as every reader takes them

// BLAKE3 of the uncompressed bytes, keyed per namespace.
struct SegmentId {
  std::array<uint8_t, 32> bytes{};
  std::string Hex() const;
  static Result<SegmentId> FromHex(std::string_view hex);
  auto operator<=>(const SegmentId&) const = default;
};

enum class Codec : uint8_t { kRaw = 0, kLz4 = 1, kZstd = 2 };

struct SegmentRef {
  SegmentId id;
  uint32_t size = 0;  // uncompressed bytes
  bool zero = false;  // all zeros: nothing is stored, `id` is empty
};

// A part of a file whose list of segments is kept as a segment itself (storage/recipe.h): checkpoints in which that part is the same share
// it.
struct LeafRef {
  SegmentId id;
  uint32_t size = 0;   // of the list
  uint64_t bytes = 0;  // of the file
};

struct FileEntry {
  std::string path;  // relative, '/'-separated, every component a safe name
  uint64_t size = 0;
  uint32_t mode = 0600;
  // A short file has segments, a long one leaves; in order, and their sizes add up to `size`.
  std::vector<SegmentRef> segments;
  std::vector<LeafRef> leaves = {};
};

struct Manifest {
  std::string ns, checkpoint, checkpoint_uid;
  std::string created;  // RFC 3339
  Json info;            // the agent's: pod, owner, platform, what a lost Checkpoint object is rebuilt from
  std::vector<FileEntry> files;
  uint64_t TotalBytes() const;
  std::string Serialize() const;                         // canonical; its digest is over these bytes
  static Result<Manifest> Parse(std::string_view text);  // hostile input: paths, sizes and counts are checked
};

struct CommitResult {
  std::string id;          // of the manifest: the session's id
  std::string digest;      // "blake3:<hex>" of the manifest
  uint64_t new_bytes = 0;  // stored for this checkpoint alone
};

enum class SessionState { kUnknown, kOpen, kCommitted, kAborted };

struct PutItem {
  SegmentId id;
  Codec codec = Codec::kRaw;
  uint32_t size = 0;                 // uncompressed
  std::span<const std::byte> bytes;  // as `codec` has them
};

// One checkpoint being written. Segments may arrive in any order and more than once; nothing is visible to readers until Commit returns OK,
// and then all of it is. Destroying an uncommitted session leaves it open for its id to be opened again. Thread-safe. Every method fails
// with kFailedPrecondition after Abort, and with kUnavailable when the store is closing.
class Session {
 public:
  virtual ~Session() = default;
  // For each of `ids`: true when the store lacks it. What this call reports as present stays present until the session ends.
  virtual Result<std::vector<bool>> Missing(std::span<const SegmentId> ids) = 0;
  // What the checkpoint `manifest` of this namespace refers to stays present until the session ends, as if Missing had said so of all of
  // it. One at a time: another one lets the first go. kNotFound when it is not there; kFailedPrecondition when some of it may be damaged.
  virtual Status Hold(const std::string& manifest);
  // For each of `ids`: true when the store lacks it. The others are durable now, and stay until the session ends, whatever crashes: who
  // has them nowhere else may rely on that.
  virtual Result<std::vector<bool>> Secure(std::span<const SegmentId> ids);
  // Re-hashed by the store: kDataLoss when the content is not `id`'s.
  virtual Status Put(const SegmentId& id, Codec codec, uint32_t size, std::span<const std::byte> bytes) = 0;
  // Several in one round trip. On an error some of them may have been kept.
  virtual Status PutMany(std::span<const PutItem> items);
  // Durable when it returns; idempotent. `manifest` names the session's id as checkpoint_uid, and its ns. kInvalidArgument when a segment
  // that it or one of its leaves names is missing (Ingest again sends it), or a leaf is none. kFailedPrecondition after an Abort, also one
  // before a restart.
  virtual Result<CommitResult> Commit(const Manifest& manifest) = 0;
  // Durable: no later Commit of this id succeeds. kFailedPrecondition when it was committed already.
  virtual Status Abort() = 0;
  virtual const std::array<uint8_t, 32>& hash_key() const = 0;  // of the namespace
};

class Store {
 public:
  virtual ~Store() = default;
  // `id`: the checkpoint's uid. Opening an open session again resumes it. kResourceExhausted: full (says how full). kUnavailable: also when
  // too many are open.
  virtual Result<std::unique_ptr<Session>> OpenSession(const std::string& id, const std::string& ns) = 0;
  virtual Result<SessionState> StateOf(const std::string& id) = 0;
  virtual Result<Manifest> GetManifest(const std::string& id) = 0;
  // Uncompressed and verified against its id. `manifest` must refer to it.
  virtual Result<std::string> GetSegment(const std::string& manifest, const SegmentRef& segment) = 0;
  // Several, few round trips: calls `sink` once for each, in order, with its verified content. The sink's error ends the call.
  using SegmentSink = std::function<Status(size_t index, std::span<const std::byte> content)>;
  virtual Status GetSegments(const std::string& manifest, std::span<const SegmentRef> segments, const SegmentSink& sink);
  // The key of the manifest's namespace, to tell which bytes need not be fetched again. kUnsupported: this store does not give it.
  virtual Result<std::array<uint8_t, 32>> HashKeyOf(const std::string& manifest);
  // Makes sure that `id` never commits, open or not, also when the store is too full to open it. kFailedPrecondition: it was committed.
  virtual Status Abort(const std::string& id, const std::string& ns);
  virtual Status Delete(const std::string& manifest) = 0;  // OK when it is not there
};

struct Progress {
  uint64_t bytes = 0, total = 0, sent = 0;  // read, of, given to the store
};

struct IngestOptions {
  std::function<void(const Progress&)> progress;  // now and then
  std::stop_token stop;
  int threads = 2;
  size_t memory_bytes = 64 << 20;
  // Ingest: an earlier checkpoint in `store`, the session's, that has much in common with this one. The store is not asked for what is in
  // it.
  std::string parent;
  Store* store = nullptr;
  // Ingest: a file beside `dir`, not below it. Set: long files are punched behind the reader, as soon as the store has secured what was
  // read (storage/sent_log.h says there what is gone, and a later Ingest of the same folder into the same session goes on from it). Such a
  // folder is worth nothing without that file and the session. Empty: the files stay as they are.
  std::string sent_log;
  uint64_t punch_every_bytes = 256 << 20;
};
// Reads every regular file under `dir`, gives the store what it lacks, and returns the manifest's files. Does not commit. kDataLoss when
// the store has lost what `dir` does not have any more.
Result<std::vector<FileEntry>> Ingest(const std::string& dir, Session& session, const IngestOptions& options);
// Writes the manifest's files under `dir` (created, 0700), every byte verified. Resumes over files that are complete.
Status Fetch(Store& store, const std::string& manifest_id, const std::string& dir, const IngestOptions& options);

}  // namespace holdfast::storage
