// What an HTTP answer that is not 2xx means.
#pragma once

#include <optional>

#include "base/json.h"
#include "kube/http.h"

namespace holdfast::kube {

// The Status that a metav1.Status stands for; `http_status` 0: its own code. `what` names the request when the server gave no message.
Status StatusFromApi(const Json& status, int http_status, std::string_view what);
// The same for an answer, with advice where we have some: refused credentials, a verb that RBAC forbids, a kind that the server does not
// serve. The latter is kFailedPrecondition and not kNotFound, lest somebody take it for an object that is gone. `what` is best "GET
// /apis/group/version/…", from which the missing CustomResourceDefinition is named.
Status ApiError(const HttpResponse& response, std::string_view what);
// From the Retry-After header in seconds, at most an hour; nothing when absent.
std::optional<Duration> RetryAfter(const HttpResponse& response);

}  // namespace holdfast::kube
