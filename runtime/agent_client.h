// One question to the agent's socket, one answer.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/json.h"

namespace holdfast::runtime {

// kUnavailable when nobody listens, kDeadlineExceeded when there is no whole answer within `timeout`.
Result<Json> AskAgent(const std::string& socket_path, const Json& question, Duration timeout);

}  // namespace holdfast::runtime
