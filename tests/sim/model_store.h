// A store in a few words: sessions, segments, manifests; durable, and out of reach when it is told so.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "tests/sim/store.h"

namespace holdfast::sim {

class ModelStore final : public Store,
                         public storage::Store,
                         public reconcilers::checkpoint::Contents,
                         public reconcilers::restorepolicy::VolumeMeter {
 public:
  explicit ModelStore(const Clock& clock) : clock_(clock) {}
  std::unique_ptr<AgentsStore> ForAgent(const std::string& node) override;
  std::unique_ptr<ControllersStore> ForController() override;
  std::string FileOf(const std::string& manifest, const std::string& path) override;
  // As its clients hold it to be (StoreClient).
  bool IsDown() const { return away_since_ && clock_.Mono() - *away_since_ >= std::chrono::seconds(30); }

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

 private:
  class Session;
  Status Reached() const;
  const Clock& clock_;
  std::map<std::string, storage::SessionState> sessions_;
  std::map<std::string, storage::Manifest> manifests_;
  std::map<storage::SegmentId, std::string> segments_;
};

}  // namespace holdfast::sim
