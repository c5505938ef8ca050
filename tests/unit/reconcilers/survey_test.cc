#include "reconcilers/restorepolicy/survey.h"

#include <gtest/gtest.h>

#include "reconcilers/restorepolicy/status.h"
#include "tests/unit/reconcilers/world.h"

namespace holdfast::reconcilers::restorepolicy {
namespace {

using api::Phase;
using namespace reconcilers::testing;  // NOLINT(google-build-using-namespace)

class SurveyTest : public ::testing::Test {
 protected:
  FakeView view_;
  api::Checkpoint c_ = InPhase(Phase::kReady);  // final, of web-a
  void SetUp() override { view_.AddWeb({{api::kProtect, "true"}}); }

  Subject Only(int seconds = 60) {
    view_.checkpoints = {Share(c_)};
    Seen seen = Survey(view_, {"default"}, 0, At(seconds));
    EXPECT_EQ(seen.subjects.size(), 1u);
    return seen.subjects.at(0);
  }
  void Claim(const std::string& pod, const std::string& outcome = "") {
    c_.status.claim = api::Claim{pod, "uid-" + pod, FormatTime(At(20))};
    c_.status.restores.clear();
    if (!outcome.empty()) c_.status.restores = {{pod, "node-b", FormatTime(At(30)), outcome, "", 0.5}};
  }
  PodPtr Pod(const std::string& name, const std::string& phase, bool gated = false) {
    kube::Pod pod = WebPod(name, "uid-" + name);
    pod.phase = phase;
    if (gated) pod.scheduling_gates = {api::kClaimGate};
    return Share(pod);
  }
};

TEST_F(SurveyTest, AWorkloadIsKindNameAndOrdinal) {
  EXPECT_EQ(Only().workload, "Deployment/web");
  EXPECT_TRUE(Only().workload_exists);
  c_.status.owner = {"StatefulSet", "db", "uid-db", "h", "2"};
  EXPECT_EQ(Only().workload, "StatefulSet/db/2");
  EXPECT_FALSE(Only().workload_exists);
  c_.status.owner = {"Pod", "lonely", "uid-a", "", ""};
  EXPECT_FALSE(Only().workload_exists);
  kube::Pod lonely = WebPod("lonely", "another-uid");
  lonely.meta.owners.clear();
  view_.pods = {Share(lonely)};
  EXPECT_TRUE(Only().workload_exists) << "made anew under its name";
  c_.status.owner = {"Rollout", "canary", "uid-r", "", ""};
  EXPECT_FALSE(Only().workload_exists);
  kube::Pod canary = WebPod("canary-1", "uid-c");
  canary.meta.owners[0].kind = "Rollout";
  canary.meta.owners[0].name = "canary";
  view_.pods = {Share(canary)};
  EXPECT_TRUE(Only().workload_exists) << "of a kind that we do not know, its pods tell";
  c_.status.owner = {};
  EXPECT_EQ(Only().workload, "Pod/web-a") << "failed before it was known whose it was";
}

TEST_F(SurveyTest, AClaimHoldsUntilItsPodRuns) {
  EXPECT_FALSE(Only().in_use);
  Claim("web-b");
  EXPECT_TRUE(Only().in_use) << "until the claim is given up";
  view_.pods = {Pod("web-b", "Pending")};
  EXPECT_TRUE(Only().in_use);
  Claim("web-b", "Failed");
  EXPECT_TRUE(Only().in_use) << "it may be tried again";
  view_.pods = {Pod("web-b", "Running")};
  EXPECT_FALSE(Only().in_use);
  EXPECT_EQ(Only().heir_uid, "uid-web-b");
  Claim("web-b");
  view_.pods = {Pod("web-b", "Failed")};
  EXPECT_TRUE(Only().in_use) << "it never said what became of it";
  Claim("web-b", "Restored");
  EXPECT_FALSE(Only().in_use);
  view_.pods.clear();
  EXPECT_FALSE(Only().in_use);
}

TEST_F(SurveyTest, AThawedPodsCheckpointIsItsPast) {
  view_.pods = {Share(WebPod())};
  EXPECT_TRUE(Only().good);
  EXPECT_TRUE(Only().holds_pod) << "it is frozen";
  c_.status.claim = api::Claim{"web-a", "uid-a", FormatTime(At(20))};
  EXPECT_FALSE(Only().good);
  EXPECT_TRUE(Only().spent);
  EXPECT_EQ(Only().heir_uid, "");
  EXPECT_TRUE(Only().holds_pod) << "evictions are answered from it";
  EXPECT_FALSE(Only(2 * 3600).holds_pod);
  c_ = InPhase(Phase::kFailed);
  EXPECT_TRUE(Only().holds_pod);
  EXPECT_FALSE(Only(2 * 3600).holds_pod);
}

TEST_F(SurveyTest, AFinalOneIsAwaitedWhileItsWorkloadHasThatTemplate) {
  EXPECT_TRUE(Only().awaited);
  view_.pods = {Pod("web-b", "Pending", true)};
  EXPECT_TRUE(Only().awaited);
  kube::Pod newer = WebPod("web-c", "uid-c");
  newer.meta.labels["pod-template-hash"] = "h2";
  view_.pods = {Share(newer)};
  EXPECT_FALSE(Only().awaited) << "pods of another template cannot take it";
  view_.pods.clear();
  view_.workloads.clear();
  EXPECT_FALSE(Only().awaited) << "nobody will come";
}

// Hole 12: what a drain has left, and nobody has claimed, is not kept for ever because a pod might come one day.
TEST_F(SurveyTest, AFinalOneOfAWorkloadThatHasAllItsPodsIsAwaitedForAWeek) {
  constexpr int kWeek = 7 * 24 * 3600;
  view_.pods = {Pod("web-b", "Running")};
  EXPECT_TRUE(Only(kWeek).awaited) << "it may be scaled up once more";
  EXPECT_FALSE(Only(kWeek + 60).awaited);
  view_.pods.clear();
  EXPECT_TRUE(Only(10 * kWeek).awaited) << "one replica, no pod";
  view_.pods = {Pod("web-b", "Pending", true)};
  EXPECT_TRUE(Only(10 * kWeek).awaited) << "this one may take it";
}

TEST_F(SurveyTest, WhatASuspendedWorkloadHoldsIsAwaitedWhateverBecameOfTheWorkload) {
  c_.spec.trigger = api::Trigger::kSuspend;
  view_.workloads.clear();
  EXPECT_FALSE(Only().awaited);
  api::SuspendedWorkload s;
  s.meta.ns = "default";
  s.meta.name = "nb";
  s.status.checkpoints = {{"web-a", "uid-a", "", c_.meta.name}};
  view_.suspended = {Share(s)};
  EXPECT_TRUE(Only().awaited);
  EXPECT_TRUE(Only().workload_exists) << "no orphan";
  Claim("web-b");
  EXPECT_FALSE(Only().awaited) << "it was given away";
}

TEST_F(SurveyTest, AnIntervalOneIsAwaitedWhileItsWorkloadLacksAPod) {
  c_.spec.final = false;
  c_.spec.trigger = api::Trigger::kInterval;
  EXPECT_TRUE(Only().awaited) << "one replica, no pod";
  view_.pods = {Pod("web-b", "Running")};
  EXPECT_FALSE(Only().awaited);
  view_.pods = {Pod("web-b", "Pending", true)};
  EXPECT_TRUE(Only().awaited) << "it waits for this one, maybe";
  api::Checkpoint newer = c_;
  newer.meta.name = newer.meta.uid = "newer";
  newer.status.completed_at = FormatTime(At(30));
  view_.checkpoints = {Share(c_), Share(newer)};
  const Seen seen = Survey(view_, {"default"}, 0, At(60));
  EXPECT_FALSE(seen.subjects[0].awaited);
  EXPECT_TRUE(seen.subjects[1].awaited);
  c_.spec.trigger = api::Trigger::kManual;
  EXPECT_FALSE(Only().awaited) << "no pod takes it unasked";
  kube::Pod asks = WebPod("copy", "uid-copy");
  asks.scheduling_gates = {api::kClaimGate};
  asks.meta.annotations[api::kFromCheckpoint] = c_.meta.name;
  view_.pods = {Share(asks)};
  EXPECT_TRUE(Only().awaited) << "this one asks for it";
}

TEST_F(SurveyTest, ThePolicyIsWhatTheWorkloadFollowsNowElseWhatItFollowedThen) {
  EXPECT_EQ(Only().policy, "");
  c_.status.policy = "then";
  EXPECT_EQ(Only().policy, "") << "the annotation says the built-in one";
  api::RestorePolicy now;
  now.meta.ns = "default";
  now.meta.name = "now";
  now.spec.retention.keep_last = 7;
  view_.policies = {Share(now)};
  view_.AddWeb({{api::kPolicy, "now"}});
  EXPECT_EQ(Only().policy, "now") << "also without a pod";
  EXPECT_EQ(Survey(view_, {"default"}, 0, At(60)).policies["default/now"].keep_last, 7);
  view_.AddWeb({{api::kProtect, "false"}});
  EXPECT_EQ(Only().policy, "then") << "opting out changes nothing of what was made";
  view_.workloads.clear();
  EXPECT_EQ(Only().policy, "then");
}

TEST_F(SurveyTest, AMarkSaysSinceWhenItIsAnOrphan) {
  EXPECT_FALSE(Only().orphaned);
  c_.status.conditions.push_back({kOrphanedCondition, "True", "OwnerGone", "", FormatTime(At(40)), 1});
  EXPECT_EQ(Only().orphaned, At(40));
  c_.status.conditions.back().status = "False";
  EXPECT_FALSE(Only().orphaned);
}

TEST(Quota, IsTheNamespacesElseTheDefault) {
  FakeView view;
  EXPECT_EQ(QuotaOf(view, "default", 5), 5);
  kube::Namespace space;
  space.meta.name = "default";
  space.meta.annotations[api::kQuota] = "2Gi";
  view.namespaces = {Share(space)};
  EXPECT_EQ(QuotaOf(view, "default", 5), 2LL << 30);
  EXPECT_EQ(Survey(view, {"default"}, 5, At(0)).quotas["default"], 2LL << 30);
  space.meta.annotations[api::kQuota] = "plenty";
  view.namespaces = {Share(space)};
  std::string problem;
  EXPECT_EQ(QuotaOf(view, "default", 5, &problem), 5);
  EXPECT_NE(problem.find("plenty"), std::string::npos) << problem;
  space.meta.annotations[api::kQuota] = "0";
  view.namespaces = {Share(space)};
  EXPECT_TRUE(Survey(view, {"default"}, 5, At(0)).quotas.empty()) << "none";
}

TEST(PolicyStatus, SaysWhatGoesAndWhy) {
  FakeView view;
  view.AddWeb({{api::kPolicy, "p"}});
  api::RestorePolicy policy;
  policy.meta.ns = "default";
  policy.meta.name = "p";
  policy.spec.retention.keep_last = 1;
  policy.spec.retention.dry_run = true;
  for (int i = 0; i < 60; ++i) {
    api::Checkpoint c = InPhase(Phase::kReady, "web-a", "uid-a");
    c.meta.name = c.meta.uid = "c" + std::to_string(100 + i);
    c.spec.final = false;
    c.status.completed_at = FormatTime(At(i));
    view.checkpoints.push_back(Share(c));
  }
  for (bool dry : {true, false}) {
    policy.spec.retention.dry_run = dry;
    view.policies = {Share(policy)};
    const Plan plan = MakePlan(Survey(view, {"default"}, 0, At(100)), At(100));
    EXPECT_EQ(plan.drops.size(), dry ? 0u : 59u);
    const Json retention = StatusOf(view, policy, plan)["retention"];
    EXPECT_EQ(retention["kept"], 1);
    EXPECT_EQ(retention["keeps"][0]["checkpoint"], "c159");
    EXPECT_EQ(retention["deleted"], 59);
    EXPECT_EQ(retention["deletes"].size(), 50u) << "the CRD takes no more";
    EXPECT_EQ(retention["deletes"][0]["reason"], "Superseded");
    EXPECT_NE(retention["deletes"][0]["message"].get<std::string>().find("keepLast 1"), std::string::npos);
  }
}

}  // namespace
}  // namespace holdfast::reconcilers::restorepolicy
