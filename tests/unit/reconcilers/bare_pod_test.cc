// A pod that nothing owns sleeps by its deletion, and is made again of what its SuspendedWorkload keeps.
#include <gtest/gtest.h>

#include "reconcilers/suspendedworkload/manifest.h"
#include "reconcilers/suspendedworkload/step.h"
#include "tests/unit/reconcilers/world.h"

namespace holdfast::reconcilers::suspendedworkload {
namespace {

using api::Phase;
using api::SuspendPhase;
using namespace reconcilers::testing;  // NOLINT(google-build-using-namespace)

constexpr char kName[] = "suspend-lab-uid-a";

api::SuspendedWorkload Object(bool suspended = true) {
  api::SuspendedWorkload s = SleeperOfWeb(suspended);
  s.spec.target_api_version = "v1";
  s.spec.target_kind = "Pod";
  s.spec.target_name = "lab";
  return s;
}

kube::Pod Lab(const std::string& uid = "uid-a") {
  kube::Pod pod = WebPod("lab", uid);
  pod.meta.owners.clear();
  pod.meta.resource_version = "77";
  return pod;
}

api::Checkpoint Kept(Phase phase) {
  api::Checkpoint c = InPhase(phase, "lab");
  c.meta.name = kName;
  c.spec.trigger = api::Trigger::kSuspend;
  return c;
}

// What is seen where the pod is this one, or there is none.
World Seen(api::SuspendedWorkload object, const kube::Pod* pod) {
  World w;
  w.object = Share(std::move(object));
  w.target = AsWorkload(*w.object, pod);
  w.protection = {true, Share(api::RestorePolicy()), ""};
  w.bare_pods = true;
  if (pod != nullptr) w.members = {{Share(*pod), {"Pod", "lab", pod->meta.uid, "", ""}, Share(ReadyNode()), {}}};
  if (!w.object->status.checkpoints.empty()) w.kept = {Share(Kept(Phase::kReady))};
  return w;
}

api::SuspendedWorkload In(SuspendPhase phase, bool durable, bool suspended = true) {
  api::SuspendedWorkload object = Object(suspended);
  object.status.phase = phase;
  object.status.checkpoints = {{"lab", "uid-a", "", kName}};
  object.status.attempt.started_at = FormatTime(kStart);
  object.status.replicas = 1;
  object.status.durable = durable;
  if (durable) object.status.sealed_pod = "sealed";
  return object;
}

std::string PhaseIn(const Step& step) { return GetString(step.patch, {"status", "phase"}); }
std::string ReasonIn(const Step& step) { return GetString(step.patch["status"]["conditions"].at(0), {"reason"}); }
std::string MessageIn(const Step& step) { return GetString(step.patch["status"]["conditions"].at(0), {"message"}); }

TEST(BarePod, IsAWorkloadOfOneForAsLongAsItIsThereOrKept) {
  const kube::Pod pod = Lab();
  const api::SuspendedWorkload awake = Object(), asleep = In(SuspendPhase::kSuspended, true);
  EXPECT_EQ(AsWorkload(awake, nullptr), nullptr);
  EXPECT_EQ(AsWorkload(awake, &pod)->replicas, 1);
  EXPECT_FALSE(api::AsleepMark(AsWorkload(awake, &pod)->meta));
  ASSERT_NE(AsWorkload(asleep, nullptr), nullptr);
  EXPECT_EQ(AsWorkload(asleep, nullptr)->replicas, 0);
  EXPECT_EQ(AsWorkload(asleep, nullptr)->meta.uid, "uid-a");
  EXPECT_TRUE(api::AsleepMark(AsWorkload(asleep, nullptr)->meta));
  EXPECT_EQ(AsWorkload(asleep, &pod)->replicas, 1) << "it is not deleted yet";
  kube::Pod ending = pod;
  ending.meta.deletion_timestamp = "2026-06-01T12:00:00Z";
  EXPECT_EQ(AsWorkload(asleep, &ending)->replicas, 0);
  EXPECT_EQ(AsWorkload(awake, &ending)->replicas, 1) << "somebody else deletes it, and nothing of it is kept";
  ending.meta.uid = "uid-other";
  EXPECT_EQ(AsWorkload(asleep, &ending)->replicas, 1) << "another pod of its name";
  const api::SuspendedWorkload unsealed = [] {
    api::SuspendedWorkload s = In(SuspendPhase::kSuspending, true);
    s.status.sealed_pod = "";
    return s;
  }();
  EXPECT_EQ(AsWorkload(unsealed, nullptr), nullptr);
}

TEST(BarePod, IsNotTouchedUnlessTheOperatorAllowsItAndNothingOwnsIt) {
  kube::Pod pod = Lab();
  World w = Seen(Object(), &pod);
  EXPECT_EQ(PhaseIn(Next(w, At(0))), "Suspending");
  w.bare_pods = false;
  EXPECT_EQ(ReasonIn(Next(w, At(0))), "Unsupported");
  EXPECT_NE(MessageIn(Next(w, At(0))).find("suspend.barePods"), std::string::npos);
  kube::OwnerReference owner;
  owner.kind = "ReplicaSet";
  owner.name = "web-1";
  pod.meta.owners = {owner};
  EXPECT_NE(MessageIn(Next(Seen(Object(), &pod), At(0))).find("belongs to ReplicaSet web-1"), std::string::npos);
}

TEST(BarePod, IsDeletedOnlyWhenItIsStoredAndWhatItIsMadeOfIsKept) {
  const kube::Pod pod = Lab();
  World w = Seen(In(SuspendPhase::kSuspending, false), &pod);
  w.sealed = Result<std::string>("of the pod");
  Step step = Next(w, At(5));
  ASSERT_EQ(step.action, Action::kPatchStatus);
  EXPECT_TRUE(step.live);
  EXPECT_EQ(step.patch["status"]["durable"], true);
  EXPECT_EQ(step.patch["status"]["sealedPod"], "of the pod");

  step = Next(Seen(In(SuspendPhase::kSuspending, true), &pod), At(6));
  ASSERT_EQ(step.action, Action::kEndPod);
  EXPECT_TRUE(step.live);
  EXPECT_EQ(step.pod->meta.uid, "uid-a");
  EXPECT_EQ(step.pod->meta.resource_version, "77");

  w.sealed = Status(Code::kPermissionDenied, "Secret holdfast-system/holdfast-seal");
  step = Next(w, At(5));
  EXPECT_EQ(GetString(step.patch, {"status", "attempt", "reason"}), "NotKept");
  EXPECT_FALSE(step.patch["status"].contains("durable"));
}

TEST(BarePod, SleepsOnceItIsGone) {
  kube::Pod pod = Lab();
  pod.meta.deletion_timestamp = "2026-06-01T12:00:06Z";
  EXPECT_NE(MessageIn(Next(Seen(In(SuspendPhase::kSuspending, true), &pod), At(7))).find("is ending"), std::string::npos);
  const Step step = Next(Seen(In(SuspendPhase::kSuspending, true), nullptr), At(8));
  EXPECT_EQ(PhaseIn(step), "Suspended");
}

TEST(BarePod, IsMadeAgainFromItsCheckpoint) {
  EXPECT_EQ(PhaseIn(Next(Seen(In(SuspendPhase::kSuspended, true, false), nullptr), At(60))), "Resuming");
  World w = Seen(In(SuspendPhase::kResuming, true, false), nullptr);
  Step step = Next(w, At(61));
  ASSERT_EQ(step.action, Action::kMakePod);
  EXPECT_TRUE(step.live);
  EXPECT_EQ(step.checkpoint, kName);
  w.kept = {nullptr};
  EXPECT_EQ(Next(w, At(61)).checkpoint, "") << "somebody deleted its Checkpoint: it starts cold";

  const kube::Pod next = Lab("uid-b");
  w = Seen(In(SuspendPhase::kResuming, true, false), &next);
  api::Checkpoint claimed = Kept(Phase::kReady);
  claimed.status.claim = api::Claim{"lab", "uid-b", FormatTime(At(62))};
  claimed.status.restores = {{"lab", "node-a", FormatTime(At(64)), "Restored", "", 0.5}};
  w.kept = {Share(claimed)};
  step = Next(w, At(65));
  EXPECT_EQ(PhaseIn(step), "Running");
  EXPECT_TRUE(step.patch["status"]["sealedPod"].is_null());
  EXPECT_EQ(step.patch["status"]["durable"], false);
  EXPECT_EQ(step.notice->reason, "Resumed");
}

TEST(BarePod, ThatWentOnAndWasDeletedIsNotMadeASecondTime) {
  World w = Seen(In(SuspendPhase::kResuming, true, false), nullptr);
  api::Checkpoint claimed = Kept(Phase::kReady);
  claimed.status.claim = api::Claim{"lab", "uid-b", FormatTime(At(62))};
  claimed.status.restores = {{"lab", "node-a", FormatTime(At(64)), "Restored", "", 0.5}};
  w.kept = {Share(claimed)};
  EXPECT_EQ(PhaseIn(Next(w, At(70))), "Running");
}

TEST(BarePod, ThatSomebodyMadeAnewHasTheLastWord) {
  const kube::Pod other = Lab("uid-b");
  const Step step = Next(Seen(In(SuspendPhase::kSuspended, true), &other), At(60));
  EXPECT_EQ(PhaseIn(step), "Resuming");
  EXPECT_EQ(ReasonIn(step), "Overridden");
  EXPECT_NE(MessageIn(step).find("was made anew while it slept"), std::string::npos);
}

TEST(BarePod, ThatIsDeletedBesideUsAfterItWasStoredSleepsToo) {
  EXPECT_EQ(PhaseIn(Next(Seen(In(SuspendPhase::kSuspending, true), nullptr), At(5))), "Suspended");
  EXPECT_EQ(GetString(Next(Seen(In(SuspendPhase::kSuspending, false), nullptr), At(5)).patch, {"status", "attempt", "reason"}),
            "TargetMissing");
}

TEST(Manifest, IsWhatTheUserGaveAndNothingOfWhatWasAddedToIt) {
  const Json live = *ParseJson(R"({
    "apiVersion": "v1", "kind": "Pod",
    "metadata": {"name": "lab", "namespace": "ns", "uid": "u", "resourceVersion": "9", "creationTimestamp": "2026-06-01T12:00:00Z",
      "labels": {"app": "lab"}, "finalizers": ["example.com/keep"], "managedFields": [{}],
      "annotations": {"mine": "1", "holdfast.dev/protect": "true", "holdfast.dev/restore": "c", "holdfast.dev/restore-options": "{}",
        "holdfast.dev/from-checkpoint": "c", "holdfast.dev/idle-watch": "{}", "holdfast.dev/resumed-by": "nb"}},
    "spec": {"nodeName": "node-a", "runtimeClassName": "holdfast", "schedulingGates": [{"name": "g"}], "ephemeralContainers": [{"name": "debug"}],
      "initContainers": [{"name": "holdfast-wait", "image": "h"}, {"name": "setup", "image": "s"}],
      "containers": [{"name": "main", "image": "i", "env": [{"name": "A", "value": "b"}]}],
      "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "holdfast.dev/cpu-set", "operator": "NotIn", "values": ["x"]}]}]}}},
      "tolerations": [{"operator": "Exists"}]},
    "status": {"phase": "Running"}})");
  const Json expected = *ParseJson(R"({
    "apiVersion": "v1", "kind": "Pod",
    "metadata": {"name": "lab", "namespace": "ns", "labels": {"app": "lab"}, "finalizers": ["example.com/keep"],
      "annotations": {"mine": "1", "holdfast.dev/protect": "true"}},
    "spec": {"runtimeClassName": "holdfast", "initContainers": [{"name": "setup", "image": "s"}],
      "containers": [{"name": "main", "image": "i", "env": [{"name": "A", "value": "b"}]}],
      "tolerations": [{"operator": "Exists"}]}})");
  EXPECT_EQ(ManifestOf(live), expected);
  EXPECT_EQ(ManifestOf(ManifestOf(live)), expected);
  Json made = expected;
  made["metadata"]["annotations"]["holdfast.dev/resumed-by"] = "nb";
  EXPECT_EQ(ToMake(expected, "nb", ""), made);
  made["metadata"]["annotations"]["holdfast.dev/from-checkpoint"] = "c-1";
  made["spec"]["schedulingGates"] = {{{"name", "holdfast.dev/claim"}}};
  EXPECT_EQ(ToMake(expected, "nb", "c-1"), made);
}

TEST(Manifest, KeepsTheUsersOwnAffinity) {
  const auto with = [](const char* terms) {
    return *ParseJson(std::string(R"({"spec": {"affinity": {"podAffinity": {}, "nodeAffinity": {
      "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": )") +
                      terms + "}}}}}");
  };
  const Json live = with(R"([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]},
                                                   {"key": "holdfast.dev/cpu-set", "operator": "NotIn", "values": ["x"]}]}])");
  const Json users = with(R"([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}])");
  EXPECT_EQ(ManifestOf(live)["spec"], users["spec"]);
}

TEST(Manifest, OfWhatIsNoPodIsStillOne) {
  for (const char* text : {"null", "[]", "{}", R"({"metadata": 1, "spec": []})", R"({"metadata": {"annotations": "x"}})"}) {
    const Json manifest = ManifestOf(*ParseJson(text));
    EXPECT_EQ(GetString(ToMake(manifest, "nb", "c"), {"metadata", "annotations", "holdfast.dev/from-checkpoint"}), "c") << text;
  }
}

}  // namespace
}  // namespace holdfast::reconcilers::suspendedworkload
