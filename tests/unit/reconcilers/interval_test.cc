#include "reconcilers/interval/step.h"

#include <gtest/gtest.h>

#include "tests/unit/reconcilers/world.h"

namespace holdfast::reconcilers::interval {
namespace {

using api::Phase;
using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using namespace reconcilers::testing;  // NOLINT(google-build-using-namespace)

World Running(const std::string& interval = "10m") {
  World w;
  kube::Pod pod = WebPod();
  pod.meta.creation_timestamp = FormatTime(kStart);
  w.pod = Share(pod);
  kube::Node node = ReadyNode();
  node.ready = true;
  w.node = Share(node);
  w.protection.on = true;
  w.protection.policy = Share(api::RestorePolicy::FromJson({{"spec", {{"triggers", {{"interval", interval}}}}}}));
  return w;
}

api::Checkpoint Taken(int at, Phase phase = Phase::kReady) {
  api::Checkpoint c = InPhase(phase);
  c.meta.name = "interval-" + std::to_string(at);
  c.meta.creation_timestamp = FormatTime(At(at));
  c.spec.final = false;
  c.spec.trigger = api::Trigger::kInterval;
  c.status.frozen_ms = 500;
  if (c.done()) c.status.completed_at = FormatTime(At(at + 2));
  return c;
}

// What happens from `from` on, in virtual time: the seconds after kStart at which checkpoints are asked for. Each takes 2 s and ends as
// `outcome` says.
std::vector<int> Simulate(World w, int until, Phase outcome = Phase::kReady) {
  std::vector<int> asked;
  for (int now = 0; now < until;) {
    const Step step = Next(w, At(now));
    if (step.create) {
      asked.push_back(now);
      w.own.push_back(Share(Taken(now, outcome)));
    }
    if (!step.again) break;
    now += std::max<int>(1, static_cast<int>(std::chrono::ceil<seconds>(*step.again).count()));
  }
  return asked;
}

TEST(Interval, OfAGroupFollowsOneMemberAlone) {
  World w = Running();
  w.opener = "web-a";
  EXPECT_FALSE(Simulate(w, 3600).empty());
  w.opener = "web-0";
  EXPECT_TRUE(Simulate(w, 3600).empty());
}

TEST(Interval, ComesAsOftenAsThePolicySays) {
  const std::vector<int> asked = Simulate(Running(), 3600);
  ASSERT_GE(asked.size(), 5u);
  EXPECT_GE(asked[0], 300);
  EXPECT_LE(asked[0], 600) << "the first one within an interval";
  for (size_t i = 1; i < asked.size(); ++i) EXPECT_NEAR(asked[i] - asked[i - 1], 600, 2);
}

TEST(Interval, PodsThatBeganTogetherAreNotFrozenTogether) {
  std::set<int> first;
  for (int i = 0; i < 20; ++i) {
    World w = Running();
    kube::Pod pod = *w.pod;
    pod.meta.uid = "uid-" + std::to_string(i);
    w.pod = Share(pod);
    first.insert(Simulate(w, 700).at(0));
  }
  EXPECT_GE(first.size(), 15u);
}

TEST(Interval, ASecondLookAtTheSameWorldAsksForTheSameName) {
  World w = Running();
  w.own = {Share(Taken(0))};
  const Step once = Next(w, At(601)), again = Next(w, At(660));
  ASSERT_TRUE(once.create && again.create);
  EXPECT_EQ(once.ordinal, again.ordinal);
  w.own.push_back(Share(Taken(660)));
  EXPECT_GT(Next(w, At(1300)).ordinal, once.ordinal);
}

struct Never {
  const char* what;
  void (*change)(World*);
};
template <class T, class Fn>
void Change(std::shared_ptr<const T>* object, Fn fn) {
  T copy = **object;
  fn(&copy);
  *object = Share(copy);
}
const Never kNever[] = {
    {"no policy asks for it", [](World* w) { w->protection.policy = Share(api::RestorePolicy()); }},
    {"not protected", [](World* w) { w->protection.on = false; }},
    {"not running", [](World* w) { Change(&w->pod, [](kube::Pod* p) { p->phase = "Pending"; }); }},
    {"being deleted", [](World* w) { Change(&w->pod, [](kube::Pod* p) { p->meta.deletion_timestamp = "2026-06-01T12:00:00Z"; }); }},
    {"under plain runc", [](World* w) { Change(&w->pod, [](kube::Pod* p) { p->runtime_class = ""; }); }},
    {"its node does not answer", [](World* w) { Change(&w->node, [](kube::Node* n) { n->ready = false; }); }},
    {"its node is gone", [](World* w) { w->node = nullptr; }},
    {"one is under way", [](World* w) { w->own.push_back(Share(Taken(0, Phase::kStoring))); }},
    {"it is being drained", [](World* w) { w->own.push_back(Share(InPhase(Phase::kDumping))); }},
    {"it waits for its drain", [](World* w) { w->own.push_back(Share(WebDrain())); }},
    {"it is kept frozen", [](World* w) { w->own.push_back(Share(InPhase(Phase::kReady))); }},
    {"the node is busy", [](World* w) { w->busy = 1; }},
};

TEST(Interval, NeverWhere) {
  World fine = Running();
  fine.own = {Share(Taken(-2000))};
  ASSERT_TRUE(Next(fine, At(700)).create);
  for (const Never& never : kNever) {
    World w = fine;
    never.change(&w);
    EXPECT_FALSE(Next(w, At(700)).create) << never.what;
  }
}

TEST(Interval, AFailureIsTriedAgainSoonerThanAWholeInterval) {
  const std::vector<int> asked = Simulate(Running("4h"), 5 * 3600, Phase::kFailed);
  ASSERT_GE(asked.size(), 2u);
  EXPECT_NEAR(asked[1] - asked[0], 1802, 5) << "an eighth of the interval";
}

TEST(Interval, WhatCannotBeCheckpointedIsNotTriedAllTheTime) {
  World w = Running("1h");
  api::Checkpoint failed = Taken(0, Phase::kFailed);
  failed.status.conditions = {{"Ready", "False", api::reason::kUnsupported, "io_uring", FormatTime(At(2)), 1}};
  w.own = {Share(failed)};
  EXPECT_FALSE(Next(w, At(3500)).create);
  EXPECT_TRUE(Next(w, At(3603)).create);
}

TEST(Interval, AutoFollowsYoung) {
  EXPECT_EQ(YoungInterval(seconds(1), hours(2)), std::chrono::duration_cast<Duration>(seconds(120)));
  EXPECT_NEAR(std::chrono::duration<double>(YoungInterval(seconds(20), hours(2))).count(), 536.7, 0.1);
  EXPECT_EQ(YoungInterval(Duration(0), hours(24)), kShortest) << "a checkpoint that costs nothing";
  EXPECT_EQ(YoungInterval(hours(5), hours(9999)), kLongest);
}

TEST(Interval, AutoIsShorterWhereNodesLiveShorter) {
  World on_demand = Running("auto"), spot = Running("auto");
  Change(&spot.node, [](kube::Node* n) { n->meta.labels["karpenter.sh/capacity-type"] = "spot"; });
  for (World* w : {&on_demand, &spot}) w->own = {Share(Taken(0))};  // frozen for 0.5 s
  auto due = [](const World& w) { return std::chrono::duration<double>(*Next(w, At(1)).again).count() + 1; };
  EXPECT_NEAR(due(on_demand), std::sqrt(2 * 0.5 * 30 * 86400), 1);
  EXPECT_NEAR(due(spot), std::sqrt(2 * 0.5 * 86400), 1);
}

TEST(Interval, KnowsSpotNodesByLabelOrTaint) {
  kube::Node node = ReadyNode();
  EXPECT_FALSE(IsSpot(node));
  node.meta.labels["eks.amazonaws.com/capacityType"] = "ON_DEMAND";
  EXPECT_FALSE(IsSpot(node));
  node.taint_keys = {"kubernetes.azure.com/scalesetpriority"};
  EXPECT_TRUE(IsSpot(node));
}

}  // namespace
}  // namespace holdfast::reconcilers::interval
