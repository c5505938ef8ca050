#include "kube/refusal.h"

#include <algorithm>

#include "kube/api_error.h"

namespace holdfast::kube {
namespace {

constexpr std::string_view kTooLarge = "Too large resource version";

// Servers before 1.18.6 name it in a message only.
bool SaysTooLarge(const Json& status) {
  for (const Json& cause : GetArray(status, {"details", "causes"})) {
    if (GetString(cause, {"reason"}) == "ResourceVersionTooLarge" || GetString(cause, {"message"}) == kTooLarge) return true;
  }
  return GetString(status, {"reason"}) == "Timeout" && GetString(status, {"message"}).find(kTooLarge) != std::string::npos;
}

void ReadDetails(const Json& status, Refusal* refusal) {
  refusal->version_too_large = SaysTooLarge(status);
  refusal->internal = GetString(status, {"reason"}) == "InternalError";
  refusal->retry_after = std::chrono::seconds(std::clamp<int64_t>(GetInt(status, {"details", "retryAfterSeconds"}), 0, 3600));
}

}  // namespace

Refusal Refusal::FromResponse(const HttpResponse& response, std::string_view what) {
  Refusal refusal{.status = ApiError(response, what), .code = response.status};
  if (Result<Json> body = ParseJson(response.body); body.ok()) ReadDetails(*body, &refusal);
  if (auto after = RetryAfter(response)) refusal.retry_after = *after;
  return refusal;
}

Refusal Refusal::FromEvent(const Json& object, std::string_view what) {
  Refusal refusal{.status = StatusFromApi(object, 0, what)};
  refusal.code = static_cast<int>(std::clamp<int64_t>(GetInt(object, {"code"}), 0, 999));
  ReadDetails(object, &refusal);
  return refusal;
}

}  // namespace holdfast::kube
