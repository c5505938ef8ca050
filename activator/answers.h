// What the activator itself answers over HTTP/1.1. Each is a whole response, after which the connection is closed. Pure.
#pragma once

#include <string>

#include "activator/sleeper.h"

namespace holdfast::activator {

// 503 with Retry-After and one line.
std::string UnavailableAnswer(const std::string& why);
// 503 with a page that waits: it asks kStatusPath how far it is, and loads anew when the workload answers.
std::string PageAnswer(const api::SuspendedWorkload& sleeper);
// 200 with JSON: {"workload", "namespace", "phase", "asleepSince", "message", "ready"}.
std::string StatusAnswer(const api::SuspendedWorkload& sleeper, bool reachable);
// 200: to what is not to wake it.
std::string IgnoredAnswer();
// 408: a head that did not come to its end in time.
std::string TooSlowAnswer();

}  // namespace holdfast::activator
