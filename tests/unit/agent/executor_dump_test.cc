// The executor and its dump: by holdfast-runc or through the kubelet, failing, late, lost.
#include <fcntl.h>
#include <sys/stat.h>

#include "executor_fixture.h"

namespace holdfast::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(ExecutorTest, ACheckpointThatIsNotFinalGoesThroughTheKubeletAndThePodRunsOn) {
  cluster.checkpoint["spec"]["final"] = false;
  EXPECT_TRUE(Drive());
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_THAT(kubelet.asked, ElementsAre("main"));
  EXPECT_EQ(node.dumps, 0);
  EXPECT_FALSE(Frozen());
  EXPECT_FALSE(Exists(dir.path() + "/archive.tar")) << "the kubelet's archive must not fill its disk";
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, AnArchiveThatTheKubeletDidNotTellOfIsRemovedAndOthersStay) {
  cluster.checkpoint["spec"]["final"] = false;
  const std::string folder = layout.kubelet + "/checkpoints";
  ASSERT_TRUE(MakeDirs(folder).ok());
  auto write = [&](const std::string& name, Duration age) {
    const auto at = std::chrono::duration_cast<std::chrono::seconds>((clock.Wall() - age).time_since_epoch()).count();
    const timespec times[2] = {{at, 0}, {at, 0}};
    ASSERT_TRUE(WriteFileAtomically(folder + "/" + name, "tar").ok());
    ASSERT_EQ(utimensat(AT_FDCWD, (folder + "/" + name).c_str(), times, 0), 0);
  };
  write("checkpoint-web-0_default-main-2026-11-20T10:00:00Z.tar", std::chrono::hours(1));
  write("checkpoint-web-0_default-main-sidecar-2026-11-21T10:00:00Z.tar", Duration(0));
  write("checkpoint-web-01_default-main-2026-11-21T10:00:00Z.tar", Duration(0));
  kubelet.on_checkpoint = [&](const std::string&) -> Result<std::string> {
    Dump(layout.Landing("ck-uid", Place::kDisk), true);
    return Status(Code::kDeadlineExceeded, "no answer");
  };
  bool made = false;
  on_ingest = [&](const storage::IngestOptions&) {  // containerd goes on with it
    if (!std::exchange(made, true)) write("checkpoint-web-0_default-main-2026-11-21T10:00:00Z.tar", -std::chrono::seconds(1));
    return std::vector<storage::FileEntry>{};
  };
  EXPECT_TRUE(Drive());
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady) << "holdfast-runc said that it is whole";
  EXPECT_THAT(*ListDir(folder), ElementsAre("checkpoint-web-01_default-main-2026-11-21T10:00:00Z.tar",
                                            "checkpoint-web-0_default-main-2026-11-20T10:00:00Z.tar",
                                            "checkpoint-web-0_default-main-sidecar-2026-11-21T10:00:00Z.tar"));
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, AKubeletThatNeverMakesAnArchiveIsNotWaitedForForEver) {
  cluster.checkpoint["spec"]["final"] = false;
  kubelet.on_checkpoint = [](const std::string&) -> Result<std::string> { return Status(Code::kUnavailable, "connection refused"); };
  EXPECT_TRUE(Drive(500));
  EXPECT_EQ(Reason(), "DumpFailed");
  EXPECT_THAT(Message(), HasSubstr("connection refused"));
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, AReplacedPodIsNotedAfterTheKubeletsCall) {
  cluster.checkpoint["spec"]["final"] = false;
  auto dump = kubelet.on_checkpoint;
  kubelet.on_checkpoint = [&, dump](const std::string& c) {
    cluster.pods["default/web-0"]["metadata"]["uid"] = "successor";
    return dump(c);
  };
  EXPECT_TRUE(Drive());
  EXPECT_EQ(Reason(), "PodReplaced");
  EXPECT_EQ(store.commits, 0);
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, ARestartedContainerIsNotedAfterTheKubeletsCall) {
  cluster.checkpoint["spec"]["final"] = false;
  auto dump = kubelet.on_checkpoint;
  kubelet.on_checkpoint = [&, dump](const std::string& c) {
    cluster.pods["default/web-0"]["status"]["containerStatuses"][0]["containerID"] = "containerd://c2";
    return dump(c);
  };
  EXPECT_TRUE(Drive());
  EXPECT_EQ(Reason(), "PodReplaced");
}

TEST_F(ExecutorTest, AKubeletThatDoesNotReachOurRuntimeIsADumpFailure) {
  cluster.checkpoint["spec"]["final"] = false;
  kubelet.on_checkpoint = [](const std::string&) -> Result<std::string> { return std::string("/nowhere/archive.tar"); };
  EXPECT_TRUE(Drive());
  EXPECT_EQ(Reason(), "DumpFailed");
  EXPECT_THAT(Message(), HasSubstr("runtime entry"));
}

TEST_F(ExecutorTest, ARefusingKubeletIsADumpFailureWithItsWords) {
  cluster.checkpoint["spec"]["final"] = false;
  kubelet.on_checkpoint = [](const std::string&) -> Result<std::string> { return Status(Code::kPermissionDenied, "no nodes/checkpoint"); };
  EXPECT_TRUE(Drive());
  EXPECT_EQ(Reason(), "DumpFailed");
  EXPECT_THAT(Message(), HasSubstr("no nodes/checkpoint"));
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, APodThatWasToldToQuitIsNotDumpedOnStop) {
  cluster.checkpoint["spec"]["trigger"] = "Stop";
  cluster.pods["default/web-0"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z";
  ASSERT_TRUE(MakeDirs(layout.run + "/signalled").ok());
  ASSERT_TRUE(WriteFileAtomically(layout.SignalledFile("c1"), "").ok());
  EXPECT_TRUE(Drive()) << last.message();
  EXPECT_EQ(Reason(), "PodGone");
  EXPECT_THAT(Message(), HasSubstr("told to quit"));
  EXPECT_EQ(node.dumps, 0);
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, AContainerThatIsRestartedInPlaceKeepsNoDrainFromADump) {
  ASSERT_TRUE(MakeDirs(layout.run + "/signalled").ok());
  ASSERT_TRUE(WriteFileAtomically(layout.SignalledFile("c1"), "").ok());
  EXPECT_FALSE(Drive()) << "it stays frozen until the pod is gone";
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
}

// A pod whose checkpoint was given up may be on its way out, with a successor in its place.
TEST_F(ExecutorTest, NothingIsFrozenForACheckpointThatWasGivenUpWhileTheStoreWasAway) {
  store.reachable = false;
  EXPECT_FALSE(Drive(5));
  ASSERT_EQ(StepNow(), Step::kIntent);
  cluster.on_patch = [](const Json& patch) {  // the rule of the CRD, before the cache knows
    const bool back = GetString(patch, {"status", "phase"}) != "Failed";
    return back ? Status(Code::kInvalidArgument, "phase cannot go back") : Status::Ok();
  };
  cluster.checkpoint["status"]["phase"] = "Failed";
  store.reachable = true;
  Restart();  // and goes on from its journal
  EXPECT_TRUE(Drive());
  EXPECT_EQ(node.dumps, 0);
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kFailed);
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, NothingIsFrozenBeforeTheApiServerHasHeardOfIt) {
  store.reachable = false;
  EXPECT_FALSE(Drive(5));
  store.reachable = true;
  cluster.reachable = false;
  EXPECT_FALSE(Drive(5));
  EXPECT_EQ(node.dumps, 0);
  cluster.reachable = true;
  EXPECT_FALSE(Drive());
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
}

TEST_F(ExecutorTest, AFailedDumpThawsAndSaysWhatCriuSaid) {
  node.on_dump = [this](const std::string& landing) { Dump(landing, false); };
  EXPECT_TRUE(Drive());
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kFailed);
  EXPECT_EQ(Reason(), "DumpFailed");
  EXPECT_THAT(Message(), HasSubstr("io_uring"));
  EXPECT_TRUE(cluster.HasEvent("pod/web-0", "DumpFailed"));
  EXPECT_THAT(node.thawed, ElementsAre("c1"));
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, ADumpThatEndsWithoutAResultIsTriedOnceMore) {
  int tries = 0;
  node.on_dump = [&](const std::string& landing) {
    if (++tries == 2) Dump(landing, true);
  };
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_EQ(tries, 2);
}

TEST_F(ExecutorTest, ADumpThatNeverGivesAResultFailsAfterTwoTries) {
  node.on_dump = nullptr;
  node.output = "holdfast-runc: no space";
  EXPECT_TRUE(Drive());
  EXPECT_EQ(node.dumps, 2);
  EXPECT_EQ(Reason(), "DumpFailed");
  EXPECT_THAT(Message(), HasSubstr("no space"));
}

TEST_F(ExecutorTest, ADumpPastItsDeadlineIsKilledAndThePodThawed) {
  node.on_dump = [this](const std::string&) {
    node.dump_running = true;
    node.containers["c1"] = ContainerState::kPaused;
  };
  Pump pump(clock);
  EXPECT_TRUE(Drive());
  EXPECT_EQ(Reason(), "Deadline");
  EXPECT_EQ(node.kills, 1);
  EXPECT_FALSE(Frozen());
  ExpectNothingLeft();
}

// Hole 5: what has hung is looked at by the API server's clock too.
TEST_F(ExecutorTest, ADumpIsKilledPastItsDeadlineThoughItsNodesClockWasSetBack) {
  const WallTime began = clock.Wall();
  node.on_dump = [this](const std::string&) {
    node.dump_running = true;
    node.containers["c1"] = ContainerState::kPaused;
    ahead_of_node = std::chrono::hours(24);
  };
  Pump pump(clock);
  EXPECT_TRUE(Drive());
  EXPECT_EQ(Reason(), "Deadline");
  EXPECT_EQ(node.kills, 1);
  EXPECT_LT(clock.Wall() - began, std::chrono::hours(12));
  EXPECT_FALSE(Frozen());
}

// Hole 5: it counted from its own start, and by its node's clock, while others counted from the assignment by theirs.
TEST_F(ExecutorTest, TheDeadlineIsTheCheckpointsByWhateverClock) {
  for (const Duration ahead : {Duration(0), Duration(std::chrono::minutes(10)), -Duration(std::chrono::minutes(10))}) {
    ahead_of_node = ahead;
    cluster.checkpoint = CheckpointJson(true);
    const WallTime deadline = *ParseTime(FormatTime(clock.Wall() + std::chrono::seconds(30)));
    cluster.checkpoint["status"]["startedAt"] = FormatTime(clock.Wall() - std::chrono::seconds(70));
    cluster.checkpoint["status"]["deadlineAt"] = FormatTime(deadline);
    int64_t of_dump = 0, of_journal = 0;
    node.on_dump = [&](const std::string& landing) {
      of_dump = GetInt(*ParseJson(*ReadFile(landing + "/request.json")), {"deadline_unix_ms"});
      of_journal = journal.Read("ck-uid")->deadline_unix_ms;
      Dump(landing, false);
    };
    EXPECT_TRUE(Drive());
    const auto ms = [](Duration since) { return std::chrono::duration_cast<std::chrono::milliseconds>(since).count(); };
    EXPECT_EQ(of_journal, ms(deadline.time_since_epoch()));
    EXPECT_EQ(of_dump, ms(deadline.time_since_epoch() - ahead)) << "holdfast-runc goes by the node's clock";
  }
}

TEST_F(ExecutorTest, NothingIsFrozenPastADeadlineThatWasSpentWaiting) {
  cluster.checkpoint["status"]["startedAt"] = FormatTime(clock.Wall() - std::chrono::seconds(101));
  cluster.checkpoint["status"]["deadlineAt"] = FormatTime(clock.Wall() - std::chrono::seconds(1));
  EXPECT_TRUE(Drive());
  EXPECT_EQ(node.dumps, 0);
  EXPECT_EQ(Reason(), "Deadline");
}

TEST_F(ExecutorTest, AThawThatFailsIsTriedUntilItWorks) {
  node.on_dump = [this](const std::string& landing) { Dump(landing, false); };
  node.thaw_fails = true;
  EXPECT_FALSE(Drive(5));
  EXPECT_THAT(last.message(), HasSubstr("stays frozen"));
  node.thaw_fails = false;
  EXPECT_TRUE(Drive());
  ExpectNothingLeft();
}

}  // namespace
}  // namespace holdfast::agent
