// Leader election on a coordination.k8s.io Lease, judged by local time only (as in client-go): the holder renews every `renew_every`, and
// stops leading at once when it could not for `renew_deadline`, counted from when its last write that succeeded was sent; others take over
// when they saw no change for `lease_duration`. A try that hangs leaves time for two more within the deadline, so dead connections do not
// cost the lease. After a loss it tries to lead again, with a higher transition number. leading() also turns false by itself when the time
// is over, though no thread got to run.
//
// Clocks may differ as they like, but must run equally fast: a tenth faster or slower is more than lease_duration − renew_deadline allows
// for at the defaults. And a Lease is no fence: a leader that was paused may act in the belief that it
// leads. So whoever has side effects says in which term, and whoever carries them out refuses an older one (base/fence.h).
//
// Those who do not lead look at the lease at least every 0.7 s and at the moment when it runs out, so that a holder that vanishes has a
// successor within lease_duration + 1 s. Warm standby: start caches before the elector (Controller::Warmup), so that on_start finds them.
#pragma once

#include <functional>
#include <memory>

#include "kube/client.h"

namespace holdfast::kube {

class RuntimeMetrics;

struct LeaseOptions {
  std::string ns{}, name{}, identity{};
  Duration lease_duration = std::chrono::seconds(15);
  Duration renew_deadline = std::chrono::seconds(10);
  Duration renew_every = std::chrono::seconds(2);
  bool release_on_stop = true;
  uint64_t seed = 0;                  // of the jitter; 0: a random one
  RuntimeMetrics* metrics = nullptr;  // outlives the elector
};

// kInvalidArgument unless lease_duration > renew_deadline > 1.2 × renew_every > 0, lease_duration is whole seconds, and the names are
// there.
Status Validate(const LeaseOptions& options);

class LeaderElector {
 public:
  // Both are called on the elector's thread, so they must return soon: while one runs, nothing is renewed.
  // on_start: leading begins. `term` grows with every leader, also when the Lease is deleted and made anew: its creation time in seconds
  // × 2^20 + its transitions. on_stop: leading ended; called before anybody else can lead.
  LeaderElector(Client& client, LeaseOptions options, std::function<void(int64_t term)> on_start, std::function<void()> on_stop);
  ~LeaderElector();
  Status Start();  // as Validate
  void Stop();     // leads no more, and gives the lease back, when it returns
  bool leading() const;
  int64_t transitions() const;  // of the last leadership; -1 before the first
  // For /healthz. An error when the lease that we took ran out more than `tolerance` ago and on_stop has not returned: guarded work may
  // still run, so the process had better be ended.
  Status Check(Duration tolerance) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast::kube
