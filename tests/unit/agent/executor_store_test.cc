// The executor and the store: full, silent, dying at every moment around the commit.
#include "executor_fixture.h"

namespace holdfast::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(ExecutorTest, NothingIsFrozenForAFullStore) {
  store.full = true;
  EXPECT_TRUE(Drive());
  EXPECT_EQ(node.dumps, 0);
  EXPECT_EQ(Reason(), "StoreFull");
  EXPECT_THAT(Message(), HasSubstr("10 of 10 GiB"));
  EXPECT_FALSE(Frozen());
  EXPECT_TRUE(cluster.HasEvent("pod/web-0", "StoreFull"));
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, NothingIsFrozenForAStoreThatDoesNotAnswerUntilTheDeadline) {
  store.reachable = false;
  EXPECT_TRUE(Drive(1000));
  EXPECT_EQ(Reason(), "StoreUnavailable");
  EXPECT_EQ(node.dumps, 0);
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, AStoreThatFillsUpDuringTheDumpThawsThePodAndSaysSo) {
  node.on_dump = [&](const std::string& landing) {
    Dump(landing, true);
    store.full = true;
  };
  EXPECT_TRUE(Drive());
  EXPECT_EQ(Reason(), "StoreFull");
  EXPECT_FALSE(Frozen());
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, AStoreThatDiesDuringTheDumpIsAskedUntilTheDeadline) {
  node.on_dump = [&](const std::string& landing) {
    Dump(landing, true);
    store.reachable = false;
  };
  EXPECT_TRUE(Drive(1000));
  EXPECT_EQ(Reason(), "StoreUnavailable");
  EXPECT_FALSE(Frozen());
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, AStoreThatComesBackBeforeTheDeadlineGetsTheCheckpoint) {
  store.reachable = false;
  EXPECT_FALSE(Drive(10));
  EXPECT_FALSE(Frozen());
  store.reachable = true;
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
}

TEST_F(ExecutorTest, AReadPastTheDeadlineIsGivenUp) {
  on_ingest = [&](const storage::IngestOptions& options) -> Result<std::vector<storage::FileEntry>> {
    while (!options.stop.stop_requested()) std::this_thread::yield();
    return Status(Code::kCancelled, "stopped");
  };
  Pump pump(clock);
  EXPECT_TRUE(Drive());
  EXPECT_EQ(Reason(), "Deadline");
  EXPECT_FALSE(Frozen());
}

TEST_F(ExecutorTest, ProgressIsReportedWhileItIsStored) {
  on_ingest = [&](const storage::IngestOptions& options) -> Result<std::vector<storage::FileEntry>> {
    options.progress({5, 10, 3});
    while (clock.waiters() == 0) std::this_thread::yield();
    clock.Advance(std::chrono::seconds(1));
    while (cluster.CachedCheckpoint("ck-uid")->status.progress_bytes == 0) std::this_thread::yield();
    return std::vector<storage::FileEntry>{};
  };
  EXPECT_FALSE(Drive(3));
  EXPECT_THAT(cluster.phases, ElementsAre("Dumping", "Storing", "Ready"));
}

TEST_F(ExecutorTest, ACommitWhoseAnswerIsLostLeavesThePodFrozenWhileNeitherStoreNorClaimAnswer) {
  store.commit_lost = true;
  store.on_commit = [&] { cluster.reachable = false; };
  EXPECT_FALSE(Drive(400));  // far past the deadline
  EXPECT_TRUE(Frozen());
  EXPECT_EQ(StepNow(), Step::kCommitAsked);
  EXPECT_TRUE(cluster.HasEvent("pod/web-0", "KeptFrozen"));
  // The store comes back and says the truth.
  store.commit_lost = false;
  store.on_commit = nullptr;
  store.reachable = cluster.reachable = true;
  EXPECT_FALSE(Drive(5));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_TRUE(Frozen());
}

TEST_F(ExecutorTest, ACommitWhoseAnswerIsLostIsUndoneOnlyAfterTheClaimIsWon) {
  store.commit_lost = true;
  EXPECT_TRUE(Drive(400));
  EXPECT_EQ(Reason(), "StoreUnavailable");
  ASSERT_TRUE(cluster.Seen().status.claim.has_value());
  EXPECT_EQ(cluster.Seen().status.claim->pod_uid, "pod-uid");
  EXPECT_FALSE(Frozen());
}

TEST_F(ExecutorTest, AClaimOfAnotherPodKeepsTheOldOneFrozen) {
  store.commit_lost = true;
  cluster.checkpoint["status"]["claim"] = {{"podName", "web-1"}, {"podUID", "other"}, {"at", "2026-01-01T00:00:00Z"}};
  EXPECT_FALSE(Drive(400));
  EXPECT_TRUE(Frozen());
  EXPECT_THAT(node.thawed, IsEmpty());
}

TEST_F(ExecutorTest, AnAbortedSessionLetsThePodGoAfterCommitWasAsked) {
  store.commit_error = Status(Code::kFailedPrecondition, "aborted by the operator");
  store.on_commit = nullptr;
  on_ingest = [&](const storage::IngestOptions&) -> Result<std::vector<storage::FileEntry>> {
    store.state = storage::SessionState::kAborted;
    return std::vector<storage::FileEntry>{};
  };
  EXPECT_TRUE(Drive());
  EXPECT_FALSE(Frozen());
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kFailed);
  EXPECT_FALSE(cluster.Seen().status.claim.has_value());
}

TEST_F(ExecutorTest, ACommitRefusedForSpaceIsAbortedAndUndone) {
  store.commit_error = Status(Code::kResourceExhausted, "no space for the manifest");
  EXPECT_TRUE(Drive());
  EXPECT_EQ(Reason(), "StoreFull");
  EXPECT_EQ(store.state, storage::SessionState::kAborted);
  EXPECT_FALSE(Frozen());
}

TEST_F(ExecutorTest, AMissingSegmentIsSentAgain) {
  store.commit_error = Status(Code::kInvalidArgument, "a segment is missing");
  int reads = 0;
  on_ingest = [&](const storage::IngestOptions&) -> Result<std::vector<storage::FileEntry>> {
    if (++reads == 2) store.commit_error = Status::Ok();
    return std::vector<storage::FileEntry>{};
  };
  EXPECT_FALSE(Drive(4));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
}

}  // namespace
}  // namespace holdfast::agent
