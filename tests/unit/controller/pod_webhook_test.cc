#include "controller/pod_webhook.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/reconcilers/world.h"

namespace holdfast::controller {
namespace {

using namespace reconcilers::testing;  // NOLINT(google-build-using-namespace)
using api::Phase;

class PodWebhookTest : public ::testing::Test {
 protected:
  PodWebhookTest() {
    view_.nodes = {Share(ReadyNode())};
    view_.AddWeb({{api::kProtect, "true"}});
  }

  static Json WebPodObject() {
    return {{"metadata",
             {{"generateName", "web-1-"},
              {"labels", {{"app", "web"}, {"pod-template-hash", "h1"}}},
              {"ownerReferences", {{{"kind", "ReplicaSet"}, {"name", "web-1"}, {"uid", "uid-rs"}, {"controller", true}}}}}},
            {"spec", {{"containers", {{{"name", "main"}, {"image", "i"}}}}}}};
  }
  kube::AdmissionResponse Ask(const Json& object, const std::string& operation = "CREATE") {
    kube::AdmissionRequest request;
    request.operation = operation;
    request.ns = "default";
    request.resource = kube::Pod::kResource;
    request.object = object;
    return PodWebhook(view_, ended_, options_, clock_).Handle(request);
  }
  Json Mutated(const Json& object) {
    const kube::AdmissionResponse response = Ask(object);
    EXPECT_TRUE(response.allowed);
    return response.patch.is_null() ? object : object.patch(response.patch);
  }
  static bool HasGate(const Json& pod) {
    const Json& gates = GetArray(pod, {"spec", "schedulingGates"});
    return std::any_of(gates.begin(), gates.end(), [](const Json& gate) { return gate["name"] == api::kClaimGate; });
  }

  FakeView view_;
  FakeClock clock_{At(500)};  // minutes after everything
  EndedPods ended_{clock_};
  PodWebhookOptions options_{"example/holdfast:1", "holdfast-wait", std::chrono::seconds(1)};
};

TEST_F(PodWebhookTest, GivesAProtectedPodTheRuntimeClassAndNothingElse) {
  const kube::AdmissionResponse response = Ask(WebPodObject());
  ASSERT_EQ(response.patch.size(), 1u) << response.patch;
  EXPECT_EQ(Mutated(WebPodObject())["spec"]["runtimeClassName"], "holdfast");
}

TEST_F(PodWebhookTest, APodJoinsTheGroupOfItsWorkloadUnlessItNamesOneItself) {
  view_.AddWeb({{api::kProtect, "true"}, {api::kMemberOf, "ring"}});
  Json pod = WebPodObject();
  EXPECT_EQ(Mutated(pod)["metadata"]["annotations"], Json({{api::kMemberOf, "ring"}}));
  pod["metadata"]["annotations"] = {{"keep", "me"}};
  EXPECT_EQ(Mutated(pod)["metadata"]["annotations"], Json({{"keep", "me"}, {api::kMemberOf, "ring"}}));
  pod["metadata"]["annotations"] = {{api::kMemberOf, "other"}};
  EXPECT_EQ(Mutated(pod)["metadata"]["annotations"], Json({{api::kMemberOf, "other"}}));
  view_.AddWeb({{api::kMemberOf, "ring"}});
  EXPECT_TRUE(Ask(WebPodObject()).patch.is_null()) << "what is not protected is in no group";
}

TEST_F(PodWebhookTest, LeavesOtherPodsAlone) {
  struct Case {
    const char* what;
    void (*change)(FakeView*, Json*);
  };
  const Case kCases[] = {
      {"not protected", [](FakeView* view, Json*) { view->AddWeb({}); }},
      {"no node ready", [](FakeView* view, Json*) { view->nodes.clear(); }},
      {"another runtime class", [](FakeView*, Json* pod) { (*pod)["spec"]["runtimeClassName"] = "kata"; }},
      {"user namespace", [](FakeView*, Json* pod) { (*pod)["spec"]["hostUsers"] = false; }},
      {"bound to a node", [](FakeView*, Json* pod) { (*pod)["spec"]["nodeName"] = "node-a"; }},
      {"gpu", [](FakeView*, Json* pod) { (*pod)["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 1; }},
      {"unknown owner", [](FakeView* view, Json*) { view->workloads.clear(); }},
  };
  for (const Case& c : kCases) {
    view_ = FakeView();
    view_.nodes = {Share(ReadyNode())};
    view_.AddWeb({{api::kProtect, "true"}});
    Json pod = WebPodObject();
    c.change(&view_, &pod);
    const kube::AdmissionResponse response = Ask(pod);
    EXPECT_TRUE(response.allowed) << c.what;
    EXPECT_TRUE(response.patch.is_null()) << c.what << response.patch;
  }
  EXPECT_TRUE(Ask(WebPodObject(), "UPDATE").patch.is_null());
}

TEST_F(PodWebhookTest, AnOwnerThatIsNotInTheCacheYetIsReadLive) {
  view_.workloads.clear();
  Ask(WebPodObject());
  EXPECT_EQ(view_.live_reads, 1);
}

TEST_F(PodWebhookTest, RemovesEveryRestoreAnnotationAlsoFromUnprotectedPods) {
  view_.AddWeb({});
  Json pod = WebPodObject();
  pod["metadata"]["annotations"] = {{api::kRestore, "stolen"}, {"holdfast.dev/restore-from~x/y", "z"}, {"keep", "me"}};
  EXPECT_EQ(Mutated(pod)["metadata"]["annotations"], Json({{"keep", "me"}}));
}

TEST_F(PodWebhookTest, ASuccessorWaitsBehindTheGateWithTheInitContainerFirst) {
  view_.checkpoints = {Share(InPhase(Phase::kReady))};
  Json pod = WebPodObject();
  pod["spec"]["initContainers"] = {{{"name", "theirs"}, {"image", "i"}}};
  pod["spec"]["schedulingGates"] = {{{"name", "theirs"}}};
  const Json mutated = Mutated(pod);
  EXPECT_TRUE(HasGate(mutated));
  EXPECT_EQ(mutated["spec"]["schedulingGates"].size(), 2u);
  ASSERT_EQ(mutated["spec"]["initContainers"].size(), 2u);
  const Json& wait = mutated["spec"]["initContainers"][0];
  EXPECT_EQ(wait["name"], "holdfast-wait");
  EXPECT_EQ(wait["image"], "example/holdfast:1");
  EXPECT_EQ(wait["securityContext"]["capabilities"]["drop"], Json({"ALL"}));
  EXPECT_FALSE(wait.contains("resources")) << "a BestEffort pod stays one";
}

TEST_F(PodWebhookTest, KubectlMeansTheContainerThatItMeantBeforeTheInitContainerCame) {
  constexpr const char* kDefault = "kubectl.kubernetes.io/default-container";
  view_.AddWeb({{api::kProtect, "true"}, {api::kMemberOf, "ring"}});
  view_.checkpoints = {Share(InPhase(Phase::kReady))};
  Json pod = WebPodObject();
  EXPECT_EQ(Mutated(pod)["metadata"]["annotations"], Json({{api::kMemberOf, "ring"}, {kDefault, "main"}}));
  pod["metadata"]["annotations"] = {{kDefault, "theirs"}};
  EXPECT_EQ(Mutated(pod)["metadata"]["annotations"][kDefault], "theirs");
}

TEST_F(PodWebhookTest, TheInitContainerKeepsTheQosClass) {
  view_.checkpoints = {Share(InPhase(Phase::kReady))};
  Json pod = WebPodObject();
  pod["spec"]["containers"][0]["resources"] = {{"requests", {{"cpu", "1"}}}, {"limits", {{"cpu", "1"}}}};
  const Json resources = Mutated(pod)["spec"]["initContainers"][0]["resources"];
  EXPECT_EQ(resources["requests"], resources["limits"]);
}

TEST_F(PodWebhookTest, GatesForEveryStateOfThePredecessor) {
  for (Phase phase :
       {Phase::kPending, Phase::kAssigned, Phase::kFreezing, Phase::kDumping, Phase::kStoring, Phase::kReady, Phase::kFailed}) {
    view_.checkpoints = {Share(InPhase(phase))};
    EXPECT_EQ(HasGate(Mutated(WebPodObject())), phase != Phase::kFailed) << api::PhaseName(phase);
  }
  view_.checkpoints = {Share(WebDrain())};  // not even seen by the controller: its owner is not known yet
  EXPECT_FALSE(HasGate(Mutated(WebPodObject())));
  view_.pods = {Share(WebPod())};
  EXPECT_TRUE(HasGate(Mutated(WebPodObject())));
  view_.checkpoints.clear();
  view_.pods.clear();
  EXPECT_FALSE(HasGate(Mutated(WebPodObject()))) << "the first one waits for nobody";
}

// Hole 21 of docs/faults.md: the cache may be behind the deletion that the request answers, and behind the checkpoint
// that has just become Ready.
TEST_F(PodWebhookTest, ACacheThatIsBehindLetsNobodyPastAPodThatMayHaveEnded) {
  view_.pods = {Share(WebPod())};
  EXPECT_TRUE(HasGate(Mutated(WebPodObject()))) << "its deletion is not in the cache yet";
  kube::Pod starting = WebPod();
  starting.phase = "Pending";
  view_.pods = {Share(starting)};
  EXPECT_FALSE(HasGate(Mutated(WebPodObject()))) << "it has no state that could be lost";
  view_.pods.clear();
  api::Checkpoint interval = InPhase(Phase::kStoring);
  interval.spec.final = false;
  interval.spec.trigger = api::Trigger::kInterval;
  view_.checkpoints = {Share(interval)};
  EXPECT_TRUE(HasGate(Mutated(WebPodObject()))) << "that it is Ready is not in the cache yet";
}

// Hole 21: nothing but that it was there says that it has a successor.
TEST_F(PodWebhookTest, ASuccessorWhosePredecessorIsGoneAlreadyIsGated) {
  const auto was = Share(WebPod());
  ended_.Saw(nullptr, was);
  clock_.Advance(std::chrono::minutes(5));
  EXPECT_FALSE(HasGate(Mutated(WebPodObject())));
  ended_.Saw(was, nullptr);
  EXPECT_TRUE(HasGate(Mutated(WebPodObject()))) << "the news of its checkpoint may still be on their way";
  Json other = WebPodObject();
  other["metadata"]["ownerReferences"][0]["uid"] = "uid-rs-2";
  EXPECT_FALSE(HasGate(Mutated(other)));
  clock_.Advance(reconcilers::kFollowsWithin + std::chrono::seconds(1));
  EXPECT_FALSE(HasGate(Mutated(WebPodObject())));
}

// Hole 21's last corner: evicted while no webhook answered, and gone before this one saw any pod.
TEST_F(PodWebhookTest, AWebhookThatHasJustBegunLetsNobodyPastWhoIsGoneAlready) {
  kube::Workload set = *view_.workloads.at("ReplicaSet/web-1");
  set.meta.creation_timestamp = FormatTime(At(400));
  view_.workloads["ReplicaSet/web-1"] = Share(set);
  ended_.Saw(nullptr, Share(WebPod("other")));
  EXPECT_TRUE(HasGate(Mutated(WebPodObject())));
  set.meta.creation_timestamp = FormatTime(At(500));
  view_.workloads["ReplicaSet/web-1"] = Share(set);
  EXPECT_FALSE(HasGate(Mutated(WebPodObject()))) << "there was none before";
  set.meta.creation_timestamp = FormatTime(At(400));
  view_.workloads["ReplicaSet/web-1"] = Share(set);
  clock_.Advance(std::chrono::seconds(31));
  EXPECT_FALSE(HasGate(Mutated(WebPodObject()))) << "whoever has gone since was seen";
}

TEST(EndedPods, AreThoseThatRanAndNoMoreThanSoMany) {
  FakeClock clock;
  EndedPods ended(clock);
  EXPECT_FALSE(ended.since().has_value());
  kube::Pod pending = WebPod("web-p", "uid-p"), other = WebPod("web-o", "uid-o"), quit = WebPod("web-q", "uid-q");
  pending.phase = "Pending";
  other.runtime_class = "";
  quit.phase = "Failed";
  quit.meta.deletion_timestamp = FormatTime(At(0));
  quit.container_statuses = {{.name = "main", .container_id = "containerd://c"}};
  for (const kube::Pod& pod : {pending, other, quit}) ended.Saw(Share(pod), nullptr);
  ASSERT_EQ(ended.Of("uid-rs").size(), 1u);
  EXPECT_EQ(ended.Of("uid-rs")[0]->meta.name, "web-q");
  ended.Saw(Share(WebPod("web-a", "uid-a")), Share(WebPod("web-a", "uid-b")));
  EXPECT_EQ(ended.Of("uid-rs").size(), 2u) << "one that was made anew under its name";
  for (int i = 0; i < 5000; ++i) ended.Saw(Share(WebPod("web-a", "uid-" + std::to_string(i))), nullptr);
  EXPECT_EQ(ended.Of("uid-rs").size(), 4096u);
}

// The request may come before the news of the deletion that it answers: whether the other one still lives is for the claim to find out.
TEST_F(PodWebhookTest, GatesForStateThatIsNotUsedThoughItsPodSeemsToLive) {
  api::Checkpoint given = InPhase(Phase::kReady);
  given.status.claim = api::Claim{"web-c", "uid-c", FormatTime(At(15))};
  view_.checkpoints = {Share(given)};
  kube::Pod claimant = WebPod("web-c", "uid-c");
  claimant.phase = "Pending";
  view_.pods = {Share(claimant)};
  EXPECT_TRUE(HasGate(Mutated(WebPodObject())));
  claimant.meta.deletion_timestamp = FormatTime(At(20));
  view_.pods = {Share(claimant)};
  EXPECT_TRUE(HasGate(Mutated(WebPodObject())));
  view_.pods.clear();
  EXPECT_TRUE(HasGate(Mutated(WebPodObject()))) << "the claim is dropped soon";
  given.status.restores = {{"web-c", "node-b", FormatTime(At(16)), "Restored", "", 0.5}};
  view_.checkpoints = {Share(given)};
  EXPECT_FALSE(HasGate(Mutated(WebPodObject())));
  claimant.meta.deletion_timestamp = {};
  view_.pods = {Share(claimant)};
  EXPECT_TRUE(HasGate(Mutated(WebPodObject()))) << "it has gone on from it; that it runs is not in the cache of pods yet";
  api::Checkpoint interval = InPhase(Phase::kReady);
  interval.spec.final = false;
  interval.spec.trigger = api::Trigger::kInterval;
  view_.checkpoints = {Share(interval)};
  view_.pods = {Share(WebPod())};
  EXPECT_TRUE(HasGate(Mutated(WebPodObject())));
}

TEST_F(PodWebhookTest, TheSuccessorOfAPodWhoseCheckpointJustFailedIsGatedToBeToldSo) {
  api::Checkpoint failed = InPhase(Phase::kFailed);
  failed.status.completed_at = FormatTime(At(400));
  view_.checkpoints = {Share(failed)};
  EXPECT_TRUE(HasGate(Mutated(WebPodObject())));
}

TEST_F(PodWebhookTest, ARequestForACheckpointGatesAlsoUnprotectedPods) {
  view_.AddWeb({});
  Json pod = WebPodObject();
  pod["metadata"]["annotations"][api::kFromCheckpoint] = "snap";
  const Json mutated = Mutated(pod);
  EXPECT_TRUE(HasGate(mutated));
  EXPECT_EQ(mutated["spec"]["runtimeClassName"], "holdfast");
}

TEST_F(PodWebhookTest, ABarePodThatSleepsAndIsMadeAnewGoesOn) {
  api::SuspendedWorkload sleeper = SleeperOfWeb(true);
  sleeper.spec.target_kind = "Pod";
  sleeper.spec.target_name = "lab";
  sleeper.status.phase = api::SuspendPhase::kSuspended;
  sleeper.status.checkpoints = {{"lab", "uid-lab", "", "suspend-lab"}};
  view_.suspended = {Share(sleeper)};
  api::Checkpoint kept = InPhase(Phase::kReady, "lab", "uid-lab");
  kept.meta.name = "suspend-lab";
  view_.checkpoints = {Share(kept)};
  const Json lab = {{"metadata", {{"name", "lab"}}}, {"spec", {{"containers", {{{"name", "main"}, {"image", "i"}}}}}}};
  const Json made = Mutated(lab);
  EXPECT_EQ(GetString(made, {"metadata", "annotations", api::kFromCheckpoint}), "suspend-lab");
  EXPECT_TRUE(HasGate(made));
  Json other = lab;
  other["metadata"]["name"] = "other";
  EXPECT_TRUE(Ask(other).patch.is_null());
  kept.status.claim = api::Claim{"lab", "uid-next", FormatTime(At(1))};
  view_.checkpoints = {Share(kept)};
  EXPECT_FALSE(HasGate(Mutated(lab))) << "its state is given away";
}

TEST_F(PodWebhookTest, WarnsAboutAnAnnotationThatMeansNothing) {
  view_.AddWeb({{api::kProtect, "maybe"}});
  const kube::AdmissionResponse response = Ask(WebPodObject());
  EXPECT_TRUE(response.patch.is_null());
  ASSERT_EQ(response.warnings.size(), 1u);
  EXPECT_NE(response.warnings[0].find("write \"true\" or \"false\""), std::string::npos);
}

TEST_F(PodWebhookTest, IsIdempotentWhenInvokedAgain) {
  view_.checkpoints = {Share(InPhase(Phase::kReady))};
  const Json once = Mutated(WebPodObject());
  EXPECT_EQ(Mutated(once), once);
}

TEST_F(PodWebhookTest, MalformedObjectsPass) {
  for (const Json& object :
       {Json(), Json(1), Json::array(), Json{{"metadata", 1}, {"spec", "x"}},
        Json{{"metadata", {{"annotations", {{"holdfast.dev/protect", 1}}}}}, {"spec", {{"containers", {1, {{"name", 2}}}}}}}}) {
    EXPECT_TRUE(Ask(object).allowed);
  }
}

TEST_F(PodWebhookTest, AnswersFast) {
  view_.checkpoints = {Share(InPhase(Phase::kReady))};
  const Json pod = WebPodObject();
  std::vector<double> times;
  for (int i = 0; i < 2000; ++i) {
    const auto start = std::chrono::steady_clock::now();
    Ask(pod);
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  printf("pod webhook, decision alone: p50 %.3f ms, p99 %.3f ms\n", times[1000], times[1980]);
}

}  // namespace
}  // namespace holdfast::controller
