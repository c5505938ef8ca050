#include "reconcilers/claim/placement.h"

#include <map>

#include "api/platform.h"

namespace holdfast::reconcilers::claim {
namespace {

constexpr size_t kMaxSets = 100;         // kinds of processors in a cluster
constexpr size_t kMaxTerms = 1000;       // of somebody's affinity
constexpr size_t kMaxFeatureText = 200;  // in an event

}  // namespace

Placement PlacementFor(const Json& pod, const api::Checkpoint& checkpoint, const std::vector<NodePtr>& nodes) {
  Placement out;
  const std::string needs = checkpoint.status.cpu_features;
  if (needs.empty()) return out;
  std::map<std::string, std::string> unfit;  // the set of a processor → what it lacks
  std::string lacks;
  size_t fit = 0;
  for (const NodePtr& node : nodes) {
    // A node whose agent does not name them yet is not ruled out: the agent there looks, too.
    const std::string has = node->meta.Annotation(api::kCpuFeatures);
    const auto set = node->meta.labels.find(api::kCpuSet);
    const std::string missing = has.empty() || set == node->meta.labels.end() ? "" : api::MissingFeatures(needs, has);
    if (missing.empty()) {
      ++fit;
    } else if (unfit.size() < kMaxSets && unfit.emplace(set->second, missing).second) {
      lacks = node->meta.name + " lacks " + missing.substr(0, kMaxFeatureText);
    }
  }
  if (unfit.empty()) return out;
  if (fit == 0) out.why = "no node has what it may have begun to use of its processor: " + lacks;
  Json sets = Json::array();
  for (const auto& [set, missing] : unfit) sets.push_back(set);
  const Json rule = {{"key", api::kCpuSet}, {"operator", "NotIn"}, {"values", sets}};
  Json terms = Json::array();
  for (const Json& term :
       GetArray(pod, {"spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"})) {
    if (terms.size() >= kMaxTerms) return {};
    terms.push_back(term);
    if (!terms.back()["matchExpressions"].is_array()) terms.back()["matchExpressions"] = Json::array();
    terms.back()["matchExpressions"].push_back(rule);
  }
  if (terms.empty()) terms.push_back({{"matchExpressions", Json::array({rule})}});
  out.affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] = terms;
  return out;
}

}  // namespace holdfast::reconcilers::claim
