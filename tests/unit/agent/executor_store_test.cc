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

// Hole 6: at the deadline the dump of a pod that was ended meanwhile was thrown away.
TEST_F(ExecutorTest, WhatIsLeftOfAPodThatWasEndedIsStoredHoweverLongThatTakes) {
  store.reachable = true;
  on_ingest = [this](const storage::IngestOptions&) -> Result<std::vector<storage::FileEntry>> {
    store.reachable = false;
    node.containers["c1"] = ContainerState::kStopped;  // kubectl delete
    return Status(Code::kUnavailable, "no store");
  };
  EXPECT_FALSE(Drive(300));
  EXPECT_TRUE(Exists(layout.Landing("ck-uid", Place::kDisk)) || Exists(layout.Landing("ck-uid", Place::kMemory)));
  EXPECT_TRUE(Exists(layout.PodFile("pod-uid"))) << "nothing is started in it";
  EXPECT_EQ(Reason(), "StillStoring");
  EXPECT_TRUE(cluster.HasEvent("pod/web-0", "StillStoring"));
  store.reachable = true;
  on_ingest = nullptr;
  (void)Drive();
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

TEST_F(ExecutorTest, OnlyALongLandingFolderIsPunchedUnlessTheDiskHasLittleRoom) {
  std::vector<std::string> logs;
  on_ingest = [&](const storage::IngestOptions& options) -> Result<std::vector<storage::FileEntry>> {
    logs.push_back(options.sent_log);
    EXPECT_TRUE(options.sent_log.empty() || WriteFileAtomically(options.sent_log, "sent").ok());
    if (logs.size() == 3) free_part = 0.9;
    return logs.size() % 2 == 1 ? Result<std::vector<storage::FileEntry>>(Status(Code::kUnavailable, "cut off"))
                                : std::vector<storage::FileEntry>{};
  };
  cluster.checkpoint["spec"]["final"] = false;
  EXPECT_TRUE(Drive());
  EXPECT_THAT(logs, ElementsAre("", ""));
  EXPECT_THAT(kept, ElementsAre(layout.Landing("ck-uid", Place::kDisk))) << "it may stay on this node";
  // Little room at first; what was begun with a log goes on with it.
  logs.assign(2, "");
  kept.clear();
  free_part = 0.1;
  cluster.checkpoint["status"] = CheckpointJson(false)["status"];
  store.state = storage::SessionState::kUnknown;
  EXPECT_TRUE(Drive());
  EXPECT_THAT(logs, ElementsAre("", "", journal.SentLog("ck-uid"), journal.SentLog("ck-uid")));
  EXPECT_THAT(kept, testing::IsEmpty()) << "it is not whole";
  EXPECT_FALSE(Exists(journal.SentLog("ck-uid")));
  // Long.
  memory_bytes = int64_t{2} << 30;
  cluster.checkpoint["status"] = CheckpointJson(false)["status"];
  store.state = storage::SessionState::kUnknown;
  EXPECT_TRUE(Drive());
  EXPECT_EQ(logs.back(), journal.SentLog("ck-uid"));
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, ADumpThatCannotBeStoredAsItIsIsUnsupportedAndNotTriedAgain) {
  int tries = 0;
  on_ingest = [&](const storage::IngestOptions&) -> Result<std::vector<storage::FileEntry>> {
    ++tries;
    return Status(Code::kUnsupported, "CRIU has compressed the pages");
  };
  EXPECT_TRUE(Drive());
  EXPECT_EQ(tries, 1);
  EXPECT_FALSE(Frozen());
  EXPECT_EQ(Reason(), api::reason::kUnsupported) << "no other store and no later time helps";
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, ANewDumpHasNothingOfTheLogOfAnOlderOne) {
  ASSERT_TRUE(journal.Write(Entry(Step::kIntent)).ok());
  ASSERT_TRUE(WriteFileAtomically(journal.SentLog("ck-uid"), "of a dump that was lost").ok());
  on_ingest = [&](const storage::IngestOptions& options) -> Result<std::vector<storage::FileEntry>> {
    EXPECT_EQ(options.sent_log, "");
    EXPECT_FALSE(Exists(journal.SentLog("ck-uid")));
    return std::vector<storage::FileEntry>{};
  };
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
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

TEST_F(ExecutorTest, BuildsOnTheLastCheckpointOfTheSameOwnerAndNotWhenASegmentWasMissing) {
  cluster.checkpoint["status"]["owner"] = {{"kind", "StatefulSet"}, {"name", "web"}, {"uid", "owner-uid"}, {"ordinal", "0"}};
  auto other = [&](const std::string& uid, const std::string& ordinal, const std::string& completed, const std::string& phase) {
    Json cp = cluster.checkpoint;
    cp["metadata"]["uid"] = cp["metadata"]["name"] = uid;
    cp["status"]["owner"]["ordinal"] = ordinal;
    cp["status"]["phase"] = phase;
    cp["status"]["completedAt"] = completed;
    cp["status"]["manifest"] = {{"store", "default"}, {"id", uid}, {"digest", "d"}};
    return cp;
  };
  cluster.others = {other("older", "0", "2026-01-01T00:00:00Z", "Ready"), other("last", "0", "2026-01-03T00:00:00Z", "Ready"),
                    other("middle", "0", "2026-01-02T00:00:00Z", "Ready"), other("failed", "0", "2026-01-05T00:00:00Z", "Failed"),
                    other("neighbour", "1", "2026-01-06T00:00:00Z", "Ready")};
  store.commit_error = Status(Code::kInvalidArgument, "a segment is missing");
  std::vector<std::string> parents;
  on_ingest = [&](const storage::IngestOptions& options) -> Result<std::vector<storage::FileEntry>> {
    EXPECT_NE(options.store, nullptr);
    parents.push_back(options.parent);
    if (parents.size() == 2) store.commit_error = Status::Ok();
    return std::vector<storage::FileEntry>{};
  };
  EXPECT_FALSE(Drive(4));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_THAT(parents, ElementsAre("last", ""));
}

}  // namespace
}  // namespace holdfast::agent
