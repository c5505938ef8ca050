#include "api/suspended_workload.h"

#include <algorithm>

#include "api/restore_policy.h"

namespace holdfast::api {
namespace {

constexpr std::string_view kPhases[] = {"Running", "Suspending", "Suspended", "Resuming", "Failed"};
constexpr size_t kMaxPods = 256, kMaxIgnored = 16;                                              // as in the CRD
constexpr Duration kLeastHold = std::chrono::seconds(1), kMostHold = std::chrono::minutes(30);  // the same

// Nothing: none, or one that would have been refused.
std::optional<IdleWatch> IdleFrom(const Json& spec) {
  const auto after = ParseIdleAfter(GetString(spec, {"idle", "after"}));
  if (!after) return std::nullopt;
  IdleWatch watch{*after};
  if (const auto below = ParseAmount(GetString(spec, {"idle", "signals", "cpu", "below"})))
    watch.cpu_below_millis = static_cast<int64_t>(std::clamp(*below * 1000, 1.0, 1e6));
  watch.jupyter = Find(spec, {"idle", "signals", "jupyter"}) != nullptr;
  watch.gpu_below_percent =
      static_cast<int>(std::clamp<int64_t>(GetInt(spec, {"idle", "signals", "gpu", "utilBelow"}, kDefaultGpuBelow), 1, 100));
  return watch;
}

std::vector<std::string> Texts(const Json& array) {
  std::vector<std::string> out;
  for (const Json& text : array) {
    // An empty one would begin every text.
    if (text.is_string() && text != "" && out.size() < kMaxIgnored) out.push_back(text.get<std::string>());
  }
  return out;
}

std::optional<OnRequest> OnRequestFrom(const Json& spec) {
  const Json& given = GetObject(spec, {"resume", "onRequest"});
  OnRequest out{.service = GetString(given, {"service"})};
  if (out.service.empty()) return std::nullopt;
  if (const auto hold = ParseDuration(GetString(given, {"holdFor"}))) out.hold_for = std::clamp<Duration>(*hold, kLeastHold, kMostHold);
  out.ignored_user_agents = Texts(GetArray(given, {"ignore", "userAgents"}));
  out.ignored_paths = Texts(GetArray(given, {"ignore", "paths"}));
  return out;
}

}  // namespace

const kube::Resource SuspendedWorkload::kResource{kGroup, kVersion, "suspendedworkloads", "SuspendedWorkload", true};

std::string_view SuspendPhaseName(SuspendPhase phase) { return kPhases[static_cast<size_t>(phase)]; }

SuspendedWorkload SuspendedWorkload::FromJson(const Json& object) {
  SuspendedWorkload out;
  out.meta = kube::ObjectMeta::FromJson(object);
  const Json& spec = GetObject(object, {"spec"});
  out.spec.target_api_version = GetString(spec, {"targetRef", "apiVersion"});
  out.spec.target_kind = GetString(spec, {"targetRef", "kind"});
  out.spec.target_name = GetString(spec, {"targetRef", "name"});
  out.spec.suspended = GetString(spec, {"state"}) == "Suspended";
  out.spec.keep_on_delete = GetString(spec, {"onDelete"}) == "Keep";
  out.spec.schedule.suspend = GetString(spec, {"schedule", "suspend"});
  out.spec.schedule.resume = GetString(spec, {"schedule", "resume"});
  out.spec.schedule.time_zone = GetString(spec, {"schedule", "timeZone"}, "UTC");
  out.spec.idle = IdleFrom(spec);
  out.spec.on_request = OnRequestFrom(spec);

  const Json& status = GetObject(object, {"status"});
  const std::string phase = GetString(status, {"phase"});
  for (size_t i = 0; i < std::size(kPhases); ++i) {
    if (kPhases[i] == phase) out.status.phase = static_cast<SuspendPhase>(i);
  }
  out.status.seen = !phase.empty();
  out.status.observed_generation = GetInt(status, {"observedGeneration"});
  out.status.overridden_generation = GetInt(status, {"overriddenGeneration"});
  out.status.replicas = std::max<int64_t>(GetInt(status, {"replicas"}), 0);
  for (const Json& pod : GetArray(status, {"checkpoints"})) {
    if (out.status.checkpoints.size() >= kMaxPods) break;
    out.status.checkpoints.push_back(
        {GetString(pod, {"pod"}), GetString(pod, {"podUID"}), GetString(pod, {"ordinal"}), GetString(pod, {"checkpoint"})});
  }
  out.status.durable = GetBool(status, {"durable"});
  out.status.sealed_pod = GetString(status, {"sealedPod"});
  out.status.suspended_at = GetString(status, {"suspendedAt"});
  out.status.overridden_at = GetString(status, {"overriddenAt"});
  out.status.last_activity = GetString(status, {"lastActivity"});
  const Json& attempt = GetObject(status, {"attempt"});
  out.status.attempt.started_at = GetString(attempt, {"startedAt"});
  out.status.attempt.retry_at = GetString(attempt, {"retryAt"});
  out.status.attempt.reason = GetString(attempt, {"reason"});
  out.status.attempt.message = GetString(attempt, {"message"});
  out.status.attempt.failures = std::clamp<int64_t>(GetInt(attempt, {"failures"}), 0, 1'000'000);
  out.status.on_request.service = GetString(status, {"onRequest", "service"});
  for (const Json& port : GetArray(status, {"onRequest", "ports"})) {
    const int64_t number = GetInt(port, {"number"});
    if (number < 1 || number > 65535 || out.status.on_request.ports.size() >= kMaxActivatorPorts) continue;
    out.status.on_request.ports.push_back({GetString(port, {"name"}), static_cast<int32_t>(number)});
  }
  for (const Json& condition : GetArray(status, {"conditions"})) out.status.conditions.push_back(Condition::FromJson(condition));
  return out;
}

Json ToJson(const SuspendedPod& pod) {
  Json json = {{"pod", pod.pod}, {"podUID", pod.pod_uid}, {"checkpoint", pod.checkpoint}};
  if (!pod.ordinal.empty()) json["ordinal"] = pod.ordinal;
  return json;
}

Json ToJson(const ActivatorPort& port) { return {{"name", port.name}, {"number", port.number}}; }

std::string Asleep::ToAnnotation() const { return DumpJson({{"by", by}, {"replicas", replicas}, {"since", since}}); }

std::optional<Asleep> AsleepMark(const kube::ObjectMeta& workload) {
  const std::string text = workload.Annotation(kAsleep);
  if (text.empty()) return std::nullopt;
  const Json json = ParseJson(text).value_or(Json::object());
  return Asleep{GetString(json, {"by"}), std::max<int64_t>(GetInt(json, {"replicas"}), 0), GetString(json, {"since"})};
}

std::string Scheduled::ToAnnotation() const {
  return DumpJson({{"of", of}, {"at", FormatTime(at)}, {"state", suspended ? "Suspended" : "Running"}});
}

std::optional<Scheduled> ScheduledMark(const kube::ObjectMeta& object) {
  auto json = ParseJson(object.Annotation(kScheduled));
  if (!json.ok()) return std::nullopt;
  const auto at = ParseTime(GetString(*json, {"at"}));
  if (!at) return std::nullopt;
  return Scheduled{GetString(*json, {"of"}), *at, GetString(*json, {"state"}) == "Suspended"};
}

std::string Idled::ToAnnotation() const {
  return DumpJson({{"generation", generation}, {"since", FormatTime(since)}, {"at", FormatTime(at)}});
}

std::optional<Idled> IdledMark(const kube::ObjectMeta& object) {
  const auto json = ParseJson(object.Annotation(kIdled));
  if (!json.ok() || GetInt(*json, {"generation"}) != object.generation) return std::nullopt;
  const auto since = ParseTime(GetString(*json, {"since"})), at = ParseTime(GetString(*json, {"at"}));
  if (!since || !at) return std::nullopt;
  return Idled{object.generation, *since, *at};
}

}  // namespace holdfast::api
