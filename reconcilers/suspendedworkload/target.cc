#include "reconcilers/suspendedworkload/target.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>

#include "api/gpu.h"

namespace holdfast::reconcilers::suspendedworkload {
namespace {

constexpr Duration kRead = std::chrono::seconds(5);
constexpr int64_t kMaxReplicas = std::numeric_limits<int32_t>::max();

bool IsJob(const api::SuspendedWorkload& object) { return object.spec.target_kind == "Job"; }

template <class T>
Result<WorkloadPtr> Read(kube::Client& client, const api::SuspendedWorkload& object, const kube::CallOptions& options) {
  auto read = client.Get<T>(object.meta.ns, object.spec.target_name, options);
  if (read.ok()) return WorkloadPtr(std::make_shared<const T>(std::move(*read)));
  if (read.status().code() == Code::kNotFound) return WorkloadPtr();
  return read.status().With(object.spec.target_kind + " " + object.meta.ns + "/" + object.spec.target_name.str());
}

// What the scheduler counts: the larger of the init containers' and the sum of the others'.
double Effective(const kube::Pod& pod, const std::function<double(const kube::Container&)>& of) {
  double sum = 0, init = 0;
  for (const kube::Container& c : pod.containers) sum += of(c);
  for (const kube::Container& c : pod.init_containers) {
    if (c.restart_always) {
      sum += of(c);
    } else {
      init = std::max(init, of(c));
    }
  }
  return std::max(sum, init);
}

double Amount(const kube::StringMap& amounts, const std::string& name) {
  auto found = amounts.find(name);
  return found == amounts.end() ? 0 : api::ParseAmount(found->second.view()).value_or(0);
}

std::string MemoryText(double bytes) {
  const auto whole = static_cast<int64_t>(std::min(bytes, 9e18));
  return whole % (1 << 20) == 0 ? std::to_string(whole >> 20) + "Mi" : std::to_string(whole);
}

// "0.0618", "12.5": four digits after the point at most, and two at least.
std::string CostText(double cost) {
  char text[40];
  snprintf(text, sizeof text, "%.4f", std::min(cost, 1e15));
  std::string out = text;
  while (out.ends_with('0') && out[out.size() - 3] != '.') out.pop_back();
  return out;
}

}  // namespace

bool IsPod(const api::SuspendedWorkload& object) { return object.spec.target_kind == "Pod"; }

int64_t SizeOf(const api::SuspendedWorkload& object, const kube::Workload& target) {
  if (IsJob(object)) return target.suspended ? 0 : target.pods;
  return target.replicas;
}

bool Stopped(const api::SuspendedWorkload& object, const kube::Workload& target) {
  return IsJob(object) ? target.suspended : target.replicas == 0;
}

Json StopPatch(const api::SuspendedWorkload& object, const api::Asleep& mark) {
  Json patch = {{"metadata", {{"annotations", {{api::kAsleep, mark.ToAnnotation()}}}}}};
  if (IsJob(object)) {
    patch["spec"]["suspend"] = true;
  } else {
    patch["spec"]["replicas"] = 0;
  }
  return patch;
}

Json StartPatch(const api::SuspendedWorkload& object, int64_t replicas) {
  Json patch = UnmarkPatch();
  if (IsJob(object)) {
    patch["spec"]["suspend"] = false;
  } else {
    patch["spec"]["replicas"] = std::clamp<int64_t>(replicas, 1, kMaxReplicas);
  }
  return patch;
}

Json UnmarkPatch() { return {{"metadata", {{"annotations", {{api::kAsleep, nullptr}}}}}}; }

Json FencePatch(const api::SuspendedWorkload& object) {
  return {{"metadata", {{"annotations", {{api::kSuspendUndone, object.status.attempt.started_at}}}}}};
}

bool Fenced(const api::SuspendedWorkload& object, const kube::Workload& target) {
  return target.meta.Annotation(api::kSuspendUndone) == object.status.attempt.started_at;
}

const kube::Resource* ResourceOf(std::string_view kind) {
  for (const kube::Resource* resource :
       {&kube::Deployment::kResource, &kube::StatefulSet::kResource, &kube::Job::kResource, &kube::Pod::kResource}) {
    if (resource->kind == kind) return resource;
  }
  return nullptr;
}

WorkloadPtr AsWorkload(const api::SuspendedWorkload& object, const kube::Pod* pod) {
  const auto& s = object.status;
  const bool kept = s.durable && !s.sealed_pod.empty() && !s.checkpoints.empty();
  if (pod == nullptr && !kept) return nullptr;
  auto out = std::make_shared<kube::Workload>();
  if (pod != nullptr) {
    out->meta = pod->meta;
    out->observed_generation = pod->meta.generation;
    out->finished = Ended(*pod);
  } else {
    out->meta.ns = object.meta.ns;
    out->meta.name = object.spec.target_name;
    out->meta.uid = s.checkpoints[0].pod_uid;
  }
  const bool sleeps = kept && (pod == nullptr || (pod->meta.terminating() && pod->meta.uid == s.checkpoints[0].pod_uid));
  if (sleeps) {
    out->finished = false;  // its processes were ended for its sleep
    out->meta.annotations[api::kAsleep] = api::Asleep{object.meta.name, 1, s.suspended_at}.ToAnnotation();
  }
  out->replicas = out->pods = out->updated_pods = sleeps ? 0 : 1;
  return out;
}

Result<WorkloadPtr> ReadTarget(kube::Client& client, const api::SuspendedWorkload& object, std::stop_token stop) {
  kube::CallOptions options;
  options.timeout = kRead;
  options.stop = std::move(stop);
  if (object.spec.target_kind == "Deployment") return Read<kube::Deployment>(client, object, options);
  if (object.spec.target_kind == "StatefulSet") return Read<kube::StatefulSet>(client, object, options);
  if (object.spec.target_kind == "Job") return Read<kube::Job>(client, object, options);
  if (IsPod(object)) {
    auto pod = client.Get<kube::Pod>(object.meta.ns, object.spec.target_name, options);
    if (!pod.ok() && pod.status().code() != Code::kNotFound)
      return pod.status().With("Pod " + object.meta.ns + "/" + object.spec.target_name.str());
    return AsWorkload(object, pod.ok() ? &*pod : nullptr);
  }
  return WorkloadPtr();
}

std::optional<double> ParsePrice(std::string_view text) {
  const size_t dot = std::min(text.find('.'), text.size());
  const std::string_view whole = text.substr(0, dot), rest = dot < text.size() ? text.substr(dot + 1) : "0";
  auto digits = [](std::string_view part) {
    return !part.empty() && part.size() <= 9 && part.find_first_not_of("0123456789") == std::string_view::npos;
  };
  if (!digits(whole) || !digits(rest)) return std::nullopt;
  return std::stod(std::string(text));
}

Json Requests(const std::vector<PodPtr>& pods, const Prices& prices) {
  double cpu = 0, memory = 0, gpu = 0;
  for (const PodPtr& pod : pods) {
    cpu += Effective(*pod, [](const kube::Container& c) { return Amount(c.requests, "cpu"); });
    memory += Effective(*pod, [](const kube::Container& c) { return Amount(c.requests, "memory"); });
    gpu += Effective(*pod, api::GpusOf);
  }
  Json out = Json::object();
  const auto millis = static_cast<int64_t>(std::min(cpu * 1000 + 0.5, 9e18));
  if (millis > 0) out["cpu"] = millis % 1000 == 0 ? std::to_string(millis / 1000) : std::to_string(millis) + "m";
  if (memory > 0) out["memory"] = MemoryText(memory);
  if (gpu > 0) out["gpu"] = std::to_string(static_cast<int64_t>(std::min(gpu, 9e18)));
  if (prices.any()) {
    const double cost = cpu * prices.cpu.value_or(0) + memory / (1 << 30) * prices.memory_gib.value_or(0) + gpu * prices.gpu.value_or(0);
    out["costPerHour"] = CostText(cost) + " " + prices.currency;
  }
  return out;
}

}  // namespace holdfast::reconcilers::suspendedworkload
