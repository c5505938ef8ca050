// What the owner of a pod is told of its checkpoints: postStart hooks that run again, probes that do not wait for a dump.
#include "agent/caveats.h"

#include <gmock/gmock.h>

#include "executor_fixture.h"

namespace holdfast::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

kube::Pod With(const Json& more) {
  Json container = {{"name", "main"}, {"image", "i"}};
  container.update(more);
  return kube::Pod::FromJson({{"metadata", {{"name", "web"}}}, {"spec", {{"containers", Json::array({container})}}}});
}

std::string Reasons(const std::vector<Caveat>& caveats) {
  std::string all;
  for (const Caveat& caveat : caveats) all += caveat.reason + " ";
  return all;
}

TEST(Caveats, AreHooksThatRunAgainAndProbesThatDoNotWait) {
  const Json hook = {{"lifecycle", {{"postStart", {{"exec", {{"command", {"true"}}}}}}}}},
             quit = {{"lifecycle", {{"preStop", {{"exec", {{"command", {"true"}}}}}}}}},
             defaults = {{"livenessProbe", {{"httpGet", {{"port", 80}}}}}},
             tight = {{"livenessProbe", {{"failureThreshold", 1}, {"periodSeconds", 1}, {"timeoutSeconds", 1}}}},
             odd = {{"livenessProbe", {{"failureThreshold", -5}, {"periodSeconds", 0}}}};
  struct {
    const char* what;
    Json container;
    std::optional<Duration> frozen;
    const char* reasons;
  } const cases[] = {
      {"nothing", Json::object(), seconds(60), ""},
      {"a preStop hook", quit, seconds(60), ""},
      {"a postStart hook", hook, std::nullopt, "PostStartHook "},
      {"21 s, as Kubernetes has it where nothing is said", defaults, milliseconds(20'900), ""},
      {"a freeze that lasts as long", defaults, seconds(21), "LivenessProbe "},
      {"one failure is enough", tight, milliseconds(900), ""},
      {"one failure is enough, and it comes", tight, seconds(1), "LivenessProbe "},
      {"how long is not known", tight, std::nullopt, ""},
      {"numbers that the API does not take", odd, milliseconds(20'900), ""},
  };
  for (const auto& c : cases) EXPECT_EQ(Reasons(CaveatsOf(With(c.container), {{"main", "id"}}, c.frozen)), c.reasons) << c.what;
  EXPECT_EQ(Reasons(CaveatsOf(With(hook), {{"sidecar", "id"}}, seconds(1))), "") << "it is not in the checkpoint";
  const std::vector<Caveat> said = CaveatsOf(With(tight), {{"main", "id"}}, milliseconds(5200));
  ASSERT_EQ(said.size(), 1u);
  EXPECT_THAT(said[0].message, HasSubstr("container main"));
  EXPECT_THAT(said[0].message, HasSubstr("for 1.0 s"));
  EXPECT_THAT(said[0].message, HasSubstr("about 5.2 s"));
  EXPECT_THAT(said[0].message, HasSubstr("raise the probe's failureThreshold"));
}

TEST(Caveats, AFreezeIsEstimatedByTheLastOneElseByWhereItLands) {
  EXPECT_EQ(EstimateFreeze(0, Place::kMemory, nullptr), std::nullopt);
  EXPECT_EQ(EstimateFreeze(2ULL << 30, Place::kMemory, nullptr), seconds(2));
  EXPECT_EQ(EstimateFreeze(1000ULL << 20, Place::kDisk, nullptr), seconds(5));
  EXPECT_EQ(EstimateFreeze(1, Place::kDisk, nullptr), milliseconds(200));
  api::Checkpoint last;
  EXPECT_EQ(EstimateFreeze(2ULL << 30, Place::kMemory, &last), seconds(2)) << "it says nothing";
  last.status.memory_bytes = 1 << 20;
  last.status.frozen_ms = 100;
  EXPECT_EQ(EstimateFreeze(100ULL << 20, Place::kMemory, &last), seconds(10));
  EXPECT_LE(*EstimateFreeze(UINT64_MAX, Place::kDisk, &last), std::chrono::hours(24));
}

class CaveatsTest : public ExecutorTest {
 protected:
  CaveatsTest() {
    cluster.pods["default/web-0"]["spec"]["containers"][0]["lifecycle"]["postStart"] = {{"sleep", {{"seconds", 1}}}};
    cluster.pods["default/web-0"]["spec"]["containers"][0]["livenessProbe"] = {{"failureThreshold", 1}, {"timeoutSeconds", 1}};
    node.on_dump = [this](const std::string& landing) {
      told_before_the_freeze = TextOf("LivenessProbe");
      Dump(landing, true);
    };
    node.estimate = uint64_t{3} << 30;
  }
  std::string TextOf(const std::string& reason) const {
    for (const FakeCluster::Event& event : cluster.events) {
      if (event.about == "pod/web-0" && event.reason == reason) return event.note;
    }
    return "";
  }
  std::string told_before_the_freeze;
};

TEST_F(CaveatsTest, AreToldBeforeAnythingIsFrozenAndStandInTheCheckpoint) {
  Pump pump(clock);
  Drive();
  EXPECT_THAT(told_before_the_freeze, HasSubstr("livenessProbe"));
  EXPECT_THAT(TextOf("PostStartHook"), HasSubstr("runs again"));
  const api::Checkpoint ready = cluster.Seen();
  ASSERT_EQ(ready.status.phase, api::Phase::kReady) << Message();
  const api::Condition* said = kube::FindCondition(ready.status.conditions, api::kCaveats);
  ASSERT_NE(said, nullptr);
  EXPECT_EQ(said->status, "True");
  EXPECT_THAT(said->message.str(), HasSubstr("PostStartHook: container main"));
  EXPECT_EQ(said->message.str().find("LivenessProbe"), std::string::npos) << "it stood still for 0.81 s only";
}

TEST_F(CaveatsTest, AreNotToldOfEachCheckpointOfAWorkload) {
  api::Checkpoint last;
  const std::vector<Caveat> both = {{"PostStartHook", "container main has one"}, {"LivenessProbe", "container main has one"}};
  EXPECT_FALSE(ToldBefore(nullptr, both[0]));
  EXPECT_FALSE(ToldBefore(&last, both[0]));
  last.status.conditions = WithCaveats(last, {both[0]}, clock.Wall());
  EXPECT_TRUE(ToldBefore(&last, both[0]));
  EXPECT_FALSE(ToldBefore(&last, both[1]));
  last.status.conditions = WithCaveats(last, {}, clock.Wall());
  EXPECT_TRUE(last.status.conditions.empty());
}

}  // namespace
}  // namespace holdfast::agent
