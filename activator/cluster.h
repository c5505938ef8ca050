// What the cluster says of sleepers and their Services, and how one is woken. Its caches hand changes on to `changed`, from their own
// threads.
#pragma once

#include <map>

#include "activator/connection.h"
#include "kube/controller.h"
#include "kube/events.h"
#include "kube/informer.h"

namespace holdfast::activator {

// Of the objects' status.onRequest: who stands behind which port. A number that two of them have stands for nobody until one of them has
// got another: no request may come to somebody else's workload.
std::map<int32_t, Route> RoutesOf(const std::vector<SleeperPtr>& sleepers, int32_t first_port, int32_t last_port);

class Cluster {
 public:
  enum class Change { kSleeper, kEndpoints };
  Cluster(kube::Client& client, kube::EventRecorder& events, const std::function<void(Change)>& changed);
  void Start();
  void Stop();
  bool synced() const { return sleepers_.synced() && slices_.synced(); }

  std::vector<SleeperPtr> Sleepers() const { return sleepers_.List(); }
  SleeperPtr SleeperOf(const Route& route) const;  // null: it does not ask for that Service any more
  std::vector<Address> ReadyAddressesOf(const Route& route) const;
  // spec.state := Running, if it still sleeps then; once a sleep, whoever asks how often. Returns at once.
  void Wake(const Route& route) { waker_.Enqueue(route.Key()); }

 private:
  Result<kube::ReconcileResult> WakeNow(const std::string& key, std::stop_token stop);

  kube::Client& client_;
  kube::EventRecorder& events_;
  kube::Informer<api::SuspendedWorkload> sleepers_;
  kube::Informer<kube::EndpointSlice> slices_;
  kube::Controller waker_;
};

}  // namespace holdfast::activator
