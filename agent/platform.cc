#include "agent/platform.h"

#include <charconv>

#include "api/platform.h"
#include "base/file.h"

namespace holdfast::agent {
namespace {

constexpr size_t kMaxFeatureText = 300;

// "4.2.1" → {4, 2, 1}; what is no number ends it.
std::vector<int> Version(std::string_view text) {
  std::vector<int> parts;
  for (const char* at = text.data(); at < text.data() + text.size();) {
    int part = 0;
    const auto [end, error] = std::from_chars(at, text.data() + text.size(), part);
    if (error != std::errc()) break;
    parts.push_back(part);
    if (end == text.data() + text.size()) break;
    at = end + 1;
  }
  return parts;
}

}  // namespace

Json PlatformOf(Node& node, const Layout& layout, const JournalEntry& entry) {
  Json platform = node.Platform();
  int64_t count = 0;
  for (const JournalContainer& container : entry.containers) {
    Result<std::string> text = ReadFile(layout.Landing(entry.uid, entry.place) + "/" + container.name + "/gpu.json", 65536);
    Result<Json> gpu = text.ok() ? ParseJson(*text) : Result<Json>(text.status());
    if (!gpu.ok()) continue;  // it held none
    count += GetInt(*gpu, {"count"});
    platform["gpu"] = {{"product", GetString(*gpu, {"product"})}, {"count", count}, {"driver", GetString(*gpu, {"driver"})}};
  }
  return platform;
}

std::string Unfit(const api::Checkpoint& checkpoint, const Json& here) {
  const auto& there = checkpoint.status;
  const std::string arch = GetString(here, {"arch"}), features = GetString(here, {"cpuFeatures"}), criu = GetString(here, {"criu"}),
                    kernel = GetString(here, {"kernel"});
  if (!arch.empty() && !there.arch.empty() && arch != there.arch.view()) return "it is of " + there.arch.str() + ", and this node " + arch;
  const std::string missing = features.empty() ? "" : api::MissingFeatures(there.cpu_features, features);
  if (!missing.empty()) {
    return "this node's processor lacks what its processes may have begun to use: " + missing.substr(0, kMaxFeatureText) +
           " (status.platform.cpuFeatures)";
  }
  if (!api::KernelFits(there.kernel, kernel)) {
    return "its processes ran under kernel " + there.kernel.str() + ", and this node's, " + kernel +
           ", is of an older series: they may have begun to use what that lacks";
  }
  if (!criu.empty() && Version(criu) < Version(there.criu)) {
    return "it was made by CRIU " + there.criu.str() + ", and this node has " + criu + ": let its holdfast-agent be upgraded";
  }
  return "";
}

}  // namespace holdfast::agent
