// What only the replica that leads does: the reconcilers, and which changes each of them looks at. Wiring, no decision.
#pragma once

#include "controller/caches.h"
#include "controller/metrics.h"
#include "reconcilers/checkpoint/reconciler.h"
#include "reconcilers/claim/reconciler.h"
#include "reconcilers/drain/reconciler.h"
#include "reconcilers/interval/reconciler.h"
#include "reconcilers/restorepolicy/status.h"

namespace holdfast::controller {

class Leadership {
 public:
  // Its watches are handlers of the caches: it is made before they start, and goes after they have stopped.
  Leadership(Caches& caches, reconcilers::Context context, Metrics& metrics, reconcilers::checkpoint::StoreDeleter& store,
             int max_drains_per_node);
  ~Leadership();
  void Start(int64_t term);  // of leadership; once, when the caches are synced
  void Stop();               // no reconcile runs any more when it returns, and none will

 private:
  struct Reconcilers;
  template <class Method>
  kube::Controller::Reconcile Run(Method method);
  kube::ControllerOptions Options(const char* name, int workers) const;
  void WatchCheckpoints();
  void WatchPods();
  void WatchPolicies();

  Caches& caches_;
  reconcilers::Context context_;
  Metrics& metrics_;
  reconcilers::checkpoint::StoreDeleter& store_;
  const int max_drains_per_node_;
  std::unique_ptr<Reconcilers> reconcilers_;  // since Start: they act in its term
  kube::Controller checkpoints_, drains_, claims_, abandoned_, policies_, intervals_;
};

}  // namespace holdfast::controller
