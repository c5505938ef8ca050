// Leader election on a coordination.k8s.io Lease, judged by local time only (as in client-go): the holder renews every `renew_every`, and
// stops leading at once when it could not for `renew_deadline`; others take over when they saw no change for `lease_duration`. After a
// loss it tries to lead again, with a higher transition number. leading() also turns false by itself when the time is over, though no
// thread got to run.
#pragma once

#include <functional>
#include <memory>

#include "kube/client.h"

namespace holdfast::kube {

struct LeaseOptions {
  std::string ns{}, name{}, identity{};
  Duration lease_duration = std::chrono::seconds(15);
  Duration renew_deadline = std::chrono::seconds(10);
  Duration renew_every = std::chrono::seconds(2);
  bool release_on_stop = true;
};

class LeaderElector {
 public:
  // Both are called on the elector's thread, so they must return soon: while one runs, nothing is renewed.
  // on_start: leading begins, with the lease's transition number (the fence). on_stop: leading ended; called before anybody else can lead.
  LeaderElector(Client& client, LeaseOptions options, std::function<void(int64_t transitions)> on_start, std::function<void()> on_stop);
  ~LeaderElector();
  void Start();
  void Stop();
  bool leading() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast::kube
