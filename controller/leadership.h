// What only the replica that leads does: the reconcilers, and which changes each of them looks at. Wiring, no decision.
#pragma once

#include <array>

#include "controller/caches.h"
#include "controller/metrics.h"
#include "reconcilers/checkpoint/damage.h"
#include "reconcilers/checkpoint/reconciler.h"
#include "reconcilers/claim/reconciler.h"
#include "reconcilers/drain/reconciler.h"
#include "reconcilers/interval/reconciler.h"
#include "reconcilers/onrequest/reconciler.h"
#include "reconcilers/restorepolicy/retainer.h"
#include "reconcilers/restorepolicy/status.h"
#include "reconcilers/stop/reconciler.h"
#include "reconcilers/suspendedworkload/reconciler.h"

namespace holdfast::controller {

class Leadership {
 public:
  struct Options {
    int max_drains_per_node = 4;
    Duration drain_deadline = std::chrono::seconds(100);  // of a drain's checkpoint at most, from its turn on
    reconcilers::restorepolicy::RetentionSettings retention;
    std::function<bool()> store_down = [] { return false; };  // known, not suspected
    int workers = 4;                                          // at most so many of each controller
    bool on_stop = false;                                     // reconcilers/stop decides about stopped pods
    reconcilers::suspendedworkload::Prices prices{};
    reconcilers::suspendedworkload::Settings::Change seal{}, open{};  // unset: no bare pods
    std::string ns{};                                                 // the release's
    reconcilers::onrequest::PortRange activator_ports{};              // none: there is no activator
  };
  // Its watches are handlers of the caches: it is made before they start, and goes after they have stopped.
  Leadership(Caches& caches, reconcilers::Context context, Metrics& metrics, reconcilers::checkpoint::Contents& store,
             reconcilers::restorepolicy::VolumeMeter& meter, Options options);
  ~Leadership();
  void Start(int64_t term);  // of leadership; once, when the caches are synced
  void Stop();               // no reconcile runs any more when it returns, and none will

 private:
  struct Reconcilers;
  template <class Method>
  kube::Controller::Reconcile Run(Method method);
  kube::ControllerOptions Workers(const char* name, int workers) const;
  void WatchCheckpoints();
  void WatchPods();
  void WatchPolicies();
  void WatchForRetention();
  void WatchForDamage();
  void WatchForSuspension();
  void WatchForRequests();

  Caches& caches_;
  reconcilers::Context context_;
  Metrics& metrics_;
  reconcilers::checkpoint::Contents& store_;
  reconcilers::restorepolicy::VolumeMeter& meter_;
  const Options options_;
  std::unique_ptr<Reconcilers> reconcilers_;  // since Start: they act in its term
  kube::Controller checkpoints_, drains_, claims_, abandoned_, policies_, intervals_, retention_, damage_, suspends_, idles_, stops_,
      requests_;
  const std::array<kube::Controller*, 12> all_ = {&checkpoints_, &drains_, &claims_,   &abandoned_, &policies_, &intervals_,
                                                  &retention_,   &damage_, &suspends_, &idles_,     &stops_,    &requests_};
};

}  // namespace holdfast::controller
