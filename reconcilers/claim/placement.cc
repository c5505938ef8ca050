#include "reconcilers/claim/placement.h"

#include <set>

#include "api/platform.h"

namespace holdfast::reconcilers::claim {
namespace {

constexpr size_t kMaxKinds = 100;        // of processors, and of kernels, in a cluster
constexpr size_t kMaxTerms = 1000;       // of somebody's affinity
constexpr size_t kMaxFeatureText = 200;  // in an event

std::string LabelOf(const kube::Node& node, const char* label) {
  const auto found = node.meta.labels.find(label);
  return found == node.meta.labels.end() ? "" : found->second.str();
}

// Nodes that are avoided, by what a label of theirs says.
struct Avoid {
  const char* label;
  std::set<std::string> values{};

  bool Add(const kube::Node& node, bool unfit) {  // whether it is one more kind
    return unfit && values.size() < kMaxKinds && values.insert(LabelOf(node, label)).second;
  }
};

// A node whose agent does not name it yet is not ruled out: the agent there looks, too.
std::string FeaturesMissing(const api::Checkpoint& checkpoint, const kube::Node& node) {
  const std::string has = node.meta.Annotation(api::kCpuFeatures);
  return has.empty() || LabelOf(node, api::kCpuSet).empty() ? "" : api::MissingFeatures(checkpoint.status.cpu_features, has);
}

std::string OlderKernel(const api::Checkpoint& checkpoint, const kube::Node& node) {
  const std::string kernel = LabelOf(node, api::kKernel);
  return api::KernelFits(checkpoint.status.kernel, kernel) ? "" : kernel;
}

}  // namespace

Placement PlacementFor(const Json& pod, const api::Checkpoint& checkpoint, const std::vector<NodePtr>& nodes) {
  Placement out;
  Avoid processors{api::kCpuSet}, kernels{api::kKernel};
  std::string lacks;
  size_t fit = 0;
  for (const NodePtr& node : nodes) {
    const std::string features = FeaturesMissing(checkpoint, *node), kernel = OlderKernel(checkpoint, *node);
    if (features.empty() && kernel.empty()) ++fit;
    if (processors.Add(*node, !features.empty())) lacks = node->meta.name + " lacks " + features.substr(0, kMaxFeatureText);
    if (kernels.Add(*node, !kernel.empty()))
      lacks = node->meta.name + " has kernel " + kernel + ", and it ran under " + checkpoint.status.kernel.str();
  }
  if (processors.values.empty() && kernels.values.empty()) return out;
  if (fit == 0) out.why = "no node has what it may have begun to use of its processor and kernel: " + lacks;
  Json rules = Json::array();
  for (const Avoid* avoid : {&processors, &kernels}) {
    if (!avoid->values.empty()) rules.push_back({{"key", avoid->label}, {"operator", "NotIn"}, {"values", Json(avoid->values)}});
  }
  Json terms = Json::array();
  for (const Json& term :
       GetArray(pod, {"spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"})) {
    if (terms.size() >= kMaxTerms) return {};
    terms.push_back(term);
    if (!terms.back()["matchExpressions"].is_array()) terms.back()["matchExpressions"] = Json::array();
    for (const Json& rule : rules) terms.back()["matchExpressions"].push_back(rule);
  }
  if (terms.empty()) terms.push_back({{"matchExpressions", rules}});
  out.affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] = terms;
  return out;
}

}  // namespace holdfast::reconcilers::claim
