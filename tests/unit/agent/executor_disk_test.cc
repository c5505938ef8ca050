// Hole 10: the executor and a full disk. Nothing is frozen for which there is no room, and what cannot be written down keeps no pod frozen.
#include "agent/store_room.h"
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

TEST_F(ExecutorOnDisk, DumpsTakeNoMoreOfTheDiskThanTheirsHoweverMuchIsFree) {
  landing_limit = 500 * kMiB;
  Restart();
  node.estimate = 400 * kMiB;
  ASSERT_TRUE(disk->Reserve(layout.Landing("another", Place::kDisk), 300 * kMiB).ok());
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(node.dumps, 0) << "both would pass the check alone";
  EXPECT_THAT(Message(), HasSubstr("dumps may take 500 MiB of the node's disk, of which 300 MiB are taken"));
  disk->Release(layout.Landing("another", Place::kDisk));
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
}

TEST_F(ExecutorOnDisk, WhatIsMoreThanAllDumpsMayTakeIsNotFrozen) {
  landing_limit = 500 * kMiB;
  Restart();
  node.estimate = 501 * kMiB;
  EXPECT_TRUE(Drive());
  EXPECT_EQ(node.dumps, 0);
  EXPECT_EQ(Reason(), api::reason::kNodeFull);
  EXPECT_THAT(Message(), HasSubstr("agent.landing.disk"));
  ExpectNothingLeft();
}

TEST_F(ExecutorOnDisk, NothingIsFrozenForWhichTheStoreSaysThatItHasNoRoom) {
  store_room = {{"default", 100 * kMiB}};
  node.estimate = 500 * kMiB;
  EXPECT_TRUE(Drive());
  EXPECT_EQ(node.dumps, 0);
  EXPECT_EQ(Reason(), api::reason::kStoreFull);
  EXPECT_THAT(Message(), HasSubstr("nothing was frozen: the store is full: it has room for 100 MiB, and this checkpoint may take 125 MiB"));
  EXPECT_TRUE(cluster.HasEvent("pod/web-0", api::reason::kStoreFull));
  EXPECT_TRUE(disk->Reserve(layout.Landing("another", Place::kDisk), disk_space.free_bytes / 2).ok()) << "what was set aside is free again";
  ExpectNothingLeft();
}

TEST_F(ExecutorOnDisk, WhatMayFitIntoTheStoreIsTried) {
  store_room = {{"default", 100 * kMiB}};
  node.estimate = 300 * kMiB;
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
}

TEST_F(ExecutorOnDisk, AStoreThatDoesNotSayIsNoReason) {
  node.estimate = uint64_t{400} << 30;
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
}

TEST_F(ExecutorOnDisk, AnotherStoreThatHasRoomTakesIt) {
  two_stores = true;
  Restart();
  node.estimate = 800 * kMiB;
  const bool own_is_default = api::StoresFor({"default", "holdfast-store-1"}, "default", "Deployment/web").front() == "default";
  const std::string own = own_is_default ? "default" : "holdfast-store-1", another = own_is_default ? "holdfast-store-1" : "default";
  store_room = {{own, 10 * kMiB}, {another, uint64_t{1} << 40}};
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(journal.Read("ck-uid")->store, another);
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
}

TEST(StoreRoom, WhatADumpTakesThereIsToldByTheLastOneOfItsWorkload) {
  api::Checkpoint last;
  last.status.memory_bytes = 900;
  last.status.files_bytes = 100;
  last.status.stored_bytes = 50;
  EXPECT_EQ(WillTake(2000, true, &last), 100U);
  EXPECT_EQ(WillTake(2000, false, &last), 100U);
  EXPECT_EQ(WillTake(2000, true, nullptr), 500U) << "without it its state is lost, so it is tried where it may fit";
  EXPECT_EQ(WillTake(2000, false, nullptr), 2000U);
  last.status.stored_bytes = 5000;
  EXPECT_EQ(WillTake(2000, true, &last), 2000U) << "no more than there is";
  last.status = {};
  EXPECT_EQ(WillTake(2000, true, &last), 500U) << "it does not tell";
  EXPECT_EQ(WillTake(0, true, nullptr), 0U);
  EXPECT_LE(WillTake(~uint64_t{0}, false, nullptr), uint64_t{1} << 62);
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
