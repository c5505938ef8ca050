// The store on a volume of this machine: segments in packs (storage/volume.h, FORMAT.md), one process that writes. After a crash at any
// point what was committed is whole, and nothing else is visible. A segment is dead as soon as no manifest refers to it and no open session
// was told that it is here; its pack goes when all in it is dead, or is written anew by Collect when much of it is. Sessions that were open
// before a restart keep all of their namespace until they end.
#pragma once

#include <deque>
#include <list>
#include <set>

#include "base/clock.h"
#include "storage/fsck.h"
#include "storage/object_index.h"
#include "storage/pack_writer.h"
#include "storage/volume.h"

namespace holdfast::storage {

struct LocalStoreOptions {
  std::string dir;
  uint64_t max_bytes = 0;                              // of packs; 0: what the volume has
  uint64_t reserve_bytes = 256 << 20;                  // kept free on the volume, and below max_bytes: a session begins only above it
  Duration session_idle = std::chrono::hours(24);      // an open session that nobody used for so long is aborted by ExpireSessions
  Duration session_abandoned = std::chrono::hours(2);  // and one unused for so long gives way: deadlines are an hour at most
  std::vector<Kek> keks;                               // see VolumeOptions
  PackLimits packs;
  FileSystem* fs = nullptr;  // null: the real one
};

struct ScrubStatus {
  uint64_t passes = 0;                   // that came to their end, in the volume's life
  uint64_t read_bytes = 0;               // since the store was opened
  uint64_t mended_files = 0;             // since the store was opened: indexes, keys, FORMAT
  std::optional<WallTime> begun, ended;  // of the last pass that did
  double done = 1;                       // of the pass under way, 0 to 1
  size_t damaged_segments = 0;           // that checkpoints need, found by the scrub or a reader; 10 000 are counted
  size_t hurt_checkpoints = 0;
};

struct StoreUsage {
  uint64_t object_bytes = 0, objects = 0;  // live
  uint64_t pack_bytes = 0, packs = 0;      // with what is dead in them
  uint64_t index_memory_bytes = 0, max_bytes = 0, volume_total = 0, volume_free = 0;
  uint64_t room_bytes = 0;  // what may still be written before sessions are refused
  size_t manifests = 0, open_sessions = 0, damaged_manifests = 0;
  ScrubStatus scrub;
};

// As encoded in its record.
struct StoredSegment {
  Codec codec = Codec::kRaw;
  uint32_t size = 0;  // uncompressed
  std::string bytes;
};

struct CollectOptions {
  uint64_t bytes_per_second = 0;  // copied at most; 0: as fast as it goes
  // What was sealed, or found by this process's start, so long ago is compressed once more, with zstd: it has outlived what comes and goes,
  // and nobody waits for it. max: never.
  Duration tighten_after = Duration::max();
  std::stop_token stop;
};
struct CollectReport {
  size_t removed = 0, repacked = 0;  // packs
  size_t tightened = 0;              // of those
  uint64_t freed_bytes = 0, copied_bytes = 0;
};

struct ScrubOptions {
  uint64_t bytes_per_second = 16 << 20;         // read at most, unless a pass would take longer than `every` so; 0: as fast as it goes
  Duration every = std::chrono::hours(24 * 7);  // from the begin of a pass to the begin of the next one
  std::stop_token stop;
};

class Pace;

class LocalStore final : public Store {
 public:
  static Result<std::unique_ptr<LocalStore>> Open(const LocalStoreOptions& options, Clock& clock = Clock::Real());
  // Sessions must be gone. Closes; what open sessions were given is kept for the next start.
  ~LocalStore() override;

  Result<std::unique_ptr<Session>> OpenSession(const std::string& id, const std::string& ns) override;
  // For a node, which has a bound of its own; empty: for nobody's. Where one of the bounds is reached, a session that nobody has used for
  // longer than any drain may last gives way: it can be opened anew, and sent again. kUnavailable: none does, for now.
  Result<std::unique_ptr<Session>> OpenSession(const std::string& id, const std::string& ns, const std::string& node);
  Result<SessionState> StateOf(const std::string& id) override;
  Result<Manifest> GetManifest(const std::string& id) override;
  Result<std::string> GetSegment(const std::string& manifest, const SegmentRef& segment) override;
  Status GetSegments(const std::string& manifest, std::span<const SegmentRef> segments, const SegmentSink& sink) override;
  Result<std::array<uint8_t, 32>> HashKeyOf(const std::string& manifest) override;
  Status Abort(const std::string& id, const std::string& ns) override;
  Status Delete(const std::string& manifest) override;

  // Of a session that is open or committed; kNotFound for others.
  Result<std::string> NamespaceOf(const std::string& id);
  // Ids of what is committed in `ns`.
  std::vector<std::string> CommittedIn(const std::string& ns);
  // For a server: a handle on a session that is open or committed; kNotFound for others, kFailedPrecondition after an Abort.
  Result<std::unique_ptr<Session>> FindSession(const std::string& id);
  // What the session was given outlives this process from here on (a server answers only then); after a power cut it is asked for again.
  Status Flush(const std::string& session);
  Result<StoredManifest> GetManifestText(const std::string& id);
  // Authentic, but not hashed: the reader that has the key does that. kInvalidArgument when the manifest does not refer to it.
  Result<StoredSegment> GetStored(const std::string& manifest, const SegmentId& id);

  // Removes packs without live data for good, and writes those anew of which much is dead. Beside everything else; one at a time.
  Result<CollectReport> Collect(const CollectOptions& options);
  // Reads and hashes all that checkpoints need, and says which of them are hurt: goes on with the pass that was begun, also by an earlier
  // process, or begins one when it is due; else returns at once. Beside everything else; one at a time.
  Status Scrub(const ScrubOptions& options);
  // Checkpoints of which it is known that they cannot be read whole, by id. One that was mended is not among them for longer than it takes
  // Scrub to be called again.
  std::vector<HurtCheckpoint> Hurt();
  Result<size_t> Rewrap() { return volume_->Rewrap(); }
  Result<StoreUsage> Usage();
  Status CheckRoom();  // kResourceExhausted with figures when a new session would be refused
  void ExpireSessions();
  void Close();  // later calls fail with kUnavailable

 private:
  friend class LocalSession;
  struct Pack {
    Pack(PackId pack_id, std::string name, const PackKeys& pack_keys) : id(pack_id), ns(std::move(name)), keys(pack_keys) {}
    const PackId id;
    const std::string ns;
    const PackKeys keys;
    std::unique_ptr<PackWriter> writer;  // null: it was sealed in an earlier life
    // Under the store's lock.
    uint32_t number = kNoPack;
    uint64_t live_bytes = 0, record_bytes = 0, file_bytes = 0;  // of needed records, of all, with padding and footer
    bool sealed = false;                                        // durable, and never written again
    bool dropped = false;                                       // not in the table any more
    bool held = false;                                          // being filled by a collection
    bool hurt = false;                                          // some of it could not be read: not to be written anew
    bool tight = false;                                         // see PackIndex
    MonoTime sealed_at;                                         // or found by a start
    bool undurable = false;                                     // found by a start that could not sync it
    bool footer_lost = false;                                   // it does not read, which was told; the index file is enough
    // Under its own.
    std::mutex seal_mutex;
    bool finished = false;
    Status outcome;
    std::mutex file_mutex;
    std::shared_ptr<const File> file;
  };
  using PackPointer = std::shared_ptr<Pack>;
  struct ById {
    bool operator()(const PackPointer& a, const PackPointer& b) const { return a->id < b->id; }
  };
  using PackSet = std::set<PackPointer, ById>;  // the same order in every process
  // The pack that a session (or a collection) fills. Its mutex is taken before the store's.
  struct Filling {
    std::mutex mutex;
    bool ended = false;
    bool held = false;
    bool tight = false;
    PackPointer pack;
  };
  // What a manifest refers to, each once.
  struct HeldLeaf {
    LeafRef ref;
    std::vector<IdKey> segments;  // where they are known without reading the leaf again
  };
  struct Holding {
    std::vector<IdKey> segments;
    std::vector<HeldLeaf> leaves;
    uint64_t new_bytes = 0;  // that nobody referred to before
    PackSet unsealed;        // packs with some of it that are not durable yet
  };
  struct OpenState {
    std::string ns;
    std::string node;              // for which it was opened
    bool busy = false;             // a Commit or Abort is on its way
    bool maybe_committed = false;  // the manifest was renamed but the folder could not be synced
    bool inherited = false;        // open since before the last start
    MonoTime last_used;
    IdSet pins;
    Holding parent;  // see Session::Hold
    Holding maybe;   // of a commit of which it is not known whether it is on the disk
    std::shared_ptr<Filling> filling = std::make_shared<Filling>();
  };
  struct Committed {
    std::string ns, digest;
    uint64_t new_bytes = 0;
  };
  // Sorted ids of a manifest and of its leaves: what GetSegment may give. A few are kept, the last used first.
  struct Members {
    std::string id, ns;
    std::vector<IdKey> ids;
  };
  struct Placed {
    PackPointer pack;
    PackRecord record;
  };
  // Where a segment lies that could not be read whole.
  struct SuspectPlace {
    PackId pack;
    uint32_t offset = 0;
  };
  struct ScrubState {
    uint64_t passes = 0, read_bytes = 0, mended_files = 0;
    std::optional<WallTime> begun, ended;
    bool under_way = false;
    std::string after;  // of the pass under way: the last pack that was looked at; they come by their ids
    double done = 0;
  };
  struct Move {
    Placed to;
    PackPointer from;
    uint32_t from_offset = 0;
  };
  using Lock = std::unique_lock<std::mutex>;

  LocalStore(LocalStoreOptions options, Clock& clock) : options_(std::move(options)), clock_(clock) {}
  // local_open.cc: at start
  Status Load();
  Status LoadManifests();
  Status LoadSessions();
  Status LoadPacks();
  Status LoadPack(const std::string& ns, const PackId& id, const NamespaceKeys& keys);
  Result<PackIndex> Rebuild(Pack& pack, File& file);
  Status LoadLeaves();
  void DropUndurable();
  // local_store.cc
  Result<OpenState*> FindOpen(const std::string& id);  // locked; touches it
  Result<std::shared_ptr<const Members>> MembersOf(const std::string& manifest);
  Status RoomFor(uint64_t bytes, uint64_t reserve);  // locked
  Status PlaceFor(const std::string& node, Lock& lock);
  Status ReadMember(const Members& members, const SegmentId& id, StoredSegment* segment);
  // local_packs.cc
  Result<PackPointer> NewPack(const std::string& ns, bool held, bool tight);
  uint32_t Number(const PackPointer& pack);  // locked
  Result<Placed> Append(Filling& filling, const std::string& ns, const PutItem& item);
  Status SealPack(const PackPointer& pack);
  void FailPack(const PackPointer& pack);  // locked
  void DropPack(const PackPointer& pack);  // locked
  Result<std::shared_ptr<const File>> FileOf(const PackPointer& pack);
  Status ReadStored(const std::string& ns, const SegmentId& id, StoredSegment* segment);
  void Place(ObjectInfo& object, const PackPointer& pack, const PackRecord& record);  // locked, as those below
  void Unplace(ObjectInfo& object);
  bool KeepsAll(const std::string& ns) const { return !damaged_.empty() || !unknown_.empty() || inherited_.contains(ns); }
  void EraseUnneeded(const std::string& ns, const IdKey& key);
  void EraseAllUnneeded(const std::string& ns);
  // Packs without live data go to the trash. Lets go of the lock.
  void SweepDead(Lock& lock);
  void EndFilling(Filling& filling);  // not locked
  // local_collect.cc
  size_t EmptyTrash();
  struct Chosen {
    PackPointer pack;
    bool tight = false;  // as what it becomes
  };
  std::vector<Chosen> ChoosePacks(const CollectOptions& options);
  Status Repack(const std::vector<PackPointer>& group, bool tight, const CollectOptions& options, CollectReport& report);
  Status Copy(const PackPointer& pack, Filling& filling, const CollectOptions& options, std::vector<Move>& moves);
  bool IsAt(const Pack& pack, const SegmentId& id, uint32_t offset);  // locked
  void KeepReserve();
  // local_scrub.cc
  void LoadScrub();
  Status SaveScrub();
  bool BeginPass(const ScrubOptions& options);
  std::vector<PackPointer> SealedAfter(const std::string& after);
  uint64_t ScrubRate(const std::vector<PackPointer>& packs, const ScrubOptions& options);
  void ScrubManifests(const std::stop_token& stop);
  bool ScrubPack(const PackPointer& pack, Pace& pace, const std::stop_token& stop);  // false: stopped before its end
  Result<std::vector<PackRecord>> RecordsOf(const PackPointer& pack, const File& file);
  Status Verify(const File& file, const Pack& pack, const HashKey& key, const PackRecord& record);
  bool Suspect(const PackPointer& pack, const IdKey& key, uint32_t offset);  // locked; true when that is news
  void FindHurt();
  HurtCheckpoint Examine(const std::string& id, const std::string& ns);  // not locked
  // local_session.cc
  Result<std::vector<bool>> Missing(const std::string& session, std::span<const SegmentId> ids);
  Result<std::vector<bool>> Secure(const std::string& session, std::span<const SegmentId> ids);
  Status Put(const std::string& session, const PutItem& item);
  Status HoldParent(const std::string& session, const std::string& manifest);
  Result<CommitResult> Commit(const std::string& session, const Manifest& manifest);
  Result<CommitResult> CommitLocked(const std::string& id, const std::string& ns, const Manifest& manifest, Lock& lock);
  Status AbortOpen(const std::string& id);
  void EndSession(const std::string& id, Lock& lock);
  void Pin(OpenState& session, ObjectInfo& object);
  bool AwaitIdle(const std::string& id, Lock& lock);
  // local_leaves.cc: locked, those with a Lock let go of it for a while
  Status Hold(const std::string& session, const Manifest& manifest, Holding& holding, Lock& lock);  // `holding`: also on an error
  Status HoldLeaf(const std::string& session, const std::string& ns, const LeafRef& leaf, const std::string& path, Holding& holding,
                  Lock& lock);
  Result<ObjectInfo*> PinNamed(OpenState& session, const SegmentId& id, uint32_t size, const std::string& path, Holding& holding);
  void Settle(const std::string& ns, const Holding& holding);
  void Release(const std::string& ns, const Holding& holding, Lock& lock);
  void ReleaseLeaf(const std::string& ns, const HeldLeaf& leaf, Lock& lock);
  static void Count(ObjectInfo& object, Holding& holding);
  void Discount(const std::string& ns, const IdKey& key);
  static Holding HoldingOf(const Manifest& manifest);
  Result<std::vector<SegmentRef>> ReadLeaf(const std::string& ns, const LeafRef& leaf);  // not locked
  size_t CountLeaves(const std::string& ns, const std::vector<LeafRef>& leaves);         // not locked; how many cannot be read

  const LocalStoreOptions options_;
  Clock& clock_;
  std::unique_ptr<Volume> volume_;
  BufferCount buffers_;

  std::mutex collect_mutex_;  // one collection at a time; taken before mutex_
  std::mutex scrub_mutex_;    // one scrub at a time; taken before mutex_
  std::mutex mutex_;
  std::condition_variable_any idle_;
  bool closing_ = false;
  ObjectIndex index_;
  std::vector<PackPointer> packs_;  // by number
  std::vector<uint32_t> free_numbers_;
  std::vector<uint32_t> dead_;  // numbers of packs whose last live segment went
  uint64_t live_bytes_ = 0, pack_bytes_ = 0, reserve_held_ = 0;
  std::map<std::string, OpenState> open_;
  std::map<std::string, Committed> committed_;
  std::map<std::string, Manifest> deleting_;  // removed, but the folder could not be synced: whoever deletes again goes on
  std::set<std::string> aborted_;
  std::map<std::string, size_t> inherited_;  // open sessions from before the last start, by namespace
  std::set<std::string> damaged_;            // manifests that cannot be read: what they refer to is unknown, so nothing is dropped
  std::set<std::string> unknown_;            // manifests with a leaf that cannot be read: the same
  std::map<std::string, LeafTable> leaves_;  // that anybody holds, by namespace
  std::set<std::string> hurt_;               // namespaces with a segment that is lost or cannot be read: leaves are not believed unread
  std::list<std::shared_ptr<const Members>> members_;
  std::map<std::string, std::vector<LeafRef>> loading_;             // at a start: leaves that manifests name
  std::map<std::pair<std::string, IdKey>, SuspectPlace> suspects_;  // by namespace
  std::set<std::string> unreadable_;                                // manifests that were whole at the start
  std::map<std::string, HurtCheckpoint> hurt_checkpoints_;
  uint64_t damage_changes_ = 0, damage_examined_ = 0;  // what is known to be damaged has changed; … when hurt_checkpoints_ was made
  ScrubState scrub_;
  std::set<std::string> pack_folders_;  // namespaces whose folder is durable

  std::mutex files_mutex_;
  std::deque<std::weak_ptr<Pack>> with_file_;  // packs that are open for reading, the oldest first
};

}  // namespace holdfast::storage
