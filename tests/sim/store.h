// The checkpoint store as agents and controller see it: sessions, segments, manifests; durable, and out of reach when it is told so. Its
// own crashes and disks are simulated elsewhere (tests/unit/storage).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/clock.h"
#include "reconcilers/checkpoint/contents.h"
#include "reconcilers/restorepolicy/retainer.h"
#include "storage/store.h"
#include "tests/sim/turns.h"

namespace holdfast::sim {

class Store final : public storage::Store, public reconcilers::checkpoint::Contents, public reconcilers::restorepolicy::VolumeMeter {
 public:
  bool reachable() const { return !away_since_; }
  void Away(MonoTime now) { away_since_ = now; }
  void Back() { away_since_.reset(); }
  // Bytes a second that it takes, of all who send together; 0: as fast as may be.
  int64_t pace = 0;
  // So many are on their way to it, on this fiber.
  Status Carry(Turns& turns, int64_t bytes, const storage::IngestOptions& options);
  // As its clients hold it to be (StoreClient).
  bool IsDown(MonoTime now) const { return away_since_ && now - *away_since_ >= std::chrono::seconds(30); }

  Result<std::unique_ptr<storage::Session>> OpenSession(const std::string& id, const std::string& ns) override;
  Result<storage::SessionState> StateOf(const std::string& id) override;
  Result<storage::Manifest> GetManifest(const std::string& id) override;
  Result<std::string> GetSegment(const std::string& manifest, const storage::SegmentRef& segment) override;
  Status Abort(const std::string& id, const std::string& ns) override;
  Status Delete(const std::string& manifest) override;

  Result<reconcilers::checkpoint::Content> Read(const std::string& manifest_id, std::stop_token stop) override;
  Status Delete(const std::string& store, const std::string& manifest_id, int64_t term, std::stop_token stop) override;
  std::map<std::string, Result<reconcilers::checkpoint::Damages>> Damaged(std::stop_token stop) override;
  std::map<std::string, Result<reconcilers::restorepolicy::VolumeUse>> Use(std::stop_token stop) override;

  // What a committed checkpoint has of a file; empty: nothing.
  std::string FileOf(const std::string& manifest, const std::string& path) const;
  size_t manifests() const { return manifests_.size(); }

 private:
  class Session;
  Status Reached() const;
  std::optional<MonoTime> away_since_;
  int senders_ = 0;
  std::map<std::string, storage::SessionState> sessions_;
  std::map<std::string, storage::Manifest> manifests_;
  std::map<storage::SegmentId, std::string> segments_;
};

// As storage::Ingest and Fetch, on this thread, a file a segment.
Result<std::vector<storage::FileEntry>> Ingest(const std::string& dir, storage::Session& session);
Status Fetch(storage::Store& store, const std::string& manifest_id, const std::string& dir);

}  // namespace holdfast::sim
