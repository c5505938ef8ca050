// RFC 3339 as the Kubernetes API writes it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace holdfast {

std::string FormatTime(WallTime time);       // metav1.Time: 2026-01-02T03:04:05Z
std::string FormatMicroTime(WallTime time);  // metav1.MicroTime: 2026-01-02T03:04:05.000006Z
std::optional<WallTime> ParseTime(std::string_view text);
// Go's duration syntax, as CRDs use it: "100s", "1h30m", "1.5s", "250ms". Nothing for malformed, negative or over 10 years.
std::optional<Duration> ParseDuration(std::string_view text);
std::string FormatDuration(Duration duration);  // "1m40s", "250ms"

}  // namespace holdfast
