// The store on a volume of this machine: one file per segment (storage/volume.h), one process that writes. After a crash at any point what
// was committed is whole, and nothing else is visible. Objects are dropped as soon as no manifest refers to them and no open session was
// told that they are here; sessions that were open before a restart keep all of their namespace until they end.
#pragma once

#include <list>

#include "base/clock.h"
#include "storage/object_index.h"
#include "storage/volume.h"

namespace holdfast::storage {

struct LocalStoreOptions {
  std::string dir;
  uint64_t max_bytes = 0;                          // of segments; 0: what the volume has
  uint64_t reserve_bytes = 256 << 20;              // kept free on the volume, and below max_bytes: a session begins only above it
  Duration session_idle = std::chrono::hours(24);  // an open session that nobody used for so long is aborted by ExpireSessions
};

struct StoreUsage {
  uint64_t object_bytes = 0, objects = 0, max_bytes = 0, volume_total = 0, volume_free = 0;
  size_t manifests = 0, open_sessions = 0, damaged_manifests = 0;
};

class LocalStore final : public Store {
 public:
  static Result<std::unique_ptr<LocalStore>> Open(const LocalStoreOptions& options, Clock& clock = Clock::Real());
  // Sessions must be gone. Closes.
  ~LocalStore() override;

  Result<std::unique_ptr<Session>> OpenSession(const std::string& id, const std::string& ns) override;
  Result<SessionState> StateOf(const std::string& id) override;
  Result<Manifest> GetManifest(const std::string& id) override;
  Result<std::string> GetSegment(const std::string& manifest, const SegmentRef& segment) override;
  Result<std::array<uint8_t, 32>> HashKeyOf(const std::string& manifest) override;
  Status Abort(const std::string& id, const std::string& ns) override;
  Status Delete(const std::string& manifest) override;

  // For a server: a handle on a session that is open or committed; kNotFound for others, kFailedPrecondition after an Abort.
  Result<std::unique_ptr<Session>> FindSession(const std::string& id);
  Result<StoredManifest> GetManifestText(const std::string& id);
  // As stored, not verified: the reader that has the key does that. kInvalidArgument when the manifest does not refer to it.
  Result<StoredSegment> GetStored(const std::string& manifest, const SegmentId& id);

  Result<StoreUsage> Usage();
  Status CheckRoom();  // kResourceExhausted with figures when a new session would be refused
  void ExpireSessions();
  void Close();  // later calls fail with kUnavailable

 private:
  friend class LocalSession;
  struct OpenState {
    std::string ns;
    bool busy = false;             // a Commit or Abort is on its way
    bool maybe_committed = false;  // the manifest was renamed but the folder could not be synced
    bool inherited = false;        // open since before the last start
    MonoTime last_used;
    SegmentSet pins;
  };
  struct Committed {
    std::string ns, digest;
    uint64_t new_bytes = 0;
  };
  // Sorted ids of a manifest: what GetSegment may give. A few are kept, the last used first.
  struct Members {
    std::string id, ns;
    std::vector<SegmentId> ids;
  };

  LocalStore(LocalStoreOptions options, Clock& clock) : options_(std::move(options)), clock_(clock) {}
  // local_open.cc: at start
  Status Load();
  Status LoadManifests();
  Status LoadSessions();
  Status LoadObjects();
  // local_store.cc
  Result<OpenState*> FindOpen(const std::string& id);  // locked; touches it
  Result<HashKey> KeyOf(const std::string& ns);
  Result<std::shared_ptr<const Members>> MembersOf(const std::string& manifest);
  // Those of `candidates` that nothing needs. Lets go of the lock now and then.
  void Drop(const std::string& ns, const std::vector<SegmentId>& candidates, std::unique_lock<std::mutex>& lock);
  void EndSession(const std::string& id, std::unique_lock<std::mutex>& lock);
  Status RoomFor(uint64_t bytes, uint64_t reserve);  // locked
  // local_session.cc
  Result<std::vector<bool>> Missing(const std::string& session, std::span<const SegmentId> ids);
  Status Put(const std::string& session, const SegmentId& id, Codec codec, uint32_t size, std::span<const std::byte> bytes);
  Result<CommitResult> Commit(const std::string& session, const Manifest& manifest);
  Result<CommitResult> CommitLocked(const std::string& id, const std::string& ns, const Manifest& manifest,
                                    std::unique_lock<std::mutex>& lock);
  Status PinAll(const std::string& id, const std::string& ns, const Manifest& manifest, std::unique_lock<std::mutex>& lock);
  Status AbortOpen(const std::string& id);
  Status Verify(const std::string& ns, const HashKey& key, const SegmentId& id);
  void Pin(OpenState& session, const SegmentId& id, ObjectInfo& object);
  bool AwaitIdle(const std::string& id, std::unique_lock<std::mutex>& lock);

  const LocalStoreOptions options_;
  Clock& clock_;
  std::unique_ptr<Volume> volume_;

  std::mutex verify_mutex_;  // taken before mutex_: one unverified object is looked at at a time
  std::mutex mutex_;
  std::condition_variable_any idle_;
  bool closing_ = false;
  ObjectIndex index_;
  std::map<std::string, OpenState> open_;
  std::map<std::string, Committed> committed_;
  std::set<std::string> aborted_;
  std::map<std::string, size_t> inherited_;  // open sessions from before the last start, by namespace
  std::map<std::string, HashKey> keys_;
  std::list<std::shared_ptr<const Members>> members_;
  size_t damaged_ = 0;  // manifests that cannot be read: what they refer to is unknown, so nothing unreferenced is dropped
};

}  // namespace holdfast::storage
