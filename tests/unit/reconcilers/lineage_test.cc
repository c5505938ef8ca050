#include "reconcilers/lineage.h"

#include <gtest/gtest.h>

#include "reconcilers/restorepolicy/status.h"
#include "reconcilers/restorepolicy/survey.h"
#include "tests/unit/reconcilers/world.h"

namespace holdfast::reconcilers {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

TEST(Lineage, FollowsAReplicaSetToItsDeployment) {
  FakeView view;
  view.AddWeb({});
  const Lineage lineage = Trace(view, WebPod(), "default");
  EXPECT_EQ(lineage.owner.kind, "Deployment");
  EXPECT_EQ(lineage.owner.uid, "uid-web");
  EXPECT_EQ(lineage.owner.template_hash, "h1");
  EXPECT_EQ(lineage.parent_uid, "uid-rs");
  EXPECT_TRUE(lineage.complete);
}

TEST(Lineage, AnOwnerThatIsNotInTheCacheIsReadLiveAndElseUnknown) {
  FakeView view;
  const Lineage lineage = Trace(view, WebPod(), "default", std::chrono::seconds(1));
  EXPECT_FALSE(lineage.complete);
  EXPECT_EQ(view.live_reads, 1);
}

TEST(Lineage, NumbersPodsOfStatefulSetsAndIndexedJobs) {
  FakeView view;
  kube::Pod pod = WebPod("db-3", "uid-db3");
  pod.meta.owners[0].kind = "StatefulSet";
  pod.meta.labels["controller-revision-hash"] = "r1";
  EXPECT_EQ(Trace(view, pod, "default").owner.ordinal, "3");
  EXPECT_EQ(Trace(view, pod, "default").owner.template_hash, "r1");
  pod.meta.labels["apps.kubernetes.io/pod-index"] = "7";
  EXPECT_EQ(Trace(view, pod, "default").owner.ordinal, "7");
  pod.meta.owners[0].kind = "Job";
  pod.meta.annotations["batch.kubernetes.io/job-completion-index"] = "2";
  EXPECT_EQ(Trace(view, pod, "default").owner.ordinal, "2");
}

struct Case {
  const char* what;
  std::map<std::string, std::string> pod, owner, space;
  bool on;
  const char* problem;
};

TEST(Protection, TheNearestAnnotationWins) {
  const std::map<std::string, std::string> yes = {{api::kProtect, "true"}}, no = {{api::kProtect, "false"}};
  for (const Case& c : std::initializer_list<Case>{
           {"nothing", {}, {}, {}, false, ""},
           {"owner", {}, yes, {}, true, ""},
           {"namespace", {}, {}, yes, true, ""},
           {"owner against namespace", {}, no, yes, false, ""},
           {"pod against owner", no, yes, yes, false, ""},
           {"pod", yes, {}, {}, true, ""},
           {"maybe", {}, {{api::kProtect, "maybe"}}, yes, false, "\"maybe\""},
           {"yes", {{api::kProtect, "yes"}}, {}, {}, false, "write \"true\""},
           {"known policy", {}, {{api::kPolicy, "careful"}}, {}, true, ""},
           {"unknown policy", {}, {{api::kPolicy, "carefull"}}, {}, false, "no RestorePolicy of that name"},
           {"policy switched off", {}, {{api::kPolicy, "careful"}, {api::kProtect, "false"}}, {}, false, ""},
       }) {
    SCOPED_TRACE(c.what);
    FakeView view;
    view.AddWeb(c.owner);
    kube::Namespace space;
    space.meta.name = "default";
    space.meta.annotations = c.space;
    view.namespaces = {Share(space)};
    api::RestorePolicy careful;
    careful.meta.ns = "default";
    careful.meta.name = "careful";
    view.policies = {Share(careful)};
    kube::Pod pod = WebPod();
    pod.meta.annotations = c.pod;
    const Protection protection = ProtectionOf(view, pod, "default", Trace(view, pod, "default"));
    EXPECT_EQ(protection.on, c.on);
    ASSERT_NE(protection.policy, nullptr);
    EXPECT_EQ(protection.problem.empty(), *c.problem == '\0') << protection.problem;
    EXPECT_NE(protection.problem.find(c.problem), std::string::npos) << protection.problem;
  }
}

TEST(Protection, APolicysSelectorProtectsToo) {
  FakeView view;
  view.AddWeb({});
  api::RestorePolicy policy;
  policy.meta.ns = "default";
  policy.meta.name = "web";
  const Json selector = {{"matchLabels", {{"app", "web"}}}};
  policy.spec.selector = api::LabelSelector::FromJson(&selector);
  view.policies = {Share(policy)};
  EXPECT_EQ(ProtectionOf(view, WebPod(), "default", Trace(view, WebPod(), "default")).policy->meta.name, "web");
  const PolicyPtr web = view.policies[0];
  policy.meta.name = "all";
  for (const std::vector<PolicyPtr>& order : {std::vector<PolicyPtr>{web, Share(policy)}, std::vector<PolicyPtr>{Share(policy), web}}) {
    view.policies = order;
    EXPECT_EQ(ProtectionOf(view, WebPod(), "default", Trace(view, WebPod(), "default")).policy->meta.name, "all") << "the first by name";
  }
}

TEST(Protection, WhatMaySleepIsProtectedUnlessItSaysNo) {
  FakeView view;
  api::SuspendedWorkload s;
  s.meta.ns = "default";
  s.spec.target_kind = "Deployment";
  s.spec.target_name = "web";
  view.suspended = {Share(s)};
  auto protection = [&] {
    const kube::Pod pod = WebPod();
    return ProtectionOf(view, pod, "default", Trace(view, pod, "default"));
  };
  view.AddWeb({});
  EXPECT_TRUE(protection().on);
  kube::Namespace space;
  space.meta.name = "default";
  space.meta.annotations = {{api::kProtect, "false"}};
  view.namespaces = {Share(space)};
  EXPECT_TRUE(protection().on) << "the namespace's word is for those that nobody named";
  view.AddWeb({{api::kProtect, "false"}});
  EXPECT_FALSE(protection().on);
  view.AddWeb({});
  view.suspended.clear();
  EXPECT_FALSE(protection().on);
}

TEST(Protection, DaemonsNeverMove) {
  FakeView view;
  kube::Namespace space;
  space.meta.name = "default";
  space.meta.annotations = {{api::kProtect, "true"}};
  view.namespaces = {Share(space)};
  kube::Pod pod = WebPod();
  pod.meta.owners[0].kind = "DaemonSet";
  EXPECT_FALSE(ProtectionOf(view, pod, "default", Trace(view, pod, "default")).on);
}

TEST(WantedContainers, AreSplitAtCommas) {
  kube::Pod pod = WebPod();
  pod.meta.annotations[api::kContainers] = " a, b,,c ";
  EXPECT_EQ(WantedContainers(pod, {}), (std::vector<std::string>{"a", "b", "c"}));
}

TEST(PolicyStatus, CountsWhatIsProtectedAndSaysWhyTheRestIsNot) {
  FakeView view;
  view.AddWeb({{api::kPolicy, "p"}});
  api::RestorePolicy policy;
  policy.meta.ns = "default";
  policy.meta.name = "p";
  view.policies = {Share(policy)};
  view.nodes = {Share(ReadyNode())};
  kube::Pod old = WebPod("web-old", "uid-old");
  old.runtime_class = "";
  view.pods = {Share(WebPod()), Share(old)};
  view.checkpoints = {Share(InPhase(api::Phase::kReady))};
  const Json status =
      restorepolicy::StatusOf(view, policy, restorepolicy::MakePlan(restorepolicy::Survey(view, {"default"}, 0, At(60)), At(60)));
  EXPECT_EQ(status["matched"], 2);
  EXPECT_EQ(status["protected"], 1);
  EXPECT_EQ(status["unprotected"].at(0)["pod"], "web-old");
  EXPECT_EQ(status["lastCheckpoint"], "drain-web-a-uid-a");
  ASSERT_EQ(status["retention"]["kept"], 1);
  EXPECT_EQ(status["retention"]["keeps"][0]["reason"], "HoldsPod");
}

}  // namespace
}  // namespace holdfast::reconcilers
