// Leader election on a coordination.k8s.io Lease, judged by local time only (as in client-go): the holder renews every `renew_every`, and
// stops leading at once when it could not for `renew_deadline`; others take over when they saw no change for `lease_duration`.
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
