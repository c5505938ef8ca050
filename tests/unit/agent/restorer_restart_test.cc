// What the next agent, or the node after its restart, makes of a restore; and what goes with its pod.
#include <sys/stat.h>

#include "restorer_fixture.h"

namespace holdfast::agent {
namespace {

TEST_F(RestorerTest, ARestartedAgentKnowsThatAContainerWasRestored) {
  Drive();
  Create("main", "n1");
  Outcome("n1", true);
  Restart();
  EXPECT_THAT(restorer->Recover(), testing::ElementsAre("default/web-1"));
  EXPECT_EQ(Create("main", "n2").action, "cold");
  Drive();
  EXPECT_EQ(cluster.restores.size(), 1u);
}

TEST_F(RestorerTest, ARestartedAgentKnowsAPodThatWasLetGoWithoutACheckpoint) {
  Json& pod = cluster.pods["default/web-1"];
  pod["spec"]["runtimeClassName"] = api::kRuntimeClass;
  pod["metadata"]["annotations"].erase(api::kRestore);
  Drive();
  ASSERT_TRUE(Exists(layout.RestoreFile("new-uid")));
  Restart();
  EXPECT_THAT(restorer->Recover(), testing::ElementsAre("default/web-1"));
  cluster.pods.clear();
  Drive();
  EXPECT_FALSE(Exists(layout.RestoreFile("new-uid")));
}

TEST_F(RestorerTest, ADamagedStateGoesWithItsPod) {
  layout.kubelet = dir.path() + "/kubelet";
  ASSERT_TRUE(MakeDirs(layout.KubeletPod("here")).ok());
  for (const char* uid : {"here", "gone"}) {
    ASSERT_TRUE(WriteFileAtomically(layout.RestoreFile(uid), "{\"podUID\": \"").ok());
    WriteImages(layout.RestoreFolder(uid));
  }
  Restart();
  EXPECT_THAT(restorer->Recover(), IsEmpty());
  EXPECT_TRUE(Exists(layout.RestoreFile("here")));
  EXPECT_FALSE(Exists(layout.RestoreFile("gone")));
  EXPECT_FALSE(Exists(layout.RestoreFolder("gone")));
}

TEST_F(RestorerTest, ALostOutcomeIsFoundByTheNextAgentAndReported) {
  Drive();
  Create("main", "n1");
  Drive();
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "Started");  // holdfast-runc is at work
  ASSERT_TRUE(WriteFileAtomically(layout.RestoreFolder("new-uid") + "/main/restored", "n1").ok());
  Restart();
  restorer->Recover();
  Drive();
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "Restored");
  EXPECT_FALSE(Exists(layout.RestoreFolder("new-uid")));
}

TEST_F(RestorerTest, AContainerWhoseLostRestoreHasRunAndEndedIsNotRestoredOnceMore) {
  Drive();
  Create("main", "n1");
  ASSERT_TRUE(WriteFileAtomically(layout.RestoreFolder("new-uid") + "/main/restored", "n1").ok());
  Restart();  // and before it looks, the container has crashed and containerd has deleted it
  restorer->Recover();
  EXPECT_EQ(Create("main", "n2").action, "cold");
}

TEST_F(RestorerTest, AFailedRestoreWhoseProcessMayHaveRunIsNotTriedAgain) {
  Drive();
  Create("main", "n1");
  EXPECT_EQ(Outcome("n1", false, true).action, "cold");
  Drive();
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "ColdStart");
}

TEST_F(RestorerTest, ALostOutcomeOfARestoreThatLeftNothingIsTriedAgain) {
  Drive();
  Create("main", "n1");
  Restart();
  restorer->Recover();
  EXPECT_EQ(Create("main", "n2").action, "restore");
}

TEST_F(RestorerTest, AColdPodsWaitFolderGoesWhenItsContainersHaveStarted) {
  cluster.checkpoint = nullptr;
  Drive();
  EXPECT_EQ(WaitStateNow(), "cold");
  node.on_node.push_back({"n1", "new-uid", "default", "web-1", "main", true});
  Drive();
  EXPECT_EQ(WaitStateNow(), "none");
}

TEST_F(RestorerTest, AWaitFolderThatWasMadeAnewWithItsNodeIsWrittenTo) {
  cluster.checkpoint = nullptr;
  Drive();
  node.on_node.push_back({"n1", "new-uid", "default", "web-1", "main", true});
  cluster.pods["default/web-1"]["status"] = PodJson("x", "x")["status"];
  Drive();
  EXPECT_EQ(WaitStateNow(), "none");
  // The API still says that it runs.
  node.on_node.clear();
  ASSERT_TRUE(MakeDirs(layout.WaitFolder("new-uid")).ok());  // by holdfast-runc, for a new init container
  Drive();
  EXPECT_EQ(WaitStateNow(), "cold");
}

TEST_F(RestorerTest, WhatAPodLeftIsRemovedWhenItIsGone) {
  Drive();
  Create("main", "n1");
  node.containers["n1"] = ContainerState::kStopped;  // its create was killed, so containerd does not know of it
  cluster.pods.clear();
  Drive();
  EXPECT_THAT(node.containers, IsEmpty());
  EXPECT_THAT(*ListDir(layout.state + "/restore"), IsEmpty());
  EXPECT_THAT(*ListDir(layout.run + "/wait"), IsEmpty());
}

// Another container of it still waits, for its image perhaps, so nothing was reported yet.
TEST_F(RestorerTest, APodThatHasStartedColdInPartAndIsGoneSaysSo) {
  cluster.checkpoint["status"]["containers"].push_back({{"name", "side"}, {"restorable", true}});
  on_kept = [](const std::string&, const std::string& to) {
    WriteImages(to);
    EXPECT_TRUE(MakeDirs(to + "/side/images").ok());
    return WriteFileAtomically(to + "/side/images/inventory.img", "x");
  };
  Drive();
  Create("main", "n1");
  Outcome("n1", false, true);
  EXPECT_FALSE(cluster.HasEvent("pod/web-1", "ColdStart"));
  Restart();  // it is written down
  restorer->Recover();
  cluster.pods.clear();
  Drive();
  ASSERT_TRUE(cluster.HasEvent("pod/web-1", "ColdStart"));
  EXPECT_THAT(cluster.events.back().note, HasSubstr("container main: CRIU: cannot bind"));
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_TRUE(cluster.restores[0].ran);
}

TEST_F(RestorerTest, ARestoredContainerThatContainerdForgotIsRemovedWithItsPod) {
  Drive();
  Create("main", "n1");
  Outcome("n1", true);
  node.containers["n1"] = ContainerState::kStopped;
  cluster.pods.clear();
  Drive();
  EXPECT_THAT(node.containers, IsEmpty());
}

TEST_F(RestorerTest, ARestoredContainerThatStillRunsKeepsItsGrace) {
  Drive();
  Create("main", "n1");
  Outcome("n1", true);
  node.containers["n1"] = ContainerState::kRunning;
  cluster.pods.clear();
  Drive();
  EXPECT_EQ(node.containers.size(), 1U);
}

TEST_F(RestorerTest, AnAgentThatDiedWhileItTookWhatLandedInMemoryLeavesNothingInTheWay) {
  ASSERT_TRUE(MakeDirs(layout.RestoreMemory("new-uid") + "/main").ok());
  ASSERT_EQ(symlink(layout.RestoreMemory("new-uid").c_str(), layout.RestoreFolder("new-uid").c_str()), 0);
  ASSERT_TRUE(MakeDirs(layout.RestoreMemory("gone-uid") + "/main").ok());
  Restart();
  restorer->Recover();
  EXPECT_THAT(*ListDir(layout.Memory() + "/restore"), testing::IsEmpty()) << "no pod waits for it";
  ASSERT_TRUE(MakeDirs(layout.RestoreMemory("new-uid") + "/main").ok());
  ASSERT_EQ(symlink(layout.RestoreMemory("new-uid").c_str(), layout.RestoreFolder("new-uid").c_str()), 0);
  Drive();
  EXPECT_EQ(fetches, 1);
  EXPECT_EQ(Create("main", "n1").action, "restore");
  EXPECT_TRUE(Exists(layout.RestoreFolder("new-uid") + "/main/images/inventory.img"));
  EXPECT_FALSE(Exists(layout.RestoreMemory("new-uid")));
}

TEST_F(RestorerTest, WhatLayInTheMemoryOfANodeThatRestartedIsFetched) {
  LeaveLandingFolder(Place::kMemory);
  Drive();
  EXPECT_EQ(fetches, 0);
  ASSERT_TRUE(RemoveAll(layout.Memory()).ok());
  ASSERT_TRUE(journal.Remove("ck-uid").ok());
  Restart();
  restorer->Recover();
  Drive();
  EXPECT_EQ(fetches, 1);
  EXPECT_EQ(Create("main", "n1").action, "restore");
  EXPECT_TRUE(Exists(layout.RestoreFolder("new-uid") + "/main/images/inventory.img"));
}

TEST_F(RestorerTest, WhatLiesOnTheDiskOfANodeThatRestartedIsNotTakenUnread) {
  LeaveLandingFolder();
  JournalEntry entry = *journal.Read("ck-uid");
  entry.boot_id = "boot-0";
  ASSERT_TRUE(journal.Write(entry).ok());
  Drive();
  EXPECT_EQ(fetches, 1);
}

TEST_F(RestorerTest, WhatWasFetchedBeforeTheNodeRestartedIsFetchedAgainUnlessItWasTried) {
  Drive();
  EXPECT_EQ(fetches, 1);
  Restart();
  restorer->Recover();
  Drive();
  EXPECT_EQ(fetches, 1) << "another agent, the same node";
  boot_id = "boot-2";
  Restart();
  restorer->Recover();
  Drive();
  EXPECT_EQ(fetches, 2) << "a crash of the node may have cost it any part of the files";
  EXPECT_EQ(WaitStateNow(), "ready");
  EXPECT_EQ(Create("main", "n1").action, "restore");
  boot_id = "boot-3";
  Restart();
  restorer->Recover();
  Drive();
  EXPECT_EQ(fetches, 3) << "it was only asked for";
  EXPECT_EQ(Create("main", "n2").action, "restore");
  ASSERT_TRUE(WriteFileAtomically(layout.RestoreFolder("new-uid") + "/main/" + runtime::kTryingFile, "n2").ok());
  boot_id = "boot-4";
  Restart();
  restorer->Recover();
  Drive();
  EXPECT_EQ(fetches, 3) << "its process may have run";
  EXPECT_EQ(Create("main", "n3").action, "cold");
}

TEST_F(RestorerTest, ARestartKeepsTheFolderThatAPodNobodyHasSeenYetWaitsIn) {
  layout.kubelet = dir.path() + "/kubelet";
  ASSERT_TRUE(MakeDirs(layout.KubeletPod("new-uid")).ok());
  ASSERT_TRUE(MakeDirs(layout.WaitFolder("new-uid")).ok());  // by the kubelet, while no agent ran
  ASSERT_TRUE(MakeDirs(layout.WaitFolder("gone-uid")).ok());
  struct stat before, after;
  ASSERT_EQ(stat(layout.WaitFolder("new-uid").c_str(), &before), 0);
  Restart();
  restorer->Recover();
  EXPECT_THAT(*ListDir(layout.run + "/wait"), testing::ElementsAre("new-uid"));
  ASSERT_EQ(stat(layout.WaitFolder("new-uid").c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino) << "the pod has this one mounted";
}

}  // namespace
}  // namespace holdfast::agent
