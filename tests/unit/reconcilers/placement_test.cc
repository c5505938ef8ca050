#include "reconcilers/claim/placement.h"

#include <gmock/gmock.h>

#include "api/platform.h"

namespace holdfast::reconcilers::claim {
namespace {

NodePtr MakeNode(const std::string& name, const std::string& features) {
  Json node = {{"metadata", {{"name", name}, {"labels", {{api::kNodeReady, "ready"}}}}}};
  if (!features.empty()) {
    node["metadata"]["labels"][api::kCpuSet] = api::FeatureSet(features);
    node["metadata"]["annotations"][api::kCpuFeatures] = features;
  }
  return std::make_shared<const kube::Node>(kube::Node::FromJson(node));
}

api::Checkpoint Needing(const char* features) {
  return api::Checkpoint::FromJson({{"status", {{"platform", {{"cpuFeatures", features}}}}}});
}

Json Terms(const Placement& placement) {
  return GetArray(placement.affinity, {"nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"});
}

Json Avoiding(const std::string& features) {
  return {{"key", api::kCpuSet}, {"operator", "NotIn"}, {"values", Json::array({api::FeatureSet(features)})}};
}

TEST(Placement, NodesThatHaveAllOfItAreAllowed) {
  const std::vector<NodePtr> nodes = {MakeNode("a", "avx avx2"), MakeNode("b", "avx avx2 avx512f"), MakeNode("c", "")};
  EXPECT_TRUE(PlacementFor(Json::object(), Needing("avx avx2"), nodes).affinity.is_null());
  EXPECT_TRUE(PlacementFor(Json::object(), Needing(""), nodes).affinity.is_null()) << "not known, as of an older agent's";
}

TEST(Placement, NodesThatLackSomeOfItAreAvoided) {
  const Placement placement =
      PlacementFor(Json::object(), Needing("avx avx2"), {MakeNode("a", "avx avx2"), MakeNode("b", "avx"), MakeNode("b2", "avx")});
  EXPECT_EQ(Terms(placement), Json::array({{{"matchExpressions", Json::array({Avoiding("avx")})}}}));
  EXPECT_EQ(placement.why, "");
}

TEST(Placement, ThePodsOwnAffinitiesAreAddedTo) {
  const Json zone = {{"key", "zone"}, {"operator", "In"}, {"values", {"z1"}}}, field = {{"key", "metadata.name"}};
  const Json terms = Json::array({{{"matchExpressions", Json::array({zone})}}, {{"matchFields", Json::array({field})}}});
  Json pod;
  pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] = terms;
  const Json written = Terms(PlacementFor(pod, Needing("avx2"), {MakeNode("a", "avx2"), MakeNode("b", "avx")}));
  ASSERT_EQ(written.size(), 2u);
  EXPECT_EQ(written[0], Json({{"matchExpressions", Json::array({zone, Avoiding("avx")})}}));
  EXPECT_EQ(written[1], Json({{"matchFields", Json::array({field})}, {"matchExpressions", Json::array({Avoiding("avx")})}}));
}

TEST(Placement, WhereNoNodeHasItTheReasonNamesWhatIsMissing) {
  const Placement placement = PlacementFor(Json::object(), Needing("avx avx2"), {MakeNode("a", "avx"), MakeNode("b", "sse")});
  EXPECT_EQ(Terms(placement)[0]["matchExpressions"][0]["values"].size(), 2u);
  EXPECT_THAT(placement.why, testing::HasSubstr("lacks avx"));
}

}  // namespace
}  // namespace holdfast::reconcilers::claim
