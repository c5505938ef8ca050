// The hub API: suspend, resume, status and list of SuspendedWorkloads over HTTP, for a JupyterHub or whatever else starts and stops
// people's servers. docs/hub-api.yaml is the contract with its users. It has no state: each call reads or writes SuspendedWorkloads through
// the API server, so any replica answers, and the leader's reconcilers do the rest. Thread-safe.
#pragma once

#include <atomic>

#include "api/suspended_workload.h"
#include "controller/hub_access.h"

namespace holdfast::controller {

struct HubRequest {
  std::string method, path;                    // decoded
  std::map<std::string, std::string> query{};  // decoded
  std::string authorization{};
};

struct HubAnswer {
  int status = 200;
  std::map<std::string, std::string> headers{};
  std::string type = "application/json", body{};
};

enum class HubVerb { kList, kStatus, kSuspend, kResume };

struct HubCall {
  HubVerb verb = HubVerb::kList;
  std::string ns, name{};
  Duration wait{0};
  std::string since{};  // kStatus: the version that the caller has seen
};

// What is asked for. kInvalidArgument; kNotFound: no such path; kUnsupported: no such method there.
Result<HubCall> ReadHubCall(const HubRequest& request);
HubAction ActionOf(const HubCall& call);
// A SuspendedWorkload as callers see it; its `version` changes with anything that they see.
Json HubView(const Json& object);
// Whether the workload is where `verb` (kSuspend, kResume) wants it.
bool IsWhereWanted(HubVerb verb, const api::SuspendedWorkload& workload);
// Somebody scaled the workload up while it slept, and nobody has spoken since.
bool IsOverridden(const api::SuspendedWorkload& workload);
// application/problem+json (RFC 9457).
HubAnswer Problem(const Status& status, const std::string& path);

class HubApi {
 public:
  // The resource version in a cache, which tells a call that waits when to look again; "": it has none.
  using Seen = std::function<std::string(const std::string& ns, const std::string& name)>;
  // All outlive it. Beyond `max_waiters` a call that would wait is answered at once, with Retry-After.
  HubApi(kube::Client& client, HubAccess& access, Seen seen, int max_waiters)
      : client_(client), access_(access), seen_(std::move(seen)), max_waiters_(max_waiters) {}
  HubAnswer Answer(const HubRequest& request, std::stop_token stop);

 private:
  Result<HubAnswer> Do(const HubCall& call, const std::stop_token& stop);
  Result<HubAnswer> List(const HubCall& call, const kube::CallOptions& options);
  // The object after `call` was done to it, if it was not yet.
  Result<Json> SetState(const HubCall& call, const kube::CallOptions& options);
  bool IsDone(const HubCall& call, const Json& object) const;
  // Until IsDone, or call.wait is over; false: no place to wait.
  Result<bool> Wait(const HubCall& call, Json* object, const kube::CallOptions& options);

  kube::Client& client_;
  HubAccess& access_;
  const Seen seen_;
  const int max_waiters_;
  std::atomic<int> waiters_ = 0;
};

}  // namespace holdfast::controller
