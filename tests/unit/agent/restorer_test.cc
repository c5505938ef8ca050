// From "a pod with a claim is here" to what holdfast-runc is told, and what is reported.
#include "restorer_fixture.h"
#include "tests/pump.h"

namespace holdfast::agent {
namespace {

TEST_F(RestorerTest, AClaimedPodIsRestoredOnceAndBothSidesHearOfIt) {
  Drive();
  EXPECT_EQ(WaitStateNow(), "ready");
  runtime::CreateAnswer answer = Create("main", "n1");
  EXPECT_EQ(answer.action, "restore");
  EXPECT_EQ(answer.dir, layout.RestoreFolder("new-uid"));
  EXPECT_EQ(answer.container, "main");
  EXPECT_TRUE(answer.first);
  EXPECT_FALSE(answer.more);
  ASSERT_EQ(answer.volumes.size(), 1u);
  EXPECT_EQ(answer.volumes[0].path, "/var/lib/kubelet/pods/new-uid/volumes/kubernetes.io~empty-dir/scratch");
  EXPECT_EQ(Outcome("n1", true).action, "restore");
  Drive();
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "Restored");
  EXPECT_EQ(cluster.restores[0].seconds, 0.25);
  ASSERT_TRUE(cluster.HasEvent("pod/web-1", "Restored"));
  EXPECT_THAT(cluster.events.back().note, HasSubstr("from checkpoint ck taken on node node0, 7 s ago, frozen for 0.81 s"));
  EXPECT_FALSE(Exists(layout.RestoreFolder("new-uid")));
  EXPECT_FALSE(Exists(layout.WaitFolder("new-uid")));
  Drive();
  EXPECT_EQ(cluster.restores.size(), 1u);
}

TEST_F(RestorerTest, ARestoredContainerThatRestartsStartsColdAndSaysSo) {
  Drive();
  Create("main", "n1");
  Outcome("n1", true);
  EXPECT_EQ(Create("main", "n2").action, "cold");
  EXPECT_TRUE(cluster.HasEvent("pod/web-1", "RestartedCold"));
}

TEST_F(RestorerTest, AFailedRestoreIsTriedThreeTimesAndThenStartsCold) {
  Drive();
  for (const char* id : {"n1", "n2"}) {
    EXPECT_EQ(Create("main", id).action, "restore");
    EXPECT_EQ(Outcome(id, false).action, "refuse");
  }
  EXPECT_EQ(Create("main", "n3").action, "restore");
  EXPECT_EQ(Outcome("n3", false).action, "cold");
  Drive();
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "ColdStart");
  EXPECT_THAT(cluster.restores[0].reason, HasSubstr("cannot bind"));
  EXPECT_TRUE(cluster.HasEvent("pod/web-1", "ColdStart"));
  EXPECT_EQ(Create("main", "n4").action, "cold");
}

TEST_F(RestorerTest, TheNumberOfTriesIsThePolicys) {
  Follow(R"({"attempts":1})");
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "restore");
  EXPECT_EQ(Outcome("n1", false).action, "cold");
}

TEST_F(RestorerTest, OnFailureRetryTriesOnAndNeverStartsCold) {
  Follow(R"({"onFailure":"Retry","attempts":2})");
  Drive();
  for (const char* id : {"n1", "n2", "n3", "n4", "n5"}) {
    EXPECT_EQ(Create("main", id).action, "restore");
    EXPECT_EQ(Outcome(id, false).action, "refuse");
  }
  EXPECT_EQ(Create("main", "n6").action, "restore");
  EXPECT_EQ(Outcome("n6", true).action, "restore");
  Drive();
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "Restored");
}

TEST_F(RestorerTest, OnFailureFailHoldsThePodAndSaysWhatToDo) {
  Follow(R"({"onFailure":"Fail","attempts":2})");
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "restore");
  EXPECT_EQ(Outcome("n1", false).action, "refuse");
  EXPECT_EQ(Create("main", "n2").action, "restore");
  EXPECT_EQ(Outcome("n2", false).action, "refuse");
  Drive();
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "Failed");
  EXPECT_FALSE(cluster.restores[0].ran);
  EXPECT_EQ(cluster.restores[0].attempts, 2) << "by which it is known whether the checkpoint is at fault";
  ASSERT_TRUE(cluster.HasEvent("pod/web-1", "RestoreFailed"));
  EXPECT_THAT(cluster.events.back().note, HasSubstr("Delete the pod to try once more"));
  Restart();
  restorer->Recover();
  runtime::CreateAnswer answer = Create("main", "n3");
  EXPECT_EQ(answer.action, "refuse");
  EXPECT_THAT(answer.reason, HasSubstr("restore.onFailure is Fail"));
  EXPECT_FALSE(cluster.HasEvent("pod/web-1", "ColdStart"));
}

TEST_F(RestorerTest, OnFailureFailHoldsAPodWhoseCheckpointIsDamaged) {
  Follow(R"({"onFailure":"Fail"})");
  fetch_error = Status(Code::kDataLoss, "segment 12 is damaged");
  Drive();
  EXPECT_EQ(fetches, 3);
  EXPECT_EQ(WaitStateNow(), "waiting") << "an init container that fails would have a Job make another pod";
  EXPECT_EQ(Create("migrate", "i1").action, "refuse");
  EXPECT_EQ(Create("main", "n1").action, "refuse");
  Drive();
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "Failed");
  EXPECT_EQ(cluster.restores[0].attempts, 0) << "CRIU has not seen it";
}

TEST_F(RestorerTest, OnFailureRetryDoesNotRepeatWhatMayHaveRun) {
  Follow(R"({"onFailure":"Retry"})");
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "restore");
  EXPECT_EQ(Outcome("n1", false, /*ran=*/true).action, "refuse");
  Drive();
  EXPECT_EQ(Create("main", "n2").action, "refuse");
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "Failed");
  EXPECT_TRUE(cluster.restores[0].ran);
}

TEST_F(RestorerTest, OtherContainersAreAnsweredByTheirKind) {
  EXPECT_EQ(Create("holdfast-wait", "w").action, "cold");
  EXPECT_EQ(WaitStateNow(), "waiting");
  Drive();
  EXPECT_EQ(Create("migrate", "i1").action, "skip");
  EXPECT_EQ(Create("log-shipper", "i2").action, "cold");
  EXPECT_EQ(Create("istio-proxy", "i3").action, "cold");
}

TEST_F(RestorerTest, APodThatAsksForNothingStartsCold) {
  cluster.pods["default/plain"] = PodJson("plain", "plain-uid");
  EXPECT_EQ(Create("main", "p1", "plain", "plain-uid").action, "cold");
  EXPECT_EQ(fetches, 0);
}

TEST_F(RestorerTest, APodThatWasLetGoWithoutACheckpointNeedNotWait) {
  Json& pod = cluster.pods["default/web-1"];
  pod["metadata"]["annotations"].erase("holdfast.dev/restore");
  pod["spec"]["initContainers"] = {{{"name", "holdfast-wait"}}};
  Drive();
  EXPECT_EQ(WaitStateNow(), "cold");
  EXPECT_EQ(Create("main", "n1").action, "cold");
  cluster.pods.erase("default/web-1");
  Drive();
  EXPECT_EQ(WaitStateNow(), "none");
}

TEST_F(RestorerTest, APodUnderAnotherRuntimeClassHasNoAuthorityThroughItsAnnotation) {
  cluster.pods["default/web-1"]["spec"].erase("runtimeClassName");
  Drive();
  EXPECT_EQ(fetches, 0);
  EXPECT_EQ(Create("main", "n1").action, "cold");
}

TEST_F(RestorerTest, AForgedAnnotationNeverGetsTheImages) {
  cluster.checkpoint["status"]["claim"]["podUID"] = "somebody-else";
  Drive(3);
  EXPECT_EQ(WaitStateNow(), "waiting");
  Drive(500);
  EXPECT_EQ(fetches, 0);
  EXPECT_EQ(WaitStateNow(), "cold");
  EXPECT_EQ(Create("main", "n1").action, "cold");
  EXPECT_TRUE(cluster.HasEvent("pod/web-1", "ColdStart"));
  EXPECT_THAT(cluster.restores, IsEmpty()) << "a checkpoint that is not this pod's is not written to";
}

TEST_F(RestorerTest, AnUnknownPodIsRefused) {
  clock.Advance(std::chrono::seconds(1));
  const Pump time(clock, std::chrono::milliseconds(500));
  EXPECT_EQ(Create("main", "n1", "nobody", "nobody-uid").action, "refuse");
  EXPECT_EQ(Create("main", "n1", "web-1", "another-uid").action, "refuse");
}

// Hole 7: a restore that nobody recorded could be made twice.
TEST_F(RestorerTest, ItsBeginIsWrittenBeforeAnythingRuns) {
  Drive();
  cluster.reachable = false;
  EXPECT_EQ(Create("main", "n1").action, "refuse") << "it cannot be written";
  cluster.reachable = true;
  EXPECT_THAT(cluster.restores, IsEmpty());
  EXPECT_EQ(Create("main", "n1").action, "restore");
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "Started");
  EXPECT_EQ(cluster.restores[0].pod_uid, "new-uid");
}

TEST_F(RestorerTest, APodThatIsGoneBeforeAnyOfItRanGivesTheStateBack) {
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "restore");
  cluster.pods.clear();
  Drive();
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "Failed");
  EXPECT_FALSE(cluster.restores[0].ran) << "another one may go on from it";
}

// An eviction that came before the word that its restore begins found a pod of which nothing ran.
TEST_F(RestorerTest, APodThatIsDeletedAsItsRestoreBeginsIsNotRestored) {
  Drive();
  cluster.on_restore = [this](const api::Restore&) {
    cluster.pods["default/web-1"]["metadata"]["deletionTimestamp"] = FormatTime(clock.Wall());
  };
  EXPECT_EQ(Create("main", "n1").action, "refuse");
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "Started");
  EXPECT_EQ(Create("main", "n2").action, "refuse");
  cluster.pods.clear();
  Drive();
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "Failed");
  EXPECT_FALSE(cluster.restores[0].ran) << "another one may go on from it";
}

TEST_F(RestorerTest, APodThatHasEndedAndStaysGivesTheStateBack) {
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "restore");
  cluster.pods["default/web-1"]["status"]["phase"] = "Failed";  // its create failed, and its kubelet does not try again
  Drive();
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "Failed");
  EXPECT_FALSE(cluster.restores[0].ran) << "another one may go on from it";
  EXPECT_FALSE(Exists(layout.RestoreFolder("new-uid"))) << "its images would lie here for as long as it stays";
  EXPECT_EQ(Create("main", "n2").action, "refuse");
  cluster.pods.clear();
  Drive();
  EXPECT_EQ(cluster.restores.size(), 1u) << "it is said once";
  EXPECT_THAT(*ListDir(layout.state + "/restore"), IsEmpty());
}

TEST_F(RestorerTest, APodThatWasRestoredAndEndsAtOnceIsReportedAsRestored) {
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "restore");
  Outcome("n1", true);
  cluster.pods["default/web-1"]["status"]["phase"] = "Succeeded";
  Drive();
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "Restored");
}

TEST_F(RestorerTest, APodThatIsGoneInTheMiddleOfItsRestoreMayHaveRun) {
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "restore");
  ASSERT_TRUE(WriteFileAtomically(layout.RestoreFolder("new-uid") + "/main/" + runtime::kTryingFile, "n1").ok());
  cluster.pods.clear();
  Drive();
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_TRUE(cluster.restores[0].ran);
}

TEST_F(RestorerTest, TheConnectionsArePutBackAsThePolicySays) {
  Drive();
  EXPECT_EQ(Create("main", "n1").established, "KeepLoopback");
  cluster.pods["default/web-1"]["metadata"]["uid"] = "another-uid";
  cluster.checkpoint["status"]["claim"]["podUID"] = "another-uid";
  Follow(R"({"established":"CloseAll"})");
  Drive();
  EXPECT_EQ(Create("main", "n2", "web-1", "another-uid").established, "CloseAll");
}

// Hole 9: a tag that moved, or an image that was changed after the claim, is another program.
TEST_F(RestorerTest, WhatRanInAnotherImageStartsColdAndSaysWhy) {
  cluster.checkpoint["status"]["containers"][0]["imageDigest"] = "sha256:then";
  node.image_digests = std::vector<std::string>{"sha256:now", "sha256:its-configuration"};
  Drive();
  const runtime::CreateAnswer answer = Create("main", "n1");
  EXPECT_EQ(answer.action, "cold");
  EXPECT_THAT(answer.reason, HasSubstr("sha256:then, and this pod's is sha256:now"));
  Drive();
  ASSERT_TRUE(cluster.HasEvent("pod/web-1", "ColdStart"));
  EXPECT_THAT(cluster.events.back().note, HasSubstr("where a tag has moved, name the image by its digest"));
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "ColdStart");
}

TEST_F(RestorerTest, TheSameImageOrOneThatIsNotKnownIsRestored) {
  using Digests = Result<std::vector<std::string>>;
  cluster.checkpoint["status"]["containers"][0]["imageDigest"] = "sha256:then";
  for (const Digests& here : {Digests(std::vector<std::string>{"sha256:index", "sha256:then"}), Digests(std::vector<std::string>{}),
                              Digests(Status(Code::kNotFound, "no ctr"))}) {
    node.image_digests = here;
    Drive();
    EXPECT_EQ(Create("main", "n1").action, "restore");
  }
}

TEST_F(RestorerTest, APodThatMustNotStartColdIsRefusedInAnotherImage) {
  Follow(R"({"onFailure":"Fail"})");
  cluster.checkpoint["status"]["containers"][0]["imageDigest"] = "sha256:then";
  node.image_digests = std::vector<std::string>{"sha256:now"};
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "refuse");
  EXPECT_EQ(Create("main", "n2").action, "refuse") << "and again";
}

}  // namespace
}  // namespace holdfast::agent
