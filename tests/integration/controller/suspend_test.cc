// Suspend and resume through a real API server: what users do while a workload sleeps, and what goes wrong on the way.
#include "tests/integration/controller/cluster.h"
#include "tests/integration/controller/sieve_transport.h"

namespace holdfast::testing {
namespace {

using std::chrono::seconds;

class SuspendTest : public ::testing::Test {
 protected:
  // A controller that sees this test's namespace alone, and answers the webhooks.
  void Start(bool agent_fails = false) {
    auto options = Replica::Options("suspend-of-" + ns_, cluster_.webhook_port(), ns_);
    options.leader_elect = false;
    options.bare_pods = bare_pods_;
    replica_ = std::make_unique<Replica>(std::make_shared<SieveTransport>(Replica::Connect(), ns_, Disturbance{}), options);
    ASSERT_TRUE(replica_->WaitReady());
    agent_ = std::make_unique<FakeAgent>(cluster_, ns_, agent_fails);
    owner_ = cluster_.MakeWorkload(ns_, "web", {{api::kProtect, "true"}});
    kube::CallOptions dry;
    dry.dry_run = true;
    ASSERT_TRUE(Eventually([&] {
      auto made = cluster_.MakePod(ns_, "probe", "web", owner_, Json::object(), dry);
      return made.ok() && GetString(*made, {"spec", "runtimeClassName"}) == "holdfast";
    }));
    hands_ = std::make_unique<FakeDeployment>(cluster_, ns_, owner_);
  }
  void Make(const std::string& state, const Json& more = Json::object(), const std::string& name = "nb") {
    Json spec = {{"targetRef", {{"apiVersion", "apps/v1"}, {"kind", "Deployment"}, {"name", "web"}}}, {"state", state}};
    spec.update(more);
    auto made = client().Create(
        api::SuspendedWorkload::kResource, ns_,
        {{"apiVersion", "holdfast.dev/v1alpha1"}, {"kind", "SuspendedWorkload"}, {"metadata", {{"name", name}}}, {"spec", spec}});
    ASSERT_TRUE(made.ok()) << made.status().ToString();
  }
  void Want(const std::string& state) {
    ASSERT_TRUE(client().Patch(api::SuspendedWorkload::kResource, ns_, "nb", kube::PatchType::kMerge, {{"spec", {{"state", state}}}}).ok());
  }
  void Scale(int64_t replicas) {
    kube::CallOptions scale;
    scale.subresource = "scale";
    ASSERT_TRUE(
        client().Patch(kube::Deployment::kResource, ns_, "web", kube::PatchType::kMerge, {{"spec", {{"replicas", replicas}}}}, scale).ok());
  }
  Json Status(const std::string& name = "nb") {
    return GetObject(client().Get(api::SuspendedWorkload::kResource, ns_, name).value_or(Json()), {"status"});
  }
  std::string Reason(const std::string& type = "Suspended", const std::string& name = "nb") {
    const Json status = Status(name);
    for (const Json& condition : GetArray(status, {"conditions"})) {
      if (GetString(condition, {"type"}) == type) return GetString(condition, {"reason"});
    }
    return "";
  }
  bool Reaches(const std::string& phase) {
    return Eventually([&] { return GetString(Status(), {"phase"}) == phase; }, seconds(40));
  }
  int64_t Replicas() { return GetInt(client().Get(kube::Deployment::kResource, ns_, "web").value_or(Json()), {"spec", "replicas"}, -1); }
  std::vector<Json> Pods() { return client().List(kube::Pod::kResource, {ns_, "", ""}).value_or({}); }
  int Restored() {
    int restored = 0;
    for (const Json& pod : Pods()) restored += GetString(pod, {"metadata", "annotations", api::kRestore}).empty() ? 0 : 1;
    return restored;
  }
  kube::Client& client() { return cluster_.client(); }

  bool bare_pods_ = false;
  Cluster& cluster_ = Cluster::Shared();
  const std::string ns_ = cluster_.MakeNamespace();
  Json owner_;
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<FakeAgent> agent_;
  std::unique_ptr<FakeDeployment> hands_;
};

TEST_F(SuspendTest, EachPodOfAWorkloadGoesOnFromACheckpointOfItsOwn) {
  Start();
  Scale(3);
  Make("Suspended");
  ASSERT_TRUE(Reaches("Suspended")) << Status();
  EXPECT_EQ(Replicas(), 0);
  EXPECT_TRUE(Pods().empty());
  EXPECT_EQ(Status()["checkpoints"].size(), 3u);
  EXPECT_EQ(Status()["replicas"], 3);
  EXPECT_FALSE(GetString(Status(), {"suspendedAt"}).empty());
  EXPECT_EQ(Reason(), "Suspended");
  Want("Running");
  ASSERT_TRUE(Reaches("Running")) << Status();
  EXPECT_EQ(Replicas(), 3);
  EXPECT_EQ(Restored(), 3);
  EXPECT_EQ(Reason("Restored"), "Restored");
  std::set<std::string> claimants;
  for (const api::Checkpoint& c : cluster_.Checkpoints(ns_)) {
    ASSERT_TRUE(c.status.claim);
    EXPECT_EQ(c.spec.trigger, api::Trigger::kSuspend);
    claimants.insert(c.status.claim->pod_uid);
  }
  EXPECT_EQ(claimants.size(), 3u);
  EXPECT_FALSE(cluster_.EventNotes(ns_, "Resumed").empty());
}

// A pod that nothing owns. Its node, and what else a cluster does for pods, is played by hands without a Deployment.
class BarePodTest : public SuspendTest {
 protected:
  void StartWithLab(bool allowed = true) {
    bare_pods_ = allowed;
    Start();
    hands_ = std::make_unique<FakeDeployment>(cluster_, ns_, Json());
    ASSERT_TRUE(MakeLab().ok());
  }
  Result<Json> MakeLab(const std::string& env = "first") {
    return client().Create(
        kube::Pod::kResource, ns_,
        {{"metadata", {{"name", "lab"}, {"labels", {{"app", "web"}}}, {"annotations", {{api::kProtect, "true"}}}}},
         {"spec", {{"containers", {{{"name", "main"}, {"image", "example/counter"}, {"env", {{{"name", "A"}, {"value", env}}}}}}}}}});
  }
  void MakeSleeper(const std::string& state) { Make(state, {{"targetRef", {{"apiVersion", "v1"}, {"kind", "Pod"}, {"name", "lab"}}}}); }
  Json Lab() { return cluster_.Pod(ns_, "lab"); }
  std::string Uid() { return GetString(Lab(), {"metadata", "uid"}); }
};

TEST_F(BarePodTest, IsDeletedToSleepAndMadeAgainToGoOn) {
  StartWithLab();
  const std::string first = Uid();
  MakeSleeper("Suspended");
  ASSERT_TRUE(Reaches("Suspended")) << Status();
  EXPECT_TRUE(Lab().is_null());
  const std::string sealed = GetString(Status(), {"sealedPod"});
  EXPECT_GT(sealed.size(), 100u);
  Want("Running");
  ASSERT_TRUE(Reaches("Running")) << Status();
  EXPECT_EQ(Reason("Restored"), "Restored");
  const Json lab = Lab();
  EXPECT_NE(Uid(), first);
  EXPECT_EQ(lab["spec"]["containers"][0]["env"][0]["value"], "first");
  EXPECT_EQ(lab["spec"]["runtimeClassName"], "holdfast");
  EXPECT_EQ(GetString(lab, {"metadata", "annotations", api::kResumedBy}), "nb");
  EXPECT_FALSE(GetString(lab, {"metadata", "annotations", api::kRestore}).empty());
  EXPECT_EQ(GetString(Status(), {"sealedPod"}), "");
  // And once more: of a pod that was made again the manifest is the same.
  Want("Suspended");
  ASSERT_TRUE(Reaches("Suspended")) << Status();
  Want("Running");
  ASSERT_TRUE(Reaches("Running")) << Status();
  EXPECT_EQ(Reason("Restored"), "Restored");
  EXPECT_EQ(GetArray(Lab(), {"spec", "initContainers"}).size(), 1u);
}

TEST_F(BarePodTest, ThatItsUserMakesAnewGoesOnAndTheUserHasTheLastWord) {
  StartWithLab();
  MakeSleeper("Suspended");
  ASSERT_TRUE(Reaches("Suspended")) << Status();
  const std::string checkpoint = GetString(Status()["checkpoints"][0], {"checkpoint"});
  auto made = MakeLab("second");
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ(GetString(*made, {"metadata", "annotations", api::kFromCheckpoint}), checkpoint);
  ASSERT_TRUE(Reaches("Running")) << Status();
  EXPECT_EQ(Reason(), "Overridden");
  EXPECT_EQ(Lab()["spec"]["containers"][0]["env"][0]["value"], "second");
}

TEST_F(BarePodTest, ThatSleepsIsMadeAgainWhenItsObjectIsDeleted) {
  StartWithLab();
  MakeSleeper("Suspended");
  ASSERT_TRUE(Reaches("Suspended")) << Status();
  ASSERT_TRUE(client().Delete(api::SuspendedWorkload::kResource, ns_, "nb").ok());
  ASSERT_TRUE(Eventually([&] { return client().Get(api::SuspendedWorkload::kResource, ns_, "nb").status().code() == Code::kNotFound; },
                         seconds(40)))
      << Status();
  EXPECT_TRUE(Eventually([&] { return !GetString(Lab(), {"metadata", "annotations", api::kRestore}).empty(); }));
}

TEST_F(BarePodTest, WhoseManifestWasTamperedWithIsNotMadeAndAnEventSaysWhatToDo) {
  StartWithLab();
  MakeSleeper("Suspended");
  ASSERT_TRUE(Reaches("Suspended")) << Status();
  std::string sealed = GetString(Status(), {"sealedPod"});
  sealed[50] = sealed[50] == 'A' ? 'B' : 'A';
  kube::CallOptions status;
  status.subresource = "status";
  ASSERT_TRUE(
      client()
          .Patch(api::SuspendedWorkload::kResource, ns_, "nb", kube::PatchType::kMerge, {{"status", {{"sealedPod", sealed}}}}, status)
          .ok());
  Want("Running");
  ASSERT_TRUE(Eventually([&] { return !cluster_.EventNotes(ns_, "CannotAct").empty(); }, seconds(40)));
  EXPECT_NE(cluster_.EventNotes(ns_, "CannotAct")[0].find(std::string("annotation ") + api::kFromCheckpoint), std::string::npos)
      << cluster_.EventNotes(ns_, "CannotAct")[0];
  EXPECT_TRUE(Lab().is_null());
}

TEST_F(BarePodTest, IsLeftAloneWhereTheOperatorDoesNotAllowIt) {
  StartWithLab(/*allowed=*/false);
  const std::string first = Uid();
  MakeSleeper("Suspended");
  ASSERT_TRUE(Eventually([&] { return Reason() == "Unsupported"; })) << Status();
  EXPECT_EQ(Uid(), first);
  EXPECT_TRUE(cluster_.Checkpoints(ns_).empty());
}

TEST_F(SuspendTest, ACheckpointThatFailsLeavesThePodsRunningAndSaysSo) {
  Start(/*agent_fails=*/true);
  Make("Suspended");
  ASSERT_TRUE(Eventually([&] { return GetInt(Status(), {"attempt", "failures"}) == 1; }, seconds(40))) << Status();
  EXPECT_EQ(GetString(Status(), {"phase"}), "Running");
  EXPECT_EQ(Reason(), "DumpFailed");
  EXPECT_EQ(Replicas(), 1);
  EXPECT_EQ(Pods().size(), 1u);
  EXPECT_TRUE(Eventually([&] { return !cluster_.EventNotes(ns_, "NotSuspended").empty(); }));
  EXPECT_TRUE(Eventually([&] { return cluster_.Checkpoints(ns_).size() >= 2; }, seconds(40))) << "it is tried again";
}

TEST_F(SuspendTest, AUsersOwnScaleWinsAndTheirPodGoesOn) {
  Start();
  Make("Suspended");
  ASSERT_TRUE(Reaches("Suspended")) << Status();
  Scale(1);
  ASSERT_TRUE(Reaches("Running")) << Status();
  EXPECT_EQ(Reason(), "Overridden");
  EXPECT_EQ(Restored(), 1);
  EXPECT_FALSE(cluster_.EventNotes(ns_, "Overridden").empty());
  EXPECT_EQ(GetString(client().Get(kube::Deployment::kResource, ns_, "web").value_or(Json()), {"metadata", "annotations", api::kAsleep}),
            "");
  // It stays so, until the user speaks again.
  Want("Running");
  ASSERT_TRUE(Eventually([&] { return Reason() == "Running"; }));
  Want("Suspended");
  ASSERT_TRUE(Reaches("Suspended")) << Status();
  EXPECT_EQ(Replicas(), 0);
}

TEST_F(SuspendTest, ADeletedObjectResumesItsWorkload) {
  Start();
  Make("Suspended");
  ASSERT_TRUE(Reaches("Suspended")) << Status();
  ASSERT_TRUE(client().Delete(api::SuspendedWorkload::kResource, ns_, "nb").ok());
  ASSERT_TRUE(Eventually([&] { return client().Get(api::SuspendedWorkload::kResource, ns_, "nb").status().code() == Code::kNotFound; }));
  EXPECT_EQ(Replicas(), 1);
  EXPECT_TRUE(Eventually([&] { return Restored() == 1; }));
}

TEST_F(SuspendTest, OrLeavesItAsleepForAnotherOneToResume) {
  Start();
  Make("Suspended", {{"onDelete", "Keep"}});
  ASSERT_TRUE(Reaches("Suspended")) << Status();
  ASSERT_TRUE(client().Delete(api::SuspendedWorkload::kResource, ns_, "nb").ok());
  ASSERT_TRUE(Eventually([&] { return client().Get(api::SuspendedWorkload::kResource, ns_, "nb").status().code() == Code::kNotFound; }));
  EXPECT_EQ(Replicas(), 0);
  Make("Running");
  ASSERT_TRUE(Reaches("Running")) << Status();
  ASSERT_TRUE(Eventually([&] { return Restored() == 1; })) << Status();
  EXPECT_EQ(Reason("Restored"), "Restored");
}

TEST_F(SuspendTest, AResumeWithoutRoomIsShownAndGoesOnWhenThereIsSome) {
  Start();
  Make("Suspended");
  ASSERT_TRUE(Reaches("Suspended")) << Status();
  hands_->no_room = true;
  Want("Running");
  ASSERT_TRUE(Eventually([&] {
    const Json status = Status();
    return GetString(status, {"phase"}) == "Resuming" &&
           DumpJson(status).find("0 of 1 pods run; pod web-2 is Pending") != std::string::npos;
  })) << Status();
  hands_->no_room = false;
  ASSERT_TRUE(Reaches("Running")) << Status();
  EXPECT_EQ(Restored(), 1);
}

TEST_F(SuspendTest, OfTwoObjectsOfOneWorkloadTheSecondSaysSo) {
  Start();
  Make("Running");
  ASSERT_TRUE(Reaches("Running"));
  // Creation times have seconds.
  ASSERT_TRUE(Eventually([&, since = Clock::Real().Mono()] { return Clock::Real().Mono() - since > seconds(1); }));
  Make("Suspended", Json::object(), "other");
  ASSERT_TRUE(Eventually([&] { return Reason("Suspended", "other") == "Conflict"; })) << Status("other");
  EXPECT_EQ(Replicas(), 1);
  ASSERT_TRUE(client().Delete(api::SuspendedWorkload::kResource, ns_, "nb").ok());
  EXPECT_TRUE(Eventually([&] { return GetString(Status("other"), {"phase"}) == "Suspended"; }, seconds(40))) << Status("other");
}

TEST_F(SuspendTest, AWorkloadThatIsNotThereIsMissed) {
  Start();
  Json spec = {{"targetRef", {{"apiVersion", "apps/v1"}, {"kind", "Deployment"}, {"name", "none"}}}, {"state", "Suspended"}};
  ASSERT_TRUE(
      client()
          .Create(api::SuspendedWorkload::kResource, ns_,
                  {{"apiVersion", "holdfast.dev/v1alpha1"}, {"kind", "SuspendedWorkload"}, {"metadata", {{"name", "nb"}}}, {"spec", spec}})
          .ok());
  EXPECT_TRUE(Eventually([&] { return Reason() == "TargetMissing"; }));
}

}  // namespace
}  // namespace holdfast::testing
