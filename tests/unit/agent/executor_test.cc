// Ways of a Checkpoint through the executor: ready, claimed, reclaimed, deleted, refused.
#include "api/idle.h"
#include "executor_fixture.h"

namespace holdfast::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(ExecutorTest, AFinalCheckpointBecomesReadyAndThePodStaysFrozenUntilItIsGone) {
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_EQ(Reason(), "Completed");
  EXPECT_EQ(cluster.Seen().status.manifest_digest, "blake3:00");
  EXPECT_EQ(cluster.Seen().status.frozen_ms, 810);
  EXPECT_EQ(cluster.Seen().status.containers.at(0).pages, 2);
  EXPECT_TRUE(cluster.Seen().status.containers.at(0).restorable);
  EXPECT_TRUE(Frozen());
  EXPECT_TRUE(Exists(layout.PodFile("pod-uid")));
  EXPECT_TRUE(Exists(layout.IntentFile("c1")));
  EXPECT_THAT(node.thawed, IsEmpty());
  node.containers.clear();
  EXPECT_FALSE(Drive(2)) << "the kubelet might still create its containers again";
  cluster.pods.clear();
  EXPECT_TRUE(Drive());
  ExpectNothingLeft();
  EXPECT_THAT(node.thawed, IsEmpty());
}

TEST_F(ExecutorTest, AnAssignmentOfALeaderWhoseTermIsOverWaitsUntilItIsRenewed) {
  leader_term = 7;
  cluster.checkpoint["status"]["term"] = 6;
  EXPECT_FALSE(Drive(3));
  EXPECT_THAT(*ListDir(layout.JournalFolder()), IsEmpty());
  EXPECT_FALSE(Frozen());
  cluster.checkpoint["status"]["term"] = 7;
  EXPECT_FALSE(Drive());
  EXPECT_EQ(StepNow(), Step::kCommitted);
}

TEST_F(ExecutorTest, WhatIsCheckpointedForItsIdlenessIsMeasuredOnceMoreAndNotFrozenWhenItIsUsed) {
  cluster.checkpoint["spec"]["trigger"] = "Idle";
  still_idle = Status(Code::kFailedPrecondition, "it is not idle: kernel python3 is busy");
  EXPECT_TRUE(Drive());
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kFailed);
  EXPECT_EQ(Reason(), api::reason::kNotIdle);
  EXPECT_EQ(Message(), "it is not idle: kernel python3 is busy");
  EXPECT_FALSE(Frozen());
  EXPECT_EQ(node.dumps, 0);
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, OnlyWhatIsCheckpointedForItsIdlenessHasToBeIdle) {
  still_idle = Status(Code::kFailedPrecondition, "it is not idle");
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_EQ(asked_whether_idle, 0);
}

TEST_F(ExecutorTest, APodThatTheControllerReclaimedIsThawed) {
  EXPECT_FALSE(Drive(3));
  cluster.checkpoint["status"]["claim"] = {{"podName", "web-0"}, {"podUID", "pod-uid"}, {"at", "2026-01-01T00:00:00Z"}};
  EXPECT_TRUE(Drive());
  EXPECT_FALSE(Frozen());
  EXPECT_TRUE(cluster.HasEvent("pod/web-0", "Thawed"));
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, AClaimOfTheSuccessorDoesNotThaw) {
  EXPECT_FALSE(Drive(3));
  cluster.checkpoint["status"]["claim"] = {{"podName", "web-1"}, {"podUID", "other"}, {"at", "2026-01-01T00:00:00Z"}};
  EXPECT_FALSE(Drive(5));
  EXPECT_TRUE(Frozen());
}

TEST_F(ExecutorTest, ADeletedCheckpointIsUndoneBeforeItsCommit) {
  on_ingest = [&](const storage::IngestOptions&) -> Result<std::vector<storage::FileEntry>> {
    cluster.checkpoint = nullptr;
    return std::vector<storage::FileEntry>{};
  };
  EXPECT_TRUE(Drive());
  EXPECT_EQ(store.commits, 0);
  EXPECT_FALSE(Frozen());
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, ACheckpointDeletedAfterItsCommitTakesItsManifestAlongBeforeThePodThaws) {
  store.on_commit = [&] { cluster.checkpoint = nullptr; };
  EXPECT_TRUE(Drive());
  EXPECT_TRUE(store.deleted);
  EXPECT_FALSE(Frozen());
}

TEST_F(ExecutorTest, ACheckpointDeletedWhileThePodIsKeptFrozenLetsThePodGo) {
  EXPECT_FALSE(Drive(3));
  cluster.checkpoint = nullptr;
  EXPECT_TRUE(Drive());
  EXPECT_FALSE(Frozen());
  EXPECT_TRUE(cluster.HasEvent("pod/web-0", "Thawed"));
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, ACheckpointDeletedAfterAnotherPodClaimedItLeavesTheOldPodFrozen) {
  EXPECT_FALSE(Drive(3));
  cluster.checkpoint["status"]["claim"] = {{"podName", "web-1"}, {"podUID", "other"}, {"at", "2026-01-01T00:00:00Z"}};
  EXPECT_FALSE(Drive(2));
  cluster.checkpoint = nullptr;
  Restart();
  EXPECT_FALSE(Drive(5));
  EXPECT_TRUE(Frozen());
}

TEST_F(ExecutorTest, ReadyIsReportedWhenTheApiServerComesBack) {
  store.on_commit = [&] { cluster.reachable = false; };
  EXPECT_FALSE(Drive(5));
  EXPECT_TRUE(Frozen());
  cluster.reachable = true;
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_EQ(store.commits, 1);
}

TEST_F(ExecutorTest, APodWhoseCheckpointWasDeclaredFailedMeanwhileIsClaimedBackAndGoesOn) {
  store.on_commit = [&] { cluster.reachable = false; };
  EXPECT_FALSE(Drive(5));
  EXPECT_TRUE(Frozen());
  cluster.reachable = true;
  cluster.checkpoint["status"]["phase"] = "Failed";  // by the controller, which had not heard of us until the deadline
  cluster.on_patch = [](const Json& patch) {
    const std::string phase = GetString(patch, {"status", "phase"});
    return phase.empty() || phase == "Failed" ? Status::Ok() : Status(Code::kInvalidArgument, "a failed checkpoint stays failed");
  };
  EXPECT_TRUE(Drive(5));
  EXPECT_FALSE(Frozen());
  ASSERT_TRUE(cluster.Seen().status.claim.has_value());
  EXPECT_EQ(cluster.Seen().status.claim->pod_uid, "pod-uid");
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kFailed);
}

TEST_F(ExecutorTest, AStatusThatTheApiServerRefusesIsReportedWithTheLeast) {
  cluster.on_patch = [](const Json& patch) {
    return Find(patch, {"status", "platform"}) != nullptr ? Status(Code::kInvalidArgument, "platform: unknown") : Status::Ok();
  };
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_EQ(cluster.Seen().status.manifest_id, "ck-uid");
}

TEST_F(ExecutorTest, TheGpusThatItHeldAreInTheStatusAndTheManifest) {
  node.on_dump = [this](const std::string& landing) {
    Dump(landing, true);
    ASSERT_TRUE(
        WriteFileAtomically(landing + "/main/gpu.json", R"({"product":"NVIDIA H100","driver":"570.86.15","count":2,"uuids":["GPU-a"]})")
            .ok());
  };
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  const Json gpu = {{"product", "NVIDIA H100"}, {"driver", "570.86.15"}, {"count", 2}};
  EXPECT_EQ(GetObject(cluster.checkpoint, {"status", "platform", "gpu"}), gpu);
  EXPECT_EQ(GetObject(store.manifest.info, {"platform", "gpu"}), gpu);
}

TEST_F(ExecutorTest, ASecondCheckpointOfAPodWaitsForTheFirst) {
  EXPECT_FALSE(Drive(3));
  cluster.checkpoint["metadata"]["uid"] = "second";
  cluster.checkpoint["metadata"]["name"] = "second";
  cluster.checkpoint["status"] = {{"phase", "Assigned"}, {"nodeName", "node1"}, {"podUID", "pod-uid"}};
  Result<std::optional<Duration>> again = executor->Run("second", {});
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->has_value());
  clock.Advance(std::chrono::seconds(200));
  EXPECT_TRUE(executor->Run("second", {}).ok());
  EXPECT_EQ(Reason(), "Deadline");
}

TEST_F(ExecutorTest, ACheckpointOfAnotherNodeOrAFinishedOneIsNotTouched) {
  cluster.checkpoint["status"]["nodeName"] = "node2";
  EXPECT_TRUE(Drive());
  cluster.checkpoint["status"] = {{"phase", "Ready"}, {"nodeName", "node1"}};
  EXPECT_TRUE(Drive());
  EXPECT_EQ(node.dumps, 0);
  EXPECT_THAT(cluster.phases, IsEmpty());
}

TEST_F(ExecutorTest, AStaleCacheDoesNotTurnAFinishedCheckpointIntoAFailedOne) {
  cluster.checkpoint["spec"]["final"] = false;
  ASSERT_TRUE(Drive());
  ASSERT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_TRUE(Drive());
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_EQ(kubelet.asked.size(), 1u);
}

TEST_F(ExecutorTest, ARefusalOfWhatHasChangedIsDecidedAnew) {
  cluster.checkpoint["metadata"]["resourceVersion"] = "5";
  cluster.pods.clear();  // so it is refused
  std::vector<std::string> locked_to;
  cluster.on_patch = [&](const Json& patch) {
    locked_to.push_back(GetString(patch, {"metadata", "resourceVersion"}));
    if (locked_to.size() > 1) return Status::Ok();
    cluster.checkpoint["metadata"]["resourceVersion"] = "6";  // somebody wrote
    return Status(Code::kConflict, "changed");
  };
  EXPECT_TRUE(Drive());
  EXPECT_THAT(locked_to, ElementsAre("5", "6"));
  EXPECT_EQ(Reason(), "PodGone");
}

}  // namespace
}  // namespace holdfast::agent
