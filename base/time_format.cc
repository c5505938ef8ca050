#include "base/time_format.h"

#include <time.h>

#include <charconv>
#include <cstdio>

namespace holdfast {
namespace {

std::string FormatSeconds(WallTime time, tm* parts) {
  time_t seconds = std::chrono::floor<std::chrono::seconds>(time.time_since_epoch()).count();
  gmtime_r(&seconds, parts);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", parts);
  return text;
}

struct Unit {
  std::string_view name;
  double nanoseconds;
};
// Longest names first, so that "ms" is not read as "m".
constexpr Unit kUnits[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"h", 3600e9}, {"m", 60e9}, {"s", 1e9}};

}  // namespace

std::string FormatTime(WallTime time) {
  tm parts;
  return FormatSeconds(time, &parts) + "Z";
}

std::string FormatMicroTime(WallTime time) {
  tm parts;
  const auto since = time.time_since_epoch();
  const auto micros = std::chrono::floor<std::chrono::microseconds>(since - std::chrono::floor<std::chrono::seconds>(since)).count();
  char fraction[16];
  snprintf(fraction, sizeof fraction, ".%06dZ", static_cast<int>(micros));
  return FormatSeconds(time, &parts) + fraction;
}

std::optional<WallTime> ParseTime(std::string_view text) {
  // strptime takes fewer digits and blanks too.
  constexpr std::string_view kShape = "dddd-dd-ddTdd:dd:dd";
  if (text.size() <= kShape.size() || text.size() > 64) return std::nullopt;
  for (size_t i = 0; i < kShape.size(); ++i) {
    if (kShape[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != kShape[i]) return std::nullopt;
  }
  tm parts{};
  std::string copy(text);
  const char* rest = strptime(copy.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (rest == nullptr) return std::nullopt;
  Duration fraction{0};
  if (*rest == '.') {
    ++rest;
    int64_t scale = 100000000;
    for (; *rest >= '0' && *rest <= '9'; ++rest, scale /= 10) fraction += Duration((*rest - '0') * scale);
  }
  if (*rest != 'Z' || rest[1] != '\0') return std::nullopt;
  // What nanoseconds in 64 bits can say: 1677 to 2262.
  if (parts.tm_year < 1678 - 1900 || parts.tm_year > 2261 - 1900) return std::nullopt;
  return WallTime(std::chrono::seconds(timegm(&parts))) + fraction;
}

std::optional<Duration> ParseDuration(std::string_view text) {
  if (text.empty()) return std::nullopt;
  if (text == "0") return Duration(0);
  double total = 0;
  while (!text.empty()) {
    double number = 0;
    if (text[0] < '0' || text[0] > '9') return std::nullopt;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
    if (error != std::errc()) return std::nullopt;
    text.remove_prefix(end - text.data());
    const Unit* found = nullptr;
    for (const Unit& unit : kUnits) {
      if (text.starts_with(unit.name)) {
        found = &unit;
        break;
      }
    }
    if (found == nullptr) return std::nullopt;
    text.remove_prefix(found->name.size());
    total += number * found->nanoseconds;
    if (total > 10.0 * 365 * 24 * 3600e9) return std::nullopt;
  }
  return Duration(static_cast<int64_t>(total));
}

std::string FormatDuration(Duration duration) {
  using std::chrono::duration_cast;
  if (duration < std::chrono::seconds(1)) {
    return std::to_string(duration_cast<std::chrono::milliseconds>(duration).count()) + "ms";
  }
  int64_t seconds = duration_cast<std::chrono::seconds>(duration).count();
  std::string text;
  if (seconds >= 3600) text += std::to_string(seconds / 3600) + "h";
  if (seconds % 3600 >= 60) text += std::to_string(seconds % 3600 / 60) + "m";
  if (seconds % 60 != 0 || text.empty()) text += std::to_string(seconds % 60) + "s";
  return text;
}

}  // namespace holdfast
