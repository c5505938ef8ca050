// The few lines of a CRIU log that tell why it failed.
#pragma once

#include <string>
#include <string_view>

namespace holdfast::runtime {

// The last errors of the log at `path`, without time stamps, joined by "; "; at most 1 KiB. Empty when there is none.
std::string TellingLines(const std::string& path);
std::string TellingLinesOf(std::string_view log);

}  // namespace holdfast::runtime
