// The two things that the controller asks of the checkpoint store: to forget a manifest, and whether it answers at all.
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "reconcilers/checkpoint/reconciler.h"
#include "storage/remote.h"

namespace holdfast::controller {

class StoreClient final : public reconcilers::checkpoint::StoreDeleter {
 public:
  // `store` null: there is none, and Delete says so.
  explicit StoreClient(std::unique_ptr<storage::RemoteStore> store, Clock& clock = Clock::Real());
  ~StoreClient() override;
  Status Delete(const std::string& manifest_id, int64_t term, std::stop_token stop) override;
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
  std::jthread thread_;
};

}  // namespace holdfast::controller
