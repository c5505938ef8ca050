#include "api/platform.h"

#include <array>
#include <cstdio>
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

}  // namespace holdfast::api
