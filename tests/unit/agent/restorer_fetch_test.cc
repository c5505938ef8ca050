// Where a checkpoint comes from, what is waited for, and what is not fetched at all.
#include "restorer_fixture.h"
#include "tests/pump.h"

namespace holdfast::agent {
namespace {

TEST_F(RestorerTest, OnFailureRetryFetchesWhatWasDamagedUntilItIsWhole) {
  Follow(R"({"onFailure":"Retry"})");
  fetch_error = Status(Code::kDataLoss, "segment 12 is damaged");
  Drive(40);
  EXPECT_GT(fetches, 10);
  EXPECT_NE(WaitStateNow(), "cold");
  EXPECT_EQ(cluster.CountEvents("RestoreFailed"), 1) << "the same failure is told once";
  fetch_error = Status::Ok();
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "restore");
}

TEST_F(RestorerTest, CreateWaitsForTheImagesAndIsThenRefused) {
  fetch_error = Status(Code::kUnavailable, "no store");
  Drive(3);
  const Pump time(clock, std::chrono::seconds(1));
  runtime::CreateAnswer answer = Create("main", "n1");
  EXPECT_EQ(answer.action, "refuse");
  EXPECT_THAT(answer.reason, HasSubstr("not here yet"));
}

TEST_F(RestorerTest, CreateIsAnsweredAsSoonAsTheImagesAreThere) {
  std::jthread bring([this] {
    while (clock.waiters() == 0) std::this_thread::yield();
    Drive();
  });
  EXPECT_EQ(Create("main", "n1").action, "restore");
}

TEST_F(RestorerTest, ADamagedCheckpointStartsColdAfterThreeTries) {
  fetch_error = Status(Code::kDataLoss, "segment 12 is damaged");
  Drive();
  EXPECT_EQ(fetches, 3);
  EXPECT_EQ(WaitStateNow(), "cold") << "holdfast-wait must be able to read it";
  EXPECT_EQ(Create("main", "n1").action, "cold");
  Drive();
  EXPECT_FALSE(Exists(layout.RestoreFolder("new-uid")));
  EXPECT_TRUE(cluster.HasEvent("pod/web-1", "ColdStart"));
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_THAT(cluster.restores[0].reason, HasSubstr("segment 12"));
}

// Hole 8: five minutes without a store discarded what was stored.
TEST_F(RestorerTest, AStoreThatDoesNotAnswerIsWaitedForAndThePodSaysSo) {
  fetch_error = Status(Code::kUnavailable, "no store");
  Drive(3000);
  EXPECT_GT(fetches, 1000);
  EXPECT_EQ(WaitStateNow(), "fetching");
  EXPECT_TRUE(cluster.HasEvent("pod/web-1", "WaitsForState"));
  EXPECT_EQ(std::count_if(cluster.events.begin(), cluster.events.end(), [](const auto& e) { return e.reason == "WaitsForState"; }), 1);
  fetch_error = Status::Ok();
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "restore");
}

TEST_F(RestorerTest, WhoDeletesACheckpointThatCannotBeFetchedLetsItsPodStartCold) {
  fetch_error = Status(Code::kUnavailable, "no store");
  Drive(100);
  cluster.checkpoint["metadata"]["deletionTimestamp"] = FormatTime(clock.Wall());
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "cold");
}

TEST_F(RestorerTest, AStoreThatIsNotConfiguredIsWaitedForAndNamed) {
  cluster.checkpoint["status"]["manifest"]["store"] = "holdfast-store-2";
  Drive(20);
  EXPECT_EQ(fetches, 0) << "no other store is asked";
  Result<std::string> told = ReadFile(layout.WaitFolder("new-uid") + "/state");
  ASSERT_TRUE(told.ok());
  EXPECT_THAT(*told, HasSubstr("holdfast-store-2"));
  FakeStore brought;
  Stores more({{"default", &store}, {"holdfast-store-2", &brought}}, nullptr, clock);
  RestorerOptions options;
  options.node_name = "node1";
  options.fetch = [&](storage::Store& from, const std::string&, const std::string& to, const storage::IngestOptions&) {
    EXPECT_EQ(&from, &brought);
    WriteImages(to);
    return Status::Ok();
  };
  options.enqueue = [](const std::string&) {};
  restorer = std::make_unique<Restorer>(options, layout, journal, node, more, cluster, metrics, clock);
  restorer->Recover();
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "restore");
  restorer.reset();
}

TEST_F(RestorerTest, TheInitContainerEndsWhenTheLastSecondsOfTheFetchHaveBegun) {
  on_fetch = [&](const storage::IngestOptions& fetch) {
    clock.Advance(std::chrono::seconds(4));
    fetch.progress({.bytes = 50, .total = 100});
    EXPECT_EQ(WaitStateNow(), "fetching");
    clock.Advance(std::chrono::seconds(4));
    fetch.progress({.bytes = 90, .total = 100});
    EXPECT_EQ(WaitStateNow(), "ready");
  };
  Drive();
  EXPECT_EQ(fetches, 1);
}

TEST_F(RestorerTest, AMissingCheckpointStartsCold) {
  cluster.checkpoint = nullptr;
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "cold");
  EXPECT_TRUE(cluster.HasEvent("pod/web-1", "ColdStart"));
}

TEST_F(RestorerTest, ACheckpointWithoutRestorableContainersStartsColdWithTheReason) {
  cluster.checkpoint["status"]["containers"] = Json::array({{{"name", "main"}, {"restorable", false}, {"reason", "plain runc"}}});
  Drive();
  runtime::CreateAnswer answer = Create("main", "n1");
  EXPECT_EQ(answer.action, "cold");
  EXPECT_THAT(answer.reason, HasSubstr("plain runc"));
}

TEST_F(RestorerTest, ACheckpointThatNeedsWhatThisNodeLacksIsNotEvenFetchedAndSaysWhat) {
  const std::pair<Json, const char*> cases[] = {
      {{{"arch", "arm64"}}, "it is of arm64, and this node amd64"},
      {{{"cpuFeatures", "avx avx512f"}}, "may have begun to use: avx512f"},
      {{{"kernel", "999.0.1"}}, "ran under kernel 999.0.1, and this node's, 6.18, is of an older series"},
      {{{"criu", "4.10"}}, "made by CRIU 4.10, and this node has 4.2"}};
  for (const auto& [platform, why] : cases) {
    cluster.checkpoint["status"]["platform"] = platform;
    Restart();
    Drive();
    EXPECT_EQ(fetches, 0);
    EXPECT_EQ(Create("main", "n1").action, "cold");
    EXPECT_THAT(Create("main", "n1").reason, HasSubstr(why));
    std::filesystem::remove_all(layout.run);
    ASSERT_TRUE(layout.Make().ok());
  }
  cluster.checkpoint["status"]["platform"] = {{"arch", "amd64"}, {"cpuFeatures", "avx"}, {"criu", "4.1.1"}};
  Restart();
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "restore");
}

TEST_F(RestorerTest, TheLandingFolderOfTheSameNodeIsTakenInsteadOfTheStore) {
  LeaveLandingFolder();
  Drive();
  EXPECT_EQ(fetches, 0);
  EXPECT_EQ(Create("main", "n1").action, "restore");
}

TEST_F(RestorerTest, WhatLandedInMemoryIsRestoredFromThereAndNothingIsLeft) {
  LeaveLandingFolder(Place::kMemory);
  Drive();
  EXPECT_EQ(fetches, 0);
  runtime::CreateAnswer answer = Create("main", "n1");
  EXPECT_EQ(answer.action, "restore");
  EXPECT_EQ(answer.dir, layout.RestoreFolder("new-uid"));
  EXPECT_TRUE(Exists(answer.dir + "/main/images/inventory.img"));
  EXPECT_THAT(*ListDir(layout.Memory() + "/restore"), testing::ElementsAre("new-uid"));
  ASSERT_TRUE(layout.RemoveLanding("ck-uid").ok());  // its pod is gone
  EXPECT_TRUE(Exists(answer.dir + "/main/images/inventory.img"));
  EXPECT_EQ(Outcome("n1", true).action, "restore");
  Drive();
  EXPECT_FALSE(Exists(layout.RestoreFolder("new-uid")));
  EXPECT_THAT(*ListDir(layout.Memory() + "/restore"), testing::IsEmpty());
}

TEST_F(RestorerTest, APunchedLandingFolderIsNotTaken) {
  LeaveLandingFolder();
  ASSERT_TRUE(WriteFileAtomically(journal.SentLog("ck-uid"), "sent").ok());
  Drive();
  EXPECT_EQ(fetches, 1);
}

TEST_F(RestorerTest, WhatIsKeptOnThisNodeIsNotFetched) {
  on_kept = [&](const std::string& manifest, const std::string& to) {
    EXPECT_EQ(manifest, "ck-uid");
    WriteImages(to);
    return Status::Ok();
  };
  Drive();
  EXPECT_EQ(fetches, 0);
  EXPECT_EQ(Create("main", "n1").action, "restore");
}

TEST_F(RestorerTest, ALandingFolderThatIsNotWholeIsNotTaken) {
  LeaveLandingFolder();
  ASSERT_TRUE(RemoveAll(layout.Landing("ck-uid", Place::kDisk) + "/main/images/inventory.img").ok());
  Drive();
  EXPECT_EQ(fetches, 1);
}

// Hole 10.
TEST_F(RestorerTest, WhatTheDiskHasNoRoomForIsNotFetchedUntilThereIsSome) {
  cluster.checkpoint["status"]["size"] = {{"memory", 400 << 20}, {"files", 1 << 20}};
  disk_space.free_bytes = 100 << 20;
  Drive(5);
  EXPECT_EQ(fetches, 0);
  EXPECT_THAT(*ReadFile(layout.WaitFolder("new-uid") + "/state"), HasSubstr("there is no room for it: the node's disk has 100 MiB"));
  disk_space.free_bytes = 1 << 29;
  Drive(5);
  EXPECT_EQ(fetches, 1);
  EXPECT_EQ(Create("main", "n1").action, "restore");
}

TEST_F(RestorerTest, ThePodSaysWhatTheDiskHasNoRoomFor) {
  cluster.checkpoint["status"]["size"] = {{"memory", 400 << 20}};
  disk_space.free_bytes = 100 << 20;
  Drive(2000);
  EXPECT_EQ(fetches, 0);
  ASSERT_TRUE(cluster.HasEvent("pod/web-1", "WaitsForState"));
  EXPECT_THAT(cluster.events.back().note, HasSubstr("there is no room for it: the node's disk has 100 MiB of space"));
}

// The deletion that is advised there waits for the pod: of two that wait for each other the pod goes on.
TEST_F(RestorerTest, WhoDeletesACheckpointThatHasNoRoomHereLetsItsPodStartCold) {
  cluster.checkpoint["status"]["size"] = {{"memory", 400 << 20}};
  disk_space.free_bytes = 100 << 20;
  Drive(200);
  ASSERT_TRUE(cluster.HasEvent("pod/web-1", "WaitsForState"));
  EXPECT_THAT(cluster.events.back().note, testing::EndsWith("kubectl -n default delete checkpoint ck"));
  cluster.checkpoint["metadata"]["deletionTimestamp"] = FormatTime(clock.Wall());
  Drive();
  ASSERT_EQ(WaitStateNow(), "cold");
  const runtime::CreateAnswer answer = Create("main", "n1");
  EXPECT_EQ(answer.action, "cold");
  EXPECT_THAT(answer.reason, HasSubstr("checkpoint ck is being deleted, and cannot be fetched: there is no room for it"));
}

TEST_F(RestorerTest, APodThatMustNotStartColdIsNotToldThatADeletedCheckpointIsEnough) {
  Follow(R"({"onFailure":"Fail"})");
  fetch_error = Status(Code::kUnavailable, "no store");
  Drive(200);
  ASSERT_TRUE(cluster.HasEvent("pod/web-1", "WaitsForState"));
  EXPECT_THAT(cluster.events.back().note, testing::EndsWith("kubectl -n default delete checkpoint/ck pod/web-1"));
}

TEST_F(RestorerTest, WhatIsWiderThanThePodIsNotEvenFetched) {
  cluster.checkpoint["status"]["security"]["containers"] = Json::array({{{"name", "main"}, {"image", "counter:1"}, {"privileged", true}}});
  Drive();
  EXPECT_EQ(fetches, 0);
  EXPECT_EQ(Create("main", "n1").action, "cold");
  Drive();
  ASSERT_TRUE(cluster.HasEvent("pod/web-1", "ColdStart"));
  EXPECT_THAT(cluster.events.back().note, HasSubstr("of its container main: it was privileged"));
}

}  // namespace
}  // namespace holdfast::agent
