// Hole 10: the executor and a full disk. Nothing is frozen for which there is no room, and what cannot be written down keeps no pod frozen.
#include "executor_fixture.h"

namespace holdfast::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kMiB = 1 << 20;

class ExecutorOnDisk : public ExecutorTest {
 protected:
  // It takes nothing more from the moment that the pod is frozen.
  void FillWithTheDump() {
    node.on_dump = [this](const std::string& landing) {
      Dump(landing, true);
      disk_full = true;
    };
  }
};

TEST_F(ExecutorOnDisk, NothingIsFrozenForWhichTheDiskHasNoRoom) {
  disk_space = {.size_bytes = 10'000 * kMiB, .free_bytes = 1'000 * kMiB};
  node.estimate = 900 * kMiB;
  EXPECT_TRUE(Drive());
  EXPECT_EQ(node.dumps, 0);
  EXPECT_EQ(Reason(), api::reason::kNodeFull);
  EXPECT_THAT(
      Message(),
      HasSubstr("nothing was frozen: the node's disk has 1000 MiB of space, of which 500 MiB are left alone; this takes up to 900 MiB"));
  EXPECT_TRUE(cluster.HasEvent("pod/web-0", api::reason::kNodeFull));
  ExpectNothingLeft();
}

TEST_F(ExecutorOnDisk, WhatFitsIsDumpedAndWhatIsNotMeasuredWhereThereIsAnyRoom) {
  disk_space = {.size_bytes = 10'000 * kMiB, .free_bytes = 1'000 * kMiB};
  node.estimate = 499 * kMiB;
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
}

TEST_F(ExecutorOnDisk, WhatIsNotMeasuredIsNotDumpedOntoAFullDisk) {
  node.estimate = Status(Code::kUnsupported, "it holds a GPU");
  disk_space = {.size_bytes = 10'000 * kMiB, .free_bytes = 499 * kMiB};
  EXPECT_TRUE(Drive());
  EXPECT_EQ(node.dumps, 0);
  EXPECT_EQ(Reason(), api::reason::kNodeFull);
}

TEST_F(ExecutorOnDisk, ItWaitsForTheRoomThatIsSetAsideForOthers) {
  disk_space = {.size_bytes = 10'000 * kMiB, .free_bytes = 1'000 * kMiB};
  node.estimate = 400 * kMiB;
  ASSERT_TRUE(disk->Reserve("another", 300 * kMiB).ok());
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(node.dumps, 0);
  EXPECT_THAT(Message(), HasSubstr("waiting for room on the node: the node's disk has 1000 MiB of space"));
  disk->Release("another");
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
}

TEST_F(ExecutorOnDisk, ADiskThatFillsWhileThePodIsFrozenTakesTheJournalStill) {
  ASSERT_TRUE(executor->Recover().ok());
  FillWithTheDump();
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_EQ(StepNow(), Step::kCommitted);
  node.containers.clear();
  cluster.pods.clear();
  EXPECT_TRUE(Drive());
  ExpectNothingLeft();
}

TEST_F(ExecutorOnDisk, AFailureIsWrittenIntoTheRoomSetAsideAndThePodGoesOn) {
  ASSERT_TRUE(executor->Recover().ok());
  FillWithTheDump();
  on_ingest = [](const storage::IngestOptions&) { return Status(Code::kResourceExhausted, "the store is full"); };
  EXPECT_TRUE(Drive());
  EXPECT_FALSE(Frozen());
  EXPECT_EQ(Reason(), api::reason::kStoreFull);
  ExpectNothingLeft();
}

// There is no room set aside: Recover was not called, as if it were used up.
TEST_F(ExecutorOnDisk, APodIsThawedAlsoWhereNotEvenThatCanBeWritten) {
  on_ingest = [this](const storage::IngestOptions&) {
    disk_full = true;
    return Status(Code::kResourceExhausted, "the store is full");
  };
  EXPECT_FALSE(Drive(5));
  EXPECT_FALSE(Frozen());
  EXPECT_FALSE(Exists(LandingNow() + "/result.json")) << "what ran on must not be stored";
  EXPECT_EQ(StepNow(), Step::kStoring) << "nobody could write that it failed";
  EXPECT_EQ(Reason(), api::reason::kStoreFull);
  EXPECT_EQ(cluster.CountEvents(api::reason::kStoreFull), 1) << "told once, however often it is tried";
  disk_full = false;
  EXPECT_TRUE(Drive());
  EXPECT_EQ(Reason(), api::reason::kStoreFull);
  EXPECT_EQ(store.commits, 0);
  ExpectNothingLeft();
}

TEST_F(ExecutorOnDisk, ANewAgentDoesNotStoreWhatRanOnMeanwhile) {
  on_ingest = [this](const storage::IngestOptions&) {
    disk_full = true;
    return Status(Code::kResourceExhausted, "the store is full");
  };
  EXPECT_FALSE(Drive(5));
  EXPECT_FALSE(Frozen());
  on_ingest = nullptr;
  disk_full = false;
  Restart();
  ASSERT_TRUE(executor->Recover().ok());
  EXPECT_TRUE(Drive());
  EXPECT_EQ(store.commits, 0);
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kFailed);
  ExpectNothingLeft();
}

TEST_F(ExecutorOnDisk, AStepThatCannotBeWrittenEndsAtTheDeadlineAtTheLatest) {
  FillWithTheDump();
  EXPECT_FALSE(Drive(10));
  EXPECT_TRUE(Frozen()) << "the disk may have room again before";
  clock.Advance(std::chrono::seconds(101));
  EXPECT_FALSE(Drive(3));
  EXPECT_FALSE(Frozen());
  EXPECT_EQ(Reason(), api::reason::kNodeFull);
  disk_full = false;
  EXPECT_TRUE(Drive());
  EXPECT_EQ(store.commits, 0);
  ExpectNothingLeft();
}

TEST_F(ExecutorOnDisk, PastTheCommitNobodyIsThawedForAFullDisk) {
  store.on_commit = [this] { disk_full = true; };
  EXPECT_FALSE(Drive(3));
  clock.Advance(std::chrono::seconds(200));
  EXPECT_FALSE(Drive(10));
  EXPECT_TRUE(Frozen()) << "it is stored, and may be another pod's";
  store.on_commit = nullptr;
  disk_full = false;
  EXPECT_FALSE(Drive(5));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_TRUE(Frozen());
}

}  // namespace
}  // namespace holdfast::agent
