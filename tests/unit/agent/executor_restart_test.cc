// What an agent that died at a step leaves, and what its successor makes of it.
#include "executor_fixture.h"

namespace holdfast::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(ExecutorTest, ADeadAgentsSuccessorGoesOnFromEveryStep) {
  struct Case {
    Step step;
    bool result;     // the dump has left its result
    bool committed;  // the store has committed
  };
  const Case cases[] = {{Step::kIntent, false, false},    {Step::kDumping, false, false}, {Step::kDumping, true, false},
                        {Step::kDumped, true, false},     {Step::kStoring, true, false},  {Step::kCommitAsked, true, false},
                        {Step::kCommitAsked, true, true}, {Step::kCommitted, true, true}};
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(StepName(c.step)) + (c.result ? " with" : " without") + " result" + (c.committed ? ", committed" : ""));
    cluster.checkpoint = CheckpointJson(true);
    cluster.checkpoint["status"]["phase"] = "Storing";
    cluster.pods["default/web-0"] = PodJson("web-0", "pod-uid");
    node.containers["c1"] = c.result ? ContainerState::kPaused : ContainerState::kRunning;
    node.thawed.clear();
    store = FakeStore();
    JournalEntry entry = Entry(c.step);
    ASSERT_TRUE(WriteIntents(layout, entry).ok());
    if (c.result) Dump(layout.Landing("ck-uid", Place::kDisk), true);
    if (c.step >= Step::kCommitAsked) {
      storage::Manifest manifest;
      manifest.ns = "default";
      manifest.checkpoint = "ck";
      manifest.checkpoint_uid = "ck-uid";
      manifest.created = "2026-01-01T00:00:00Z";
      ASSERT_TRUE(journal.WriteManifest("ck-uid", manifest.Serialize()).ok());
      store.state = storage::SessionState::kOpen;
      if (c.committed) {
        store.state = storage::SessionState::kCommitted;
        store.manifest = manifest;
      }
    }
    if (c.step == Step::kCommitted) entry.commit.id = "ck-uid";
    ASSERT_TRUE(journal.Write(entry).ok());
    Restart();
    Result<std::vector<std::string>> uids = executor->Recover();
    ASSERT_TRUE(uids.ok());
    EXPECT_THAT(*uids, ElementsAre("ck-uid"));
    EXPECT_FALSE(Drive(5));
    EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady) << last.ToString();
    EXPECT_TRUE(Frozen());
    node.containers.clear();
    cluster.pods.clear();
    EXPECT_TRUE(Drive());
    ExpectNothingLeft();
  }
}

TEST_F(ExecutorTest, ASuccessorFinishesAnUndoThatHadBegun) {
  JournalEntry entry = Entry(Step::kStoring);
  entry.failure_reason = "StoreFull";
  entry.failure_message = "full";
  ASSERT_TRUE(WriteIntents(layout, entry).ok());
  ASSERT_TRUE(journal.Write(entry).ok());
  node.containers["c1"] = ContainerState::kPaused;
  ASSERT_TRUE(executor->Recover().ok());
  EXPECT_TRUE(Drive());
  EXPECT_FALSE(Frozen());
  EXPECT_EQ(Reason(), "StoreFull");
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, ASuccessorWaitsForADumpThatOutlivedTheAgent) {
  const JournalEntry entry = Entry(Step::kDumping);
  ASSERT_TRUE(WriteIntents(layout, entry).ok());
  ASSERT_TRUE(journal.Write(entry).ok());
  node.dump_running = true;
  ASSERT_TRUE(executor->Recover().ok());
  std::jthread dump([this](std::stop_token stop) {
    while (clock.waiters() == 0) std::this_thread::yield();
    Dump(layout.Landing("ck-uid", Place::kDisk), true);
    while (!stop.stop_requested()) {
      if (clock.waiters() > 0) clock.Advance(std::chrono::milliseconds(5));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // paced, as Pump is
    }
  });
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_EQ(node.dumps, 0);
  EXPECT_THAT(node.thawed, IsEmpty());
}

TEST_F(ExecutorTest, AFrozenContainerThatNoJournalClaimsIsThawedAtTheStart) {
  const JournalEntry entry = Entry(Step::kIntent, "lost");
  ASSERT_TRUE(WriteIntents(layout, entry).ok());
  node.containers["c1"] = ContainerState::kPaused;
  Result<std::vector<std::string>> uids = executor->Recover();
  ASSERT_TRUE(uids.ok());
  EXPECT_THAT(*uids, IsEmpty());
  EXPECT_FALSE(Frozen());
  EXPECT_THAT(*ListDir(layout.Containers()), IsEmpty());
  EXPECT_THAT(*ListDir(layout.Pods()), IsEmpty());
}

TEST_F(ExecutorTest, WhatADamagedJournalEntryFrozeStaysFrozen) {
  const JournalEntry entry = Entry(Step::kIntent, "damaged");
  ASSERT_TRUE(WriteIntents(layout, entry).ok());
  ASSERT_TRUE(WriteFileAtomically(layout.JournalFolder() + "/damaged.json", "{\"uid\": \"dam").ok());
  node.containers["c1"] = ContainerState::kPaused;
  ASSERT_TRUE(executor->Recover().ok());
  EXPECT_TRUE(Frozen());
}

}  // namespace
}  // namespace holdfast::agent
