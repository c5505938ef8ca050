// The client of a holdfast-store server. Every call is safe to repeat (ids of sessions and segments), so a server that is killed and comes
// back within the caller's time is not noticed but for the delay. Content is hashed here too: a server cannot pass off damaged bytes.
#pragma once

#include "storage/http_caller.h"
#include "storage/store.h"

namespace holdfast::storage {

struct RemoteStoreOptions {
  HttpCallerOptions http;
  Duration patience = std::chrono::seconds(60);  // of one call with its repetitions
};

struct StoreSpace {
  uint64_t live_bytes = 0;  // what checkpoints need
  uint64_t pack_bytes = 0;  // with what is dead and not collected yet
  uint64_t room_bytes = 0;  // what may still be written before sessions are refused
};

// A manifest without its files.
struct ManifestInfo {
  std::string ns, checkpoint, created, digest;
  uint64_t new_bytes = 0;  // stored for it alone
  Json info;
};

struct DamagedCheckpoint {
  std::string id, why;  // of its manifest
};

class RemoteStore final : public Store {
 public:
  explicit RemoteStore(RemoteStoreOptions options, Clock& clock = Clock::Real());
  // The same server and connections under tighter limits: no call goes on after `deadline` or a stop request. Sessions keep the limits of
  // the store that opened them.
  std::unique_ptr<RemoteStore> Within(MonoTime deadline, std::stop_token stop) const;

  Result<std::unique_ptr<Session>> OpenSession(const std::string& id, const std::string& ns) override;
  Result<SessionState> StateOf(const std::string& id) override;
  Result<Manifest> GetManifest(const std::string& id) override;
  Result<std::string> GetSegment(const std::string& manifest, const SegmentRef& segment) override;
  Status GetSegments(const std::string& manifest, std::span<const SegmentRef> segments, const SegmentSink& sink) override;
  Result<std::array<uint8_t, 32>> HashKeyOf(const std::string& manifest) override;
  Status Abort(const std::string& id, const std::string& ns) override;
  Status Delete(const std::string& manifest) override;
  // In a term of leadership: kFailedPrecondition when the store has heard of a later one. 0: there is no election.
  Status Delete(const std::string& manifest, int64_t term);
  Result<ManifestInfo> InfoOf(const std::string& manifest);
  Result<StoreSpace> Space();
  // Those that the store knows of: read in vain, or found by its scrub. At most 10 000.
  Result<std::vector<DamagedCheckpoint>> Damaged();
  // Does a server answer at all? OK whatever it says; kUnavailable when it does not until the deadline.
  Status Ping();

 private:
  struct Shared;  // the connections, and the keys of manifests that were read; sessions and Within's stores share it
  RemoteStore(std::shared_ptr<Shared> shared, MonoTime deadline, std::stop_token stop);
  Result<HttpAnswer> Call(const HttpCall& call) const;
  friend class RemoteSession;

  std::shared_ptr<Shared> shared_;
  MonoTime deadline_ = MonoTime::max();
  std::stop_token stop_;
};

}  // namespace holdfast::storage
