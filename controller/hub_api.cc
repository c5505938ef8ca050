#include "controller/hub_api.h"

#include <openssl/sha.h>

#include <algorithm>
#include <charconv>

namespace holdfast::controller {
namespace {

constexpr int64_t kMaxWaitSeconds = 60;
constexpr Duration kLook = std::chrono::milliseconds(200);
constexpr char kWhere[] = "the paths are /v1/namespaces/NAMESPACE/suspendedworkloads[/NAME[/suspend|/resume]], see /openapi.yaml";

std::vector<std::string> Split(std::string_view path) {
  std::vector<std::string> parts;
  for (size_t at = 1; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    parts.emplace_back(path.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

// As Kubernetes names namespaces (`dots` false) and objects.
bool IsName(std::string_view text, size_t most, bool dots) {
  auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (text.empty() || text.size() > most || !letter(text.front()) || !letter(text.back())) return false;
  return std::all_of(text.begin(), text.end(), [&](char c) { return letter(c) || c == '-' || (dots && c == '.'); });
}

Result<Duration> ReadWait(const std::map<std::string, std::string>& query) {
  auto given = query.find("wait");
  if (given == query.end()) return Duration(0);
  int64_t seconds = -1;
  const std::string& text = given->second;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds < 0 || seconds > kMaxWaitSeconds) {
    return Status(Code::kInvalidArgument, "wait must be whole seconds from 0 to " + std::to_string(kMaxWaitSeconds) + ", as in ?wait=30");
  }
  return Duration(std::chrono::seconds(seconds));
}

std::string VersionOf(const Json& view) {
  const std::string text = DumpJson(view);
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  std::string version;
  for (int i = 0; i < 8; ++i) {
    constexpr char kHex[] = "0123456789abcdef";
    version += {kHex[digest[i] >> 4], kHex[digest[i] & 15]};
  }
  return version;
}

int HttpCode(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return 400;
    case Code::kUnauthenticated:
      return 401;
    case Code::kPermissionDenied:
      return 403;
    case Code::kNotFound:
      return 404;
    case Code::kUnsupported:
      return 405;
    case Code::kConflict:
    case Code::kFailedPrecondition:
      return 409;
    default:
      return 503;
  }
}

// Of a call of ours: what the API server holds against us is nothing that the caller did.
Status OfOurs(const Status& status, const HubCall& call) {
  const std::string what = "SuspendedWorkload " + call.ns + "/" + call.name;
  if (status.code() == Code::kNotFound) {
    return {Code::kNotFound, what + " does not exist: create one that names the workload (kubectl explain suspendedworkload.spec)"};
  }
  if (status.code() == Code::kConflict) return {Code::kConflict, what + " was changed by somebody else at the same time: try again"};
  return {Code::kUnavailable, "the API server does not serve the controller: " + status.ToString() + ": try again"};
}

HubAnswer Answered(int status, const Json& body) { return {.status = status, .body = DumpJson(body)}; }

}  // namespace

Result<HubCall> ReadHubCall(const HubRequest& request) {
  const std::vector<std::string> parts = request.path.starts_with("/") ? Split(request.path) : std::vector<std::string>();
  const bool known = parts.size() >= 4 && parts.size() <= 6 && parts[0] == "v1" && parts[1] == "namespaces" &&
                     parts[3] == "suspendedworkloads" && (parts.size() < 6 || parts[5] == "suspend" || parts[5] == "resume");
  if (!known) return Status(Code::kNotFound, "there is no " + request.path + " here: " + kWhere);
  HubCall call{.ns = parts[2]};
  if (!IsName(call.ns, 63, false)) return Status(Code::kInvalidArgument, "\"" + call.ns + "\" is no name of a namespace");
  if (parts.size() >= 5) {
    call.name = parts[4];
    call.verb = parts.size() == 5 ? HubVerb::kStatus : parts[5] == "suspend" ? HubVerb::kSuspend : HubVerb::kResume;
    if (!IsName(call.name, 253, true)) return Status(Code::kInvalidArgument, "\"" + call.name + "\" is no name of a SuspendedWorkload");
  }
  const bool writes = parts.size() == 6;
  const std::string method = writes ? "POST" : "GET";
  if (request.method != method) return Status(Code::kUnsupported, request.method + " is not for " + request.path + ": use " + method);
  HF_ASSIGN_OR_RETURN(call.wait, ReadWait(request.query));
  if (auto since = request.query.find("since"); since != request.query.end()) call.since = since->second;
  return call;
}

HubAction ActionOf(const HubCall& call) {
  const char* verb = call.verb == HubVerb::kList ? "list" : call.verb == HubVerb::kStatus ? "get" : "patch";
  return {.verb = verb, .ns = call.ns, .name = call.name};
}

Json HubView(const Json& object) {
  const api::SuspendedWorkload workload = api::SuspendedWorkload::FromJson(object);
  Json view = {{"namespace", workload.meta.ns},
               {"name", workload.meta.name},
               {"target", {{"kind", workload.spec.target_kind.str()}, {"name", workload.spec.target_name.str()}}},
               {"state", workload.spec.suspended ? "Suspended" : "Running"},
               {"phase", api::SuspendPhaseName(workload.status.phase)},
               {"observed", workload.status.seen && workload.status.observed_generation >= workload.meta.generation}};
  if (const auto* condition = kube::FindCondition(workload.status.conditions, "Suspended")) {
    view["reason"] = condition->reason.str();
    view["message"] = condition->message.str();
  }
  for (const char* key : {"freed", "suspendedAt", "lastActivity"}) {
    if (const Json* found = Find(object, {"status", key})) view[key] = *found;
  }
  if (!workload.status.attempt.retry_at.empty()) view["retryAt"] = workload.status.attempt.retry_at.str();
  view["version"] = VersionOf(view);
  return view;
}

bool IsOverridden(const api::SuspendedWorkload& workload) {
  return workload.spec.suspended && workload.meta.generation > 0 && workload.status.overridden_generation == workload.meta.generation;
}

bool IsWhereWanted(HubVerb verb, const api::SuspendedWorkload& workload) {
  const bool suspend = verb == HubVerb::kSuspend;
  return workload.spec.suspended == suspend && workload.status.seen && workload.status.observed_generation >= workload.meta.generation &&
         workload.status.phase == (suspend ? api::SuspendPhase::kSuspended : api::SuspendPhase::kRunning);
}

HubAnswer Problem(const Status& status, const std::string& path) {
  const int code = HttpCode(status.code());
  HubAnswer answer = Answered(code, {{"type", "about:blank"},
                                     {"title", code == 503 ? "Unavailable" : std::string(CodeName(status.code()))},
                                     {"status", code},
                                     {"detail", status.message()},
                                     {"instance", path}});
  answer.type = "application/problem+json";
  if (code == 401) answer.headers["WWW-Authenticate"] = "Bearer";
  if (code == 503) answer.headers["Retry-After"] = "2";
  return answer;
}

HubAnswer HubApi::Answer(const HubRequest& request, std::stop_token stop) {
  const Result<HubCall> call = ReadHubCall(request);
  if (!call.ok()) {
    HubAnswer answer = Problem(call.status(), request.path);
    if (answer.status == 405)
      answer.headers["Allow"] = request.path.ends_with("/suspend") || request.path.ends_with("/resume") ? "POST" : "GET";
    return answer;
  }
  const Status allowed = access_.Check(request.authorization, ActionOf(*call), stop);
  if (!allowed.ok()) return Problem(allowed, request.path);
  Result<HubAnswer> answer = Do(*call, stop);
  return answer.ok() ? *answer : Problem(answer.status(), request.path);
}

Result<HubAnswer> HubApi::Do(const HubCall& call, const std::stop_token& stop) {
  kube::CallOptions options;
  options.timeout = std::chrono::seconds(10);
  options.stop = stop;
  if (call.verb == HubVerb::kList) return List(call, options);
  const bool asks = call.verb == HubVerb::kStatus;
  Result<Json> object = asks ? client_.Get(api::SuspendedWorkload::kResource, call.ns, call.name, options) : SetState(call, options);
  if (!object.ok()) return asks ? OfOurs(object.status(), call) : object.status();
  HubCall waiting = call;
  if (asks && call.since.empty()) waiting.since = GetString(HubView(*object), {"version"});
  HF_ASSIGN_OR_RETURN(const bool waited, Wait(waiting, &*object, options));
  const bool done = asks || IsWhereWanted(call.verb, api::SuspendedWorkload::FromJson(*object));
  HubAnswer answer = Answered(done ? 200 : 202, HubView(*object));
  if (!waited) answer.headers["Retry-After"] = "1";
  return answer;
}

Result<HubAnswer> HubApi::List(const HubCall& call, const kube::CallOptions& options) {
  const auto objects = client_.List(api::SuspendedWorkload::kResource, {.ns = call.ns}, options);
  if (!objects.ok()) return OfOurs(objects.status(), call);
  Json items = Json::array();
  for (const Json& object : *objects) items.push_back(HubView(object));
  return Answered(200, {{"items", items}});
}

Result<Json> HubApi::SetState(const HubCall& call, const kube::CallOptions& options) {
  Result<Json> object = client_.Get(api::SuspendedWorkload::kResource, call.ns, call.name, options);
  if (!object.ok()) return OfOurs(object.status(), call);
  const api::SuspendedWorkload workload = api::SuspendedWorkload::FromJson(*object);
  const bool suspend = call.verb == HubVerb::kSuspend;
  // A call that is made again, late, must not put to sleep what its user has woken since.
  if (suspend && IsOverridden(workload)) {
    return Status(Code::kFailedPrecondition, "SuspendedWorkload " + workload.meta.Key() +
                                                 " is not suspended: somebody scaled its workload up while it slept, and that has the last "
                                                 "word; resume it here, then suspend it");
  }
  if (workload.spec.suspended == suspend) return object;
  object = client_.Patch(
      api::SuspendedWorkload::kResource, call.ns, call.name, kube::PatchType::kMerge,
      {{"metadata", {{"resourceVersion", workload.meta.resource_version}}}, {"spec", {{"state", suspend ? "Suspended" : "Running"}}}},
      options);
  return object.ok() ? object : OfOurs(object.status(), call);
}

bool HubApi::IsDone(const HubCall& call, const Json& object) const {
  if (call.verb == HubVerb::kStatus) return GetString(HubView(object), {"version"}) != call.since;
  const api::SuspendedWorkload workload = api::SuspendedWorkload::FromJson(object);
  return IsWhereWanted(call.verb, workload) || workload.spec.suspended != (call.verb == HubVerb::kSuspend) || IsOverridden(workload);
}

Result<bool> HubApi::Wait(const HubCall& call, Json* object, const kube::CallOptions& options) {
  if (call.wait <= Duration(0) || IsDone(call, *object)) return true;
  struct Place {
    std::atomic<int>& places;
    const bool taken;
    ~Place() { places -= 1; }
  } const place{waiters_, ++waiters_ <= max_waiters_};
  if (!place.taken) return false;
  Clock& clock = client_.clock();
  const MonoTime until = clock.Mono() + call.wait;
  while (!IsDone(call, *object)) {
    const Duration left = until - clock.Mono();
    if (left <= Duration(0)) return true;
    if (!clock.Sleep(std::min(kLook, left), options.stop)) return Status(Code::kUnavailable, "this replica ends: ask again");
    const std::string seen = seen_(call.ns, call.name);
    if (!seen.empty() && !kube::IsOlderVersion(GetString(*object, {"metadata", "resourceVersion"}), seen)) continue;
    Result<Json> now = client_.Get(api::SuspendedWorkload::kResource, call.ns, call.name, options);
    if (!now.ok()) return OfOurs(now.status(), call);
    *object = std::move(*now);
  }
  return true;
}

}  // namespace holdfast::controller
