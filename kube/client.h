// A Kubernetes client: verbs on resources, JSON in and out, errors as Status. Thread-safe. A 409 is kConflict (or kAlreadyExists when
// reason says so), 404 kNotFound (kFailedPrecondition when the server does not serve the kind at all), 410 kGone, 403 kPermissionDenied,
// 401 kUnauthenticated, 422 and 400 kInvalidArgument, 429 kResourceExhausted, 5xx kUnavailable; the message is the server's, and what to do
// about it where we know (api_error.h). Within the call's timeout and up to 10 times: GETs are retried after a network failure; every verb
// is retried after an answer 429 or 5xx with Retry-After, when the server says, but Evict not after 429. Nothing else is retried.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>

#include "kube/http.h"
#include "kube/resource.h"

namespace holdfast::kube {

enum class PatchType { kMerge, kJson, kApply };  // kApply: server-side apply

struct CallOptions {
  std::string subresource{};    // "status", …
  std::string field_manager{};  // required for kApply
  bool force = false;           // kApply: take over conflicting fields
  bool dry_run = false;
  Duration timeout = std::chrono::seconds(30);
  std::stop_token stop{};
};

struct Preconditions {
  std::string uid{}, resource_version{};  // empty: not checked
};

struct DeleteOptions {
  Preconditions preconditions{};
  std::optional<int64_t> grace_period_seconds{};
  std::string propagation_policy{};  // "", Background, Foreground, Orphan
};

struct ListOptions {
  std::string ns{};  // empty: all
  std::string label_selector{}, field_selector{};
};

class RuntimeMetrics;

class Client {
 public:
  // `metrics`, of the informers on this client, may be null, or outlives them. (request_metrics.h counts requests.)
  explicit Client(std::shared_ptr<Transport> transport, Clock& clock = Clock::Real(), RuntimeMetrics* metrics = nullptr);

  Result<Json> Get(const Resource& resource, const std::string& ns, const std::string& name, const CallOptions& options = {});
  // All of it in pages of 500, items only. For what is small: an informer reads lists item by item.
  Result<std::vector<Json>> List(const Resource& resource, const ListOptions& list, const CallOptions& options = {});
  Result<Json> Create(const Resource& resource, const std::string& ns, const Json& object, const CallOptions& options = {});
  Result<Json> Update(const Resource& resource, const std::string& ns, const std::string& name, const Json& object,
                      const CallOptions& options = {});
  Result<Json> Patch(const Resource& resource, const std::string& ns, const std::string& name, PatchType type, const Json& patch,
                     const CallOptions& options = {});
  Status Delete(const Resource& resource, const std::string& ns, const std::string& name, const DeleteOptions& del = {},
                const CallOptions& options = {});
  // policy/v1 Eviction. kResourceExhausted: refused for now by a PodDisruptionBudget or a webhook.
  Status Evict(const std::string& ns, const std::string& pod, const DeleteOptions& del, const CallOptions& options = {});
  // Any path: for /readyz, discovery and the like.
  Result<Json> Raw(const HttpRequest& request, const CallOptions& options = {});

  template <class T>
  Result<T> Get(const std::string& ns, const std::string& name, const CallOptions& options = {}) {
    HF_ASSIGN_OR_RETURN(Json object, Get(T::kResource, ns, name, options));
    return T::FromJson(object);
  }

  Transport& transport() { return *transport_; }
  Clock& clock() { return clock_; }
  RuntimeMetrics* metrics() { return metrics_; }

 private:
  std::shared_ptr<Transport> transport_;
  Clock& clock_;
  RuntimeMetrics* const metrics_;
};

}  // namespace holdfast::kube
