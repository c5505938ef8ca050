// What the controller asks of one checkpoint store (of all of them: stores.h): what a manifest says, to forget it, what is damaged, how
// full it is, and whether it answers at all. Thread-safe.
#pragma once

#include <atomic>
#include <memory>

#include "base/thread.h"
#include "reconcilers/checkpoint/reconciler.h"
#include "reconcilers/restorepolicy/retainer.h"
#include "storage/remote.h"

namespace holdfast::controller {

class StoreClient {
 public:
  explicit StoreClient(std::unique_ptr<storage::RemoteStore> store, Clock& clock = Clock::Real());
  ~StoreClient();
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;
  // As reconcilers::checkpoint::Contents and VolumeMeter say; `store` of a Content is left empty.
  Result<reconcilers::checkpoint::Content> Read(const std::string& manifest_id, std::stop_token stop);
  Status Delete(const std::string& manifest_id, int64_t term, std::stop_token stop);
  Result<reconcilers::checkpoint::Damages> Damaged(std::stop_token stop);
  Result<reconcilers::restorepolicy::VolumeUse> Use(std::stop_token stop);
  void Start();  // watching whether it answers
  void Stop();
  // Has answered, but not for half a minute: a restart is shorter, and one failed call proves nothing. Before its first answer (its
  // certificate's CA may still be on its way to us) a store is not down: an agent that cannot reach it says so in the Checkpoint.
  bool down() const;
  void Probe(std::stop_token stop);  // one look, of some seconds

 private:
  std::unique_ptr<storage::RemoteStore> Within(Duration limit, std::stop_token stop) const;

  const std::unique_ptr<storage::RemoteStore> store_;
  Clock& clock_;
  std::atomic<int64_t> last_answer_ns_;
  std::atomic<bool> answered_ = false;
  Thread thread_;
};

}  // namespace holdfast::controller
