#include "api/idle.h"

#include <algorithm>

namespace holdfast::api {
namespace {

constexpr int64_t kMostMillis = 1'000'000;  // a thousand cores

}  // namespace

std::string IdleWatch::ToAnnotation() const {
  return DumpJson({{"after", FormatDuration(after)},
                   {"cpuBelowMillis", cpu_below_millis},
                   {"jupyter", jupyter},
                   {"gpuBelowPercent", gpu_below_percent}});
}

std::optional<Duration> ParseIdleAfter(std::string_view text) {
  const auto after = ParseDuration(text);
  if (!after || *after < kLeastIdle || *after > kMostIdle) return std::nullopt;
  return after;
}

std::optional<IdleWatch> IdleWatchOf(const kube::ObjectMeta& pod) {
  const std::string text = pod.Annotation(kIdleWatch);
  if (text.empty()) return std::nullopt;
  const auto json = ParseJson(text);
  if (!json.ok()) return std::nullopt;
  const auto after = ParseIdleAfter(GetString(*json, {"after"}));
  if (!after) return std::nullopt;
  return IdleWatch{*after, std::clamp<int64_t>(GetInt(*json, {"cpuBelowMillis"}, kDefaultCpuBelow), 1, kMostMillis),
                   GetBool(*json, {"jupyter"}),
                   static_cast<int>(std::clamp<int64_t>(GetInt(*json, {"gpuBelowPercent"}, kDefaultGpuBelow), 1, 100))};
}

}  // namespace holdfast::api
