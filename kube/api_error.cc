#include "kube/api_error.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <vector>

namespace holdfast::kube {
namespace {

constexpr size_t kMaxExcerptBytes = 300;
constexpr char kNoResource[] = "the server could not find the requested resource";

Code CodeFor(int http_status, std::string_view reason) {
  switch (http_status) {
    case 401:
      return Code::kUnauthenticated;
    case 403:
      return Code::kPermissionDenied;
    case 404:
      return Code::kNotFound;
    case 409:
      return reason == "AlreadyExists" ? Code::kAlreadyExists : Code::kConflict;
    case 410:
      return Code::kGone;
    case 429:
      return Code::kResourceExhausted;
    default:
      break;
  }
  if (http_status >= 500) return Code::kUnavailable;
  return http_status >= 400 ? Code::kInvalidArgument : Code::kInternal;  // we follow no redirect
}

// A 404 about one object says which; one about the whole resource does not.
bool NamesAnObject(const Json& status) {
  return GetString(status, {"kind"}) == "Status" &&
         (!GetString(status, {"details", "name"}).empty() || GetString(status, {"message"}) != kNoResource);
}

// "checkpoints.holdfast.dev" of "GET /apis/holdfast.dev/v1alpha1/namespaces/ns/checkpoints/name"; "" for the core group and for anything
// else.
std::string ResourceInPath(std::string_view what) {
  std::vector<std::string_view> parts;
  size_t at = what.find("/apis/");
  if (at == std::string_view::npos) return "";
  for (at += strlen("/apis/"); at <= what.size();) {
    const size_t end = std::min(what.find('/', at), what.size());
    parts.push_back(what.substr(at, end - at));
    at = end + 1;
  }
  const size_t plural = parts.size() > 4 && parts[2] == "namespaces" ? 4 : 2;
  return parts.size() > plural ? std::string(parts[plural]) + "." + std::string(parts[0]) : "";
}

std::string NotServed(std::string_view what) {
  const std::string resource = ResourceInPath(what);
  if (resource.empty())
    return std::string(what) + ": the API server does not serve this kind of object: is it installed and enabled there?";
  return std::string(what) + ": the API server does not serve " + resource +
         ": is its CustomResourceDefinition installed? (kubectl get crd " + resource + ")";
}

// What the person who reads `message` can do, as " (…)", or "".
std::string Advice(const HttpResponse& response, const std::string& message) {
  if (response.status == 401) {
    return " (" +
           (response.hint.empty() ? "the API server does not accept our token or certificate: is it expired, or of another cluster?"
                                  : response.hint) +
           ")";
  }
  // Admission and quotas say "forbidden" too, but not this.
  if (response.status == 403 && message.find("User \"") != std::string::npos && message.find(" cannot ") != std::string::npos) {
    return " (allow it with a Role or ClusterRole that is bound to this user)";
  }
  return "";
}

}  // namespace

Status StatusFromApi(const Json& status, int http_status, std::string_view what) {
  int code = http_status != 0 ? http_status : static_cast<int>(std::clamp<int64_t>(GetInt(status, {"code"}), 0, 999));
  std::string reason = GetString(status, {"reason"});
  std::string message = GetString(status, {"message"});
  if (message.empty()) {
    message = std::string(what) + ": HTTP " + std::to_string(code);
    if (!reason.empty()) message += " " + reason;
  }
  return {CodeFor(code, reason), std::move(message)};
}

Status ApiError(const HttpResponse& response, std::string_view what) {
  Result<Json> json = ParseJson(response.body);
  const bool is_status = json.ok() && json->is_object();
  if (response.status == 404 && !NamesAnObject(is_status ? *json : Json())) return {Code::kFailedPrecondition, NotServed(what)};
  Status status = StatusFromApi(is_status ? *json : Json::object(), response.status, what);
  std::string message = status.message();
  if (!is_status) {
    std::string excerpt = response.body.substr(0, kMaxExcerptBytes);
    std::replace_if(
        excerpt.begin(), excerpt.end(), [](unsigned char c) { return c < 0x20; }, ' ');
    if (!excerpt.empty()) message += ": " + excerpt;
  }
  return {status.code(), message + Advice(response, message)};
}

std::optional<Duration> RetryAfter(const HttpResponse& response) {
  auto found = response.headers.find("retry-after");
  if (found == response.headers.end()) return std::nullopt;
  int64_t seconds = 0;
  const std::string& text = found->second;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds < 0) return std::nullopt;
  return std::chrono::seconds(std::min<int64_t>(seconds, 3600));
}

}  // namespace holdfast::kube
