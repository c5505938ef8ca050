// Hole 19: an entry of the journal that cannot be read. What it froze goes on, or stays, by what the node and the API server know of it.
#include "executor_fixture.h"

namespace holdfast::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ExecutorMends : public ExecutorTest {
 protected:
  // As an earlier agent left it: frozen, in the middle of being stored, with an entry that lost its end.
  void Damage(bool final = true) {
    JournalEntry entry = Entry(Step::kStoring);
    entry.final = final;
    ASSERT_TRUE(journal.Write(entry).ok());
    ASSERT_TRUE(WriteIntents(layout, entry).ok());
    ASSERT_TRUE(WriteFileAtomically(layout.JournalFolder() + "/ck-uid.json", "{\"uid\": \"ck-u").ok());
    node.containers["c1"] = ContainerState::kPaused;
    cluster.checkpoint["spec"]["final"] = final;
    cluster.checkpoint["status"]["phase"] = "Storing";
    Restart();
    Result<std::vector<std::string>> uids = executor->Recover();
    ASSERT_TRUE(uids.ok());
    EXPECT_THAT(*uids, ElementsAre("ck-uid"));
    EXPECT_TRUE(Frozen()) << "whether it may go on is not known yet";
    EXPECT_EQ(executor->CheckpointOf("pod-uid"), "ck-uid") << "nobody else may freeze it meanwhile";
    EXPECT_THAT(metrics.Render(), HasSubstr("holdfast_journal_damaged_total 1"));
  }
  void ExpectOnlyItsRemainsLeft() {
    EXPECT_THAT(*ListDir(layout.JournalFolder()), ElementsAre("ck-uid.damaged"));
    EXPECT_THAT(*ListDir(layout.Containers()), IsEmpty());
    EXPECT_THAT(*ListDir(layout.Pods()), IsEmpty());
    EXPECT_THAT(*ListDir(layout.state + "/landing"), IsEmpty());
  }
};

TEST_F(ExecutorMends, ThePodGoesOnOnceItHasWonItsOwnClaim) {
  Damage();
  EXPECT_TRUE(Drive());
  EXPECT_FALSE(Frozen());
  ASSERT_TRUE(cluster.Seen().status.claim);
  EXPECT_EQ(cluster.Seen().status.claim->pod_uid, "pod-uid") << "whatever the store has: nobody else goes on from it";
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kFailed);
  EXPECT_THAT(Message(), HasSubstr("the agent's journal of it was damaged"));
  EXPECT_EQ(cluster.CountEvents("JournalDamaged"), 2) << "on the pod and on the Checkpoint";
  ExpectOnlyItsRemainsLeft();
}

TEST_F(ExecutorMends, WithoutAnApiServerThePodStaysFrozen) {
  cluster.synced = cluster.reachable = false;
  Damage();
  EXPECT_FALSE(Drive(10));
  cluster.synced = true;
  EXPECT_FALSE(Drive(10));
  EXPECT_TRUE(Frozen());
  EXPECT_EQ(cluster.CountEvents("JournalDamaged"), 0);
  cluster.reachable = true;
  EXPECT_TRUE(Drive());
  EXPECT_FALSE(Frozen());
  EXPECT_EQ(cluster.CountEvents("JournalDamaged"), 2);
}

TEST_F(ExecutorMends, WhatIsReadyWaitsForItsEvictionAsBefore) {
  Damage();
  cluster.checkpoint["status"]["phase"] = "Ready";
  cluster.checkpoint["status"]["manifest"] = {{"store", "default"}, {"id", "ck-uid"}};
  EXPECT_FALSE(Drive(5));
  EXPECT_TRUE(Frozen());
  EXPECT_EQ(StepNow(), Step::kCommitted);
  EXPECT_FALSE(cluster.Seen().status.claim);
  EXPECT_EQ(cluster.CountEvents("JournalDamaged"), 2);
  Restart();
  EXPECT_THAT(*executor->Recover(), ElementsAre("ck-uid"));
  EXPECT_FALSE(Drive(5)) << "a later agent reads what was written anew";
  node.containers.clear();
  cluster.pods.clear();
  EXPECT_TRUE(Drive());
  ExpectOnlyItsRemainsLeft();
}

TEST_F(ExecutorMends, WhatAnotherPodHasClaimedIsNeverThawed) {
  Damage();
  cluster.checkpoint["status"]["phase"] = "Ready";
  cluster.checkpoint["status"]["claim"] = {{"podName", "web-1"}, {"podUID", "new-uid"}};
  EXPECT_FALSE(Drive(10));
  cluster.checkpoint = nullptr;  // nor when the object goes
  EXPECT_FALSE(Drive(10));
  EXPECT_TRUE(Frozen());
}

TEST_F(ExecutorMends, ThePodOfACheckpointThatIsGoneGoesOn) {
  Damage();
  cluster.checkpoint = nullptr;
  EXPECT_TRUE(Drive());
  EXPECT_FALSE(Frozen());
  ExpectOnlyItsRemainsLeft();
}

// Another pod may have claimed it before it was deleted, and have gone on.
TEST_F(ExecutorMends, AnEndingPodOfACheckpointThatIsGoneIsNotThawed) {
  Damage();
  cluster.checkpoint = nullptr;
  cluster.pods["default/web-0"]["metadata"]["deletionTimestamp"] = FormatTime(clock.Wall());
  EXPECT_FALSE(Drive(10));
  EXPECT_TRUE(Frozen());
  cluster.pods.clear();
  EXPECT_FALSE(Drive(10)) << "gone from the API, and not from the node";
  EXPECT_TRUE(Frozen());
  cluster.reachable = false;
  EXPECT_FALSE(Drive(10));
  EXPECT_TRUE(Frozen());
  cluster.reachable = true;
  node.containers.clear();
  EXPECT_TRUE(Drive());
  EXPECT_TRUE(node.thawed.empty());
  ExpectOnlyItsRemainsLeft();
}

TEST_F(ExecutorMends, WhatWasNotFinalIsUndoneWithoutAClaim) {
  Damage(false);
  EXPECT_TRUE(Drive());
  EXPECT_FALSE(Frozen());
  EXPECT_FALSE(cluster.Seen().status.claim);
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kFailed);
  ExpectOnlyItsRemainsLeft();
}

TEST_F(ExecutorMends, WithoutAnyIntentItIsReportedAllTheSame) {
  Damage();
  ASSERT_TRUE(RemoveAll(layout.Containers()).ok() && MakeDirs(layout.Containers()).ok());
  node.containers["c1"] = ContainerState::kRunning;  // /run went with the node's restart
  EXPECT_TRUE(Drive());
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kFailed);
  ExpectOnlyItsRemainsLeft();
}

}  // namespace
}  // namespace holdfast::agent
