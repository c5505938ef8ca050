#include "kube/api_error.h"

#include <algorithm>
#include <charconv>

namespace holdfast::kube {
namespace {

constexpr size_t kMaxExcerptBytes = 300;

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
  if (json.ok() && json->is_object()) return StatusFromApi(*json, response.status, what);
  std::string excerpt = response.body.substr(0, kMaxExcerptBytes);
  std::replace_if(
      excerpt.begin(), excerpt.end(), [](unsigned char c) { return c < 0x20; }, ' ');
  Status status = StatusFromApi(Json::object(), response.status, what);
  return excerpt.empty() ? status : Status(status.code(), status.message() + ": " + excerpt);
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
