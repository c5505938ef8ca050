#include "activator/cluster.h"

#include <set>

#include "base/log.h"

namespace holdfast::activator {
namespace {

constexpr char kByService[] = "service";
constexpr Duration kAfterConflict = std::chrono::milliseconds(100), kCall = std::chrono::seconds(10);

}  // namespace

std::map<int32_t, Route> RoutesOf(const std::vector<SleeperPtr>& sleepers, int32_t first_port, int32_t last_port) {
  std::map<int32_t, Route> routes;
  std::set<int32_t> contested;
  for (const SleeperPtr& sleeper : sleepers) {
    const auto& wanted = sleeper->spec.on_request;
    const auto& allotted = sleeper->status.on_request;
    for (const api::ActivatorPort& port : allotted.ports) {
      if (port.number < first_port || port.number > last_port) continue;
      // Also of one whose Service was changed just now: until that is recorded, the number is its.
      const Route route{sleeper->meta.ns, sleeper->meta.name, allotted.service.str(), port.name.str()};
      if (!routes.emplace(port.number, route).second) contested.insert(port.number);
      if (!wanted || wanted->service != allotted.service.view()) contested.insert(port.number);
    }
  }
  for (const int32_t number : contested) routes.erase(number);
  return routes;
}

Cluster::Cluster(kube::Client& client, kube::EventRecorder& events, const std::function<void(Change)>& changed)
    : client_(client),
      events_(events),
      sleepers_(client),
      slices_(client, {"", "kubernetes.io/service-name", ""}),
      waker_({.name = "wake", .workers = 4},
             [this](const std::string& key, std::stop_token stop) { return WakeNow(key, std::move(stop)); }) {
  slices_.AddIndex(kByService,
                   [](const kube::EndpointSlice& slice) { return std::vector<std::string>{slice.meta.ns + "/" + slice.service.str()}; });
  sleepers_.AddHandler([changed](const SleeperPtr&, const SleeperPtr&) { changed(Change::kSleeper); });
  slices_.AddHandler([changed](const auto&, const auto&) { changed(Change::kEndpoints); });
}

void Cluster::Start() {
  sleepers_.Start();
  slices_.Start();
  if (const Status started = waker_.Start(); !started.ok()) LogError("nobody can be woken", {{"error", started.ToString()}});
}

void Cluster::Stop() {
  waker_.Stop();
  sleepers_.Stop();
  slices_.Stop();
}

SleeperPtr Cluster::SleeperOf(const Route& route) const {
  SleeperPtr sleeper = sleepers_.Get(route.ns, route.object);
  if (!sleeper || !sleeper->spec.on_request || sleeper->spec.on_request->service != route.service) return nullptr;
  return sleeper;
}

std::vector<Address> Cluster::ReadyAddressesOf(const Route& route) const {
  return ReadyAddresses(slices_.ByIndex(kByService, route.ns + "/" + route.service), route.port);
}

Result<kube::ReconcileResult> Cluster::WakeNow(const std::string& key, std::stop_token stop) {
  const kube::ObjectKey name = kube::ObjectKey::Parse(key);
  const SleeperPtr sleeper = sleepers_.Get(name.ns, name.name);
  if (!sleeper || !ToBeWoken(*sleeper)) return kube::ReconcileResult{};
  kube::CallOptions options;
  options.timeout = kCall;
  options.stop = std::move(stop);
  // Of the very version that sleeps: a word that somebody has said since is not overridden.
  const Json patch = {{"metadata", {{"uid", sleeper->meta.uid}, {"resourceVersion", sleeper->meta.resource_version}}},
                      {"spec", {{"state", "Running"}}}};
  auto woken = client_.Patch(api::SuspendedWorkload::kResource, name.ns, name.name, kube::PatchType::kMerge, patch, options);
  if (woken.status().code() == Code::kConflict) return kube::ReconcileResult{kAfterConflict};
  if (woken.status().code() == Code::kNotFound) return kube::ReconcileResult{};
  if (!woken.ok()) return woken.status().With("cannot wake SuspendedWorkload " + key);
  sleepers_.Observe(*woken);
  LogInfo("woken", {{"object", key}, {"service", sleeper->spec.on_request->service}});
  events_.Normal(kube::ObjectReference::To(api::SuspendedWorkload::kResource, sleeper->meta), "ResumedOnRequest", "Holdfast",
                 "a request to Service " + sleeper->spec.on_request->service + " wakes it");
  return kube::ReconcileResult{};
}

}  // namespace holdfast::activator
