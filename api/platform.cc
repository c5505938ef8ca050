#include "api/platform.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <optional>
#include <set>

#include "base/hash.h"

namespace holdfast::api {
namespace {

std::set<std::string_view> Words(std::string_view text) {
  std::set<std::string_view> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) words.insert(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

std::optional<std::pair<int, int>> Series(std::string_view release) {
  const char *at = release.data(), *end = at + release.size();
  int major = 0, minor = 0;
  const auto first = std::from_chars(at, end, major);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.') return std::nullopt;
  if (std::from_chars(first.ptr + 1, end, minor).ec != std::errc() || major < 0 || minor < 0) return std::nullopt;
  return std::pair(major, minor);
}

}  // namespace

std::string MissingFeatures(std::string_view needs, std::string_view has) {
  const std::set<std::string_view> there = Words(has);
  std::string missing;
  for (std::string_view feature : Words(needs)) {
    if (!there.contains(feature)) missing += (missing.empty() ? "" : " ") + std::string(feature);
  }
  return missing;
}

std::string FeatureSet(std::string_view features) {
  if (features.empty()) return "";
  std::array<char, 17> text;
  snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(Fnv1a(features)));
  return text.data();
}

std::string KernelSeries(std::string_view release) {
  const auto series = Series(release);
  return series ? std::to_string(series->first) + "." + std::to_string(series->second) : "";
}

bool KernelFits(std::string_view then, std::string_view now) {
  const auto before = Series(then), here = Series(now);
  return !before || !here || *here >= *before;
}

}  // namespace holdfast::api
