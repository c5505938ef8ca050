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

NodePtr WithKernel(const NodePtr& node, const std::string& series) {
  kube::Node copy = *node;
  copy.meta.labels[api::kKernel] = series;
  return std::make_shared<const kube::Node>(std::move(copy));
}

TEST(Placement, NodesWithAnOlderKernelAreAvoided) {
  api::Checkpoint c = Needing("avx");
  c.status.kernel = "6.10.3-generic";
  const NodePtr same = WithKernel(MakeNode("a", "avx"), "6.10"), newer = WithKernel(MakeNode("b", "avx"), "7.0"),
                old = WithKernel(MakeNode("c", "avx"), "6.9"), unknown = MakeNode("d", "avx"),
                poor = WithKernel(MakeNode("e", "sse"), "5.15");
  EXPECT_TRUE(PlacementFor(Json::object(), c, {same, newer, unknown}).affinity.is_null());
  const Json rule = {{"key", api::kKernel}, {"operator", "NotIn"}, {"values", {"6.9"}}};
  Placement placement = PlacementFor(Json::object(), c, {same, old});
  EXPECT_EQ(Terms(placement), Json::array({{{"matchExpressions", Json::array({rule})}}}));
  EXPECT_EQ(placement.why, "");
  placement = PlacementFor(Json::object(), c, {same, old, poor});
  ASSERT_EQ(Terms(placement)[0]["matchExpressions"].size(), 2u) << "both, and a node is to satisfy both";
  EXPECT_EQ(Terms(placement)[0]["matchExpressions"][1]["values"], Json({"5.15", "6.9"}));
  placement = PlacementFor(Json::object(), c, {old});
  EXPECT_THAT(placement.why, testing::HasSubstr("c has kernel 6.9, and it ran under 6.10.3-generic"));
  c.status.kernel = "";
  EXPECT_TRUE(PlacementFor(Json::object(), c, {same, old}).affinity.is_null()) << "not known";
}

}  // namespace
}  // namespace holdfast::reconcilers::claim
