#include "kube/client.h"

#include <algorithm>
#include <charconv>

#include "kube/api_error.h"
#include "kube/own_writes.h"

namespace holdfast::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kPageSize = 500;
constexpr int kMaxRetries = 10;  // as client-go
constexpr size_t kMaxUnpagedListBytes = size_t{512} << 20;

std::string WriteQuery(const CallOptions& options, bool apply = false) {
  return UrlQuery(
      {{"fieldManager", options.field_manager}, {"force", apply && options.force ? "true" : ""}, {"dryRun", options.dry_run ? "All" : ""}});
}

Json DeleteBody(const DeleteOptions& del) {
  Json body = {{"apiVersion", "v1"}, {"kind", "DeleteOptions"}};
  if (!del.preconditions.uid.empty()) body["preconditions"]["uid"] = del.preconditions.uid;
  if (!del.preconditions.resource_version.empty()) body["preconditions"]["resourceVersion"] = del.preconditions.resource_version;
  if (del.grace_period_seconds) body["gracePeriodSeconds"] = *del.grace_period_seconds;
  if (!del.propagation_policy.empty()) body["propagationPolicy"] = del.propagation_policy;
  return body;
}

HttpRequest WithBody(std::string method, std::string path, const Json& body, std::string content_type = "application/json") {
  HttpRequest request;
  request.method = std::move(method);
  request.path = std::move(path);
  request.headers["content-type"] = std::move(content_type);
  request.body = DumpJson(body);
  return request;
}

// How long the server asks us to wait before the same request may be tried again; nothing when the answer is one to hand on.
std::optional<Duration> RetryOnAnswer(const HttpResponse& response, bool retry_on_429) {
  const bool busy = response.status == 429 ? retry_on_429 : response.status >= 500 && response.status <= 599;
  if (!busy) return std::nullopt;
  std::optional<Duration> after = RetryAfter(response);
  if (after) after = std::max<Duration>(*after, milliseconds(100));
  return after;
}

// Sends until there is an answer to hand on, within options.timeout from now on.
Result<HttpResponse> SendWithRetries(Transport& transport, Clock& clock, HttpRequest request, const CallOptions& options,
                                     bool retry_on_429) {
  request.headers.try_emplace("accept", "application/json");
  const MonoTime deadline = clock.Mono() + options.timeout;
  Duration pause = milliseconds(100);
  for (int retries = 0;; ++retries) {
    request.timeout = std::max<Duration>(deadline - clock.Mono(), milliseconds(1));
    Result<HttpResponse> response = transport.Send(request, options.stop);
    std::optional<Duration> wait;
    if (response.ok()) {
      wait = RetryOnAnswer(*response, retry_on_429);
    } else if (response.status().code() == Code::kUnavailable && request.method == "GET") {
      wait = pause;
      pause = std::min<Duration>(pause * 2, seconds(2));
    }
    if (!wait || retries == kMaxRetries || clock.Mono() + *wait >= deadline) return response;
    if (!clock.Sleep(*wait, options.stop)) return Status(Code::kCancelled, request.method + " " + request.path + ": cancelled");
  }
}

Result<Json> Call(Transport& transport, Clock& clock, HttpRequest request, const CallOptions& options, bool retry_on_429 = true) {
  const std::string what = request.method + " " + request.path.substr(0, request.path.find('?'));
  Result<HttpResponse> response = SendWithRetries(transport, clock, std::move(request), options, retry_on_429);
  if (!response.ok()) return response.status();
  if (response->status < 200 || response->status > 299) return ApiError(*response, what);
  auto type = response->headers.find("content-type");
  // /readyz, /version and friends may answer in plain text.
  if (response->body.empty() || (type != response->headers.end() && type->second.starts_with("text/"))) return Json(response->body);
  Result<Json> json = ParseJson(response->body);
  if (!json.ok()) return Status(Code::kUnavailable, what + ": the server answered " + json.status().message());
  return json;
}

// A write of an object: the reconcile that made it will want to see it.
Result<Json> Write(Transport& transport, Clock& clock, HttpRequest request, const Resource& resource, const CallOptions& options) {
  Result<Json> written = Call(transport, clock, std::move(request), options);
  if (written.ok() && !options.dry_run) NoteWrite(resource, *written);
  return written;
}

}  // namespace

Client::Client(std::shared_ptr<Transport> transport, Clock& clock, RuntimeMetrics* metrics)
    : transport_(std::move(transport)), clock_(clock), metrics_(metrics) {}

Result<Json> Client::Get(const Resource& resource, const std::string& ns, const std::string& name, const CallOptions& options) {
  HttpRequest request;
  request.path = resource.Path(ns, name, options.subresource);
  return Call(*transport_, clock_, std::move(request), options);
}

Result<std::vector<Json>> Client::List(const Resource& resource, const ListOptions& list, const CallOptions& options) {
  std::vector<Json> items;
  int limit = kPageSize;
  for (std::string token;;) {
    HttpRequest request;
    request.path = resource.Path(list.ns) + UrlQuery({{"labelSelector", list.label_selector},
                                                      {"fieldSelector", list.field_selector},
                                                      {"limit", limit > 0 ? std::to_string(limit) : ""},
                                                      {"continue", token}});
    if (limit == 0) request.max_body_bytes = kMaxUnpagedListBytes;
    Result<Json> page = Call(*transport_, clock_, std::move(request), options);
    // A continue token outlives its snapshot only for some minutes. One list without pages cannot run into that again.
    if (!page.ok() && page.status().code() == Code::kGone && !token.empty() && limit > 0) {
      items.clear();
      limit = 0;
      token.clear();
      continue;
    }
    if (!page.ok()) return page.status();
    if (Json* more = const_cast<Json*>(Find(*page, {"items"})); more != nullptr && more->is_array()) {
      for (Json& item : *more) items.push_back(std::move(item));
    }
    token = GetString(*page, {"metadata", "continue"});
    if (token.empty()) return items;
  }
}

Result<Json> Client::Create(const Resource& resource, const std::string& ns, const Json& object, const CallOptions& options) {
  std::string name = options.subresource.empty() ? "" : GetString(object, {"metadata", "name"});
  const std::string path = resource.Path(ns, name, options.subresource) + WriteQuery(options);
  return Write(*transport_, clock_, WithBody("POST", path, object), resource, options);
}

Result<Json> Client::Update(const Resource& resource, const std::string& ns, const std::string& name, const Json& object,
                            const CallOptions& options) {
  const std::string path = resource.Path(ns, name, options.subresource) + WriteQuery(options);
  return Write(*transport_, clock_, WithBody("PUT", path, object), resource, options);
}

Result<Json> Client::Patch(const Resource& resource, const std::string& ns, const std::string& name, PatchType type, const Json& patch,
                           const CallOptions& options) {
  bool apply = type == PatchType::kApply;
  if (apply && options.field_manager.empty()) {
    return Status(Code::kInvalidArgument, "server-side apply of " + resource.plural + " " + name + " needs a field_manager");
  }
  const char* content_type = apply                      ? "application/apply-patch+yaml"
                             : type == PatchType::kJson ? "application/json-patch+json"
                                                        : "application/merge-patch+json";
  std::string path = resource.Path(ns, name, options.subresource) + WriteQuery(options, apply);
  return Write(*transport_, clock_, WithBody("PATCH", std::move(path), patch, content_type), resource, options);
}

Status Client::Delete(const Resource& resource, const std::string& ns, const std::string& name, const DeleteOptions& del,
                      const CallOptions& options) {
  std::string path = resource.Path(ns, name, options.subresource) + UrlQuery({{"dryRun", options.dry_run ? "All" : ""}});
  // The answer is the object while a finalizer or its grace holds it.
  return Write(*transport_, clock_, WithBody("DELETE", std::move(path), DeleteBody(del)), resource, options).status();
}

Status Client::Evict(const std::string& ns, const std::string& pod, const DeleteOptions& del, const CallOptions& options) {
  static const Resource kPods{"", "v1", "pods", "Pod", true};
  Json body = {{"apiVersion", "policy/v1"}, {"kind", "Eviction"}, {"metadata", {{"name", pod}, {"namespace", ns}}}};
  body["deleteOptions"] = DeleteBody(del);
  std::string path = kPods.Path(ns, pod, "eviction") + UrlQuery({{"dryRun", options.dry_run ? "All" : ""}});
  // Whoever evicts decides when to try again: meanwhile a pod may have to be thawed.
  return Call(*transport_, clock_, WithBody("POST", std::move(path), body), options, /*retry_on_429=*/false).status();
}

Result<Json> Client::Raw(const HttpRequest& request, const CallOptions& options) { return Call(*transport_, clock_, request, options); }

}  // namespace holdfast::kube
