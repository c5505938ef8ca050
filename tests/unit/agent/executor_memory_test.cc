// The executor and where a dump lands: in memory when it fits, else on disk, and what a full or a lost memory makes of it.
#include "executor_fixture.h"

namespace holdfast::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ExecutorInMemory : public ExecutorTest {
 protected:
  ExecutorInMemory() {
    landing_budget = 1 << 30;
    node.on_dump = [this](const std::string& landing) {
      landed.push_back(landing);
      Dump(landing, true);
    };
    Restart();
  }
  const std::string in_memory = dir.path() + "/run/memory/landing/ck-uid", on_disk = dir.path() + "/state/landing/ck-uid";
  std::vector<std::string> landed;
  uint64_t unused = 0;
};

TEST_F(ExecutorInMemory, ADumpThatFitsLandsInMemoryAndNothingIsLeft) {
  on_ingest = [this](const storage::IngestOptions& options) {
    EXPECT_TRUE(Exists(in_memory + "/result.json"));
    EXPECT_FALSE(Exists(on_disk));
    EXPECT_EQ(options.sent_log, "");
    return std::vector<storage::FileEntry>{};
  };
  EXPECT_FALSE(Drive(3));
  EXPECT_THAT(landed, ElementsAre(in_memory));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_EQ(journal.Read("ck-uid")->place, Place::kMemory);
  EXPECT_THAT(metrics.Render(), HasSubstr("holdfast_dumps_total{landing=\"memory\"} 1"));
  node.containers.clear();
  cluster.pods.clear();
  EXPECT_TRUE(Drive());
  EXPECT_THAT(kept, ElementsAre(in_memory));
  ExpectNothingLeft();
}

TEST_F(ExecutorInMemory, AManualOneThroughTheKubeletToo) {
  cluster.checkpoint["spec"]["final"] = false;
  on_ingest = [this](const storage::IngestOptions&) {
    EXPECT_TRUE(Exists(in_memory + "/result.json"));
    return std::vector<storage::FileEntry>{};
  };
  EXPECT_TRUE(Drive());
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  ExpectNothingLeft();
}

TEST_F(ExecutorInMemory, ADumpThatDoesNotFitOrIsNotMeasuredLandsOnDisk) {
  for (const Result<uint64_t>& estimate :
       {Result<uint64_t>(uint64_t{2} << 30), Result<uint64_t>(Status(Code::kUnsupported, "it holds a GPU"))}) {
    landed.clear();
    node.estimate = estimate;
    cluster.checkpoint = CheckpointJson(true);
    cluster.pods["default/web-0"] = PodJson("web-0", "pod-uid");
    node.containers["c1"] = ContainerState::kRunning;
    store = FakeStore();
    EXPECT_FALSE(Drive(3));
    EXPECT_THAT(landed, ElementsAre(on_disk));
    node.containers.clear();
    cluster.pods.clear();
    EXPECT_TRUE(Drive());
    ExpectNothingLeft();
  }
}

TEST_F(ExecutorInMemory, WhatIsSetAsideIsFreeAgainWhenTheDumpIsOver) {
  const uint64_t most = 900 << 20;
  node.estimate = most;
  node.on_dump = [&](const std::string& landing) {
    EXPECT_FALSE(memory->Reserve("another", most, &unused));
    Dump(landing, true);
  };
  on_ingest = [&](const storage::IngestOptions&) {
    EXPECT_TRUE(memory->Reserve("another", most, &unused));
    return std::vector<storage::FileEntry>{};
  };
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
}

TEST_F(ExecutorInMemory, ADumpThatFailsGivesBackWhatWasSetAside) {
  node.estimate = uint64_t{900} << 20;
  node.on_dump = [this](const std::string& landing) { Dump(landing, false); };
  EXPECT_TRUE(Drive());
  EXPECT_EQ(Reason(), "DumpFailed");
  EXPECT_TRUE(memory->Reserve("another", *node.estimate, &unused));
  ExpectNothingLeft();
}

TEST_F(ExecutorInMemory, ADumpThatFillsTheMemoryIsMadeOnceMoreOnDisk) {
  node.on_dump = [this](const std::string& landing) {
    landed.push_back(landing);
    Dump(landing, landed.size() > 1, landed.size() == 1);
  };
  EXPECT_FALSE(Drive(3));
  EXPECT_THAT(landed, ElementsAre(in_memory, on_disk));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_THAT(node.thawed, ElementsAre("c1")) << "it ran on in between";
  EXPECT_FALSE(Exists(in_memory));
}

TEST_F(ExecutorInMemory, ADiskThatIsFullTooIsAFailure) {
  node.on_dump = [this](const std::string& landing) {
    landed.push_back(landing);
    Dump(landing, false, true);
  };
  EXPECT_TRUE(Drive());
  EXPECT_THAT(landed, ElementsAre(in_memory, on_disk));
  EXPECT_EQ(Reason(), "DumpFailed");
  EXPECT_FALSE(Frozen());
  ExpectNothingLeft();
}

TEST_F(ExecutorInMemory, APodThatWasToldToQuitMeanwhileIsNotDumpedAgain) {
  node.on_dump = [this](const std::string& landing) {
    landed.push_back(landing);
    ASSERT_TRUE(MakeDirs(layout.run + "/signalled").ok());
    ASSERT_TRUE(WriteFileAtomically(layout.SignalledFile("c1"), "").ok());
    Dump(landing, false, true);
  };
  EXPECT_TRUE(Drive());
  EXPECT_THAT(landed, ElementsAre(in_memory));
  EXPECT_EQ(Reason(), "DumpFailed");
}

TEST_F(ExecutorInMemory, LittleMemoryHasWhatIsStoredGivenBack) {
  on_ingest = [&](const storage::IngestOptions& options) {
    EXPECT_EQ(options.sent_log, journal.SentLog("ck-uid"));
    return std::vector<storage::FileEntry>{};
  };
  node.on_dump = [this](const std::string& landing) {
    Dump(landing, true);
    room.free_bytes = room.size_bytes / 10;
  };
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
}

TEST_F(ExecutorInMemory, TheNextAgentKnowsWhereItLandedAndWhatIsSetAside) {
  JournalEntry entry = Entry(Step::kDumping);
  entry.place = Place::kMemory;
  entry.reserved_bytes = uint64_t{900} << 20;
  ASSERT_TRUE(WriteIntents(layout, entry).ok());
  ASSERT_TRUE(journal.Write(entry).ok());
  Restart();
  ASSERT_TRUE(executor->Recover().ok());
  EXPECT_FALSE(memory->Reserve("another", uint64_t{200} << 20, &unused));
  Dump(in_memory, true);
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_THAT(landed, IsEmpty()) << "it was dumped already";
}

TEST_F(ExecutorInMemory, AnEntryFromBeforeThereWasAPlaceIsOnDisk) {
  Json before = Entry(Step::kDumped).ToJson();
  for (const char* later : {"landing", "reservedBytes", "bootID"}) before.erase(later);
  ASSERT_TRUE(WriteIntents(layout, *JournalEntry::FromJson(before)).ok());
  Dump(on_disk, true);
  ASSERT_TRUE(WriteFileAtomically(layout.JournalFolder() + "/ck-uid.json", DumpJson(before)).ok());
  ASSERT_TRUE(executor->Recover().ok());
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
}

TEST_F(ExecutorInMemory, WhatLayInTheMemoryOfANodeThatRestartedIsLostAndSaidSo) {
  for (const Step step : {Step::kDumped, Step::kStoring}) {
    SCOPED_TRACE(std::string(StepName(step)));
    cluster.checkpoint = CheckpointJson(true);
    cluster.checkpoint["status"]["phase"] = "Storing";
    store = FakeStore();
    JournalEntry entry = Entry(step);
    entry.place = Place::kMemory;
    ASSERT_TRUE(journal.Write(entry).ok());
    node.containers.clear();
    ASSERT_TRUE(executor->Recover().ok());
    EXPECT_TRUE(Drive());
    EXPECT_EQ(Reason(), "DumpFailed");
    EXPECT_THAT(Message(), HasSubstr("the landing folder was lost before the checkpoint was stored"));
    EXPECT_THAT(Message(), HasSubstr("memory"));
    EXPECT_EQ(store.commits, 0);
    ExpectNothingLeft();
  }
}

// What was not synced may be full of zeros: a checkpoint of them would be restored.
TEST_F(ExecutorInMemory, WhatLayOnTheDiskOfANodeThatRestartedIsNotStored) {
  JournalEntry entry = Entry(Step::kStoring);
  entry.boot_id = "boot-0";
  ASSERT_TRUE(WriteIntents(layout, entry).ok());
  Dump(on_disk, true);
  ASSERT_TRUE(journal.Write(entry).ok());
  ASSERT_TRUE(executor->Recover().ok());
  EXPECT_TRUE(Drive());
  EXPECT_EQ(Reason(), "DumpFailed");
  EXPECT_THAT(Message(), HasSubstr("the node was restarted before the checkpoint was stored"));
  EXPECT_EQ(store.commits, 0);
  ExpectNothingLeft();
}

TEST_F(ExecutorInMemory, WhatWasCommittedBeforeTheNodeRestartedIsReported) {
  JournalEntry entry = Entry(Step::kCommitAsked);
  entry.boot_id = "boot-0";
  entry.place = Place::kMemory;
  storage::Manifest manifest;
  manifest.ns = "default";
  manifest.checkpoint = "ck";
  manifest.checkpoint_uid = "ck-uid";
  manifest.created = "2026-01-01T00:00:00Z";
  manifest.info = {{"result", {{"ok", true}, {"reason", "Completed"}, {"memory_bytes", 12345}, {"frozen_ms", 810}}}};
  ASSERT_TRUE(journal.WriteManifest("ck-uid", manifest.Serialize()).ok());
  ASSERT_TRUE(journal.Write(entry).ok());
  cluster.checkpoint["status"]["phase"] = "Storing";
  node.containers.clear();
  ASSERT_TRUE(executor->Recover().ok());
  Drive(5);
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_EQ(cluster.Seen().status.memory_bytes, 12345);
}

}  // namespace
}  // namespace holdfast::agent
