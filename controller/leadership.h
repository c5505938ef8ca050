// What only the replica that leads does: the reconcilers, fed by the informers' events. Start and Stop may be called again and again.
#pragma once

#include <shared_mutex>

#include "controller/caches.h"
#include "controller/metrics.h"
#include "reconcilers/checkpoint/reconciler.h"
#include "reconcilers/claim/reconciler.h"
#include "reconcilers/drain/reconciler.h"
#include "reconcilers/restorepolicy/status.h"

namespace holdfast::controller {

class Leadership {
 public:
  // Registers its handlers, so it is made before the caches start.
  Leadership(Caches& caches, reconcilers::Context context, Metrics& metrics, reconcilers::checkpoint::StoreDeleter& store,
             int max_drains_per_node);
  ~Leadership();
  void Start(int64_t term);  // of leadership; the caches are synced
  void Stop();               // no reconcile runs any more when it returns

 private:
  struct Work;
  void OnCheckpoint(const reconcilers::CheckpointPtr& checkpoint);
  void OnPod(const reconcilers::PodPtr& old, const reconcilers::PodPtr& now);
  void EnqueuePolicies(const std::string& ns);

  Caches& caches_;
  reconcilers::Context context_;
  Metrics& metrics_;
  reconcilers::checkpoint::StoreDeleter& store_;
  const int max_drains_per_node_;
  std::shared_mutex mutex_;  // of work_ itself
  std::unique_ptr<Work> work_;
};

}  // namespace holdfast::controller
