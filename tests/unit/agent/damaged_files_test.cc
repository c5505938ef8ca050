// Hole 19: the files through which a pod is known to be frozen, each damaged in each way. No pod stays frozen for ever or in silence, and
// none goes on of which another copy may run.
#include "agent/damaged_files.h"

#include "executor_fixture.h"

namespace holdfast::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Values;

TEST(Damaged, WhatAnIntentMeantIsToldByTheRest) {
  struct Case {
    Clues clues;
    Meaning meaning;
  };
  const Case cases[] = {
      {{.held = Clues::kByLive}, Meaning::kFinal},
      {{.held = Clues::kByLive, .damaged_entries = true}, Meaning::kFinal},
      {{.held = Clues::kNot}, Meaning::kNothing},
      {{.held = Clues::kByOther}, Meaning::kNothing},
      {{.held = Clues::kUnreadable, .pod_runs_on = true}, Meaning::kNothing},
      {{.held = Clues::kUnreadable, .pod_runs_on = false}, Meaning::kUnknown},
      {{.held = Clues::kNot, .damaged_entries = true}, Meaning::kUnknown},
      {{.held = Clues::kByOther, .damaged_entries = true}, Meaning::kUnknown},
      {{.held = Clues::kUnreadable, .damaged_entries = true, .pod_runs_on = true}, Meaning::kUnknown},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(MeaningOf(c.clues), c.meaning) << "held " << c.clues.held << ", damaged entries " << c.clues.damaged_entries << ", runs on "
                                             << c.clues.pod_runs_on;
  }
}

enum class Damage { kTruncated, kEmptied, kRandom, kUnknownVersion };

class DamagedFilesTest : public ExecutorTest, public ::testing::WithParamInterface<Damage> {
 protected:
  DamagedFilesTest() { node.on_node = {{"c1", "pod-uid", "default", "web-0", "main", true}}; }
  // As an earlier agent left it: frozen, in the middle of being stored.
  void Leave(bool final = true) {
    JournalEntry entry = Entry(Step::kStoring);
    entry.final = final;
    ASSERT_TRUE(journal.Write(entry).ok());
    ASSERT_TRUE(WriteIntents(layout, entry).ok());
    node.containers["c1"] = ContainerState::kPaused;
    cluster.checkpoint["spec"]["final"] = final;
    cluster.checkpoint["status"]["phase"] = "Storing";
  }
  void Break(const std::string& path) {
    std::string text = *ReadFile(path);
    switch (GetParam()) {
      case Damage::kTruncated:
        text.resize(text.size() / 2);
        break;
      case Damage::kEmptied:
        text.clear();
        break;
      case Damage::kRandom:
        for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>((i * 167 + 13) % 251);
        break;
      case Damage::kUnknownVersion:
        text = R"({"version": 99, "step": "Sublimated", "what": {"uid": "ck-uid"}})";
        break;
    }
    ASSERT_TRUE(WriteFileAtomically(path, text).ok());
  }
  std::vector<std::string> Start() {
    Restart();
    auto uids = executor->Recover();
    EXPECT_TRUE(uids.ok());
    std::sort(uids->begin(), uids->end());
    return *uids;
  }
  // Rounds of what Recover asked to be run; true: nothing of it is left to do.
  bool DriveAll(std::vector<std::string> uids, int rounds = 60) {
    for (int i = 0; i < rounds && !uids.empty(); ++i) {
      std::erase_if(uids, [&](const std::string& uid) {
        const auto again = executor->Run(uid, {});
        return again.ok() && !*again;
      });
      clock.Advance(std::chrono::seconds(1));
    }
    return uids.empty();
  }
  void ExpectNothingIsHeld() {
    EXPECT_FALSE(Frozen());
    EXPECT_THAT(*ListDir(layout.Containers()), IsEmpty());
    EXPECT_THAT(*ListDir(layout.Pods()), IsEmpty());
    std::string why;
    EXPECT_FALSE(NodeIsBusy(layout, &why)) << why;
  }
  const std::string journal_file_ = layout.JournalFolder() + "/ck-uid.json";
};

TEST_P(DamagedFilesTest, AnIntentIsWrittenAnewFromTheJournal) {
  Leave();
  Break(layout.IntentFile("c1"));
  EXPECT_THAT(Start(), ElementsAre("ck-uid"));
  const auto intent = ReadIntent(layout, "c1.json");
  ASSERT_TRUE(intent.ok()) << intent.status().ToString();
  EXPECT_TRUE(intent->final) << "holdfast-runc ends the pod by it";
  EXPECT_EQ(intent->checkpoint_uid, "ck-uid");
  EXPECT_EQ(intent->landing, layout.Landing("ck-uid", Place::kDisk));
  EXPECT_TRUE(Frozen());
  EXPECT_TRUE(Exists(layout.Damaged() + "/container-c1.json"));
  EXPECT_TRUE(cluster.HasEvent("pod/web-0", "IntentDamaged"));
}

TEST_P(DamagedFilesTest, AnIntentThatIsDamagedWhileItsPodWaitsForItsEndIsWrittenAnewAsWell) {
  EXPECT_FALSE(Drive(5));
  ASSERT_EQ(StepNow(), Step::kCommitted);
  Break(layout.IntentFile("c1"));
  EXPECT_FALSE(Drive(2));
  EXPECT_TRUE(ReadIntent(layout, "c1.json").ok());
  EXPECT_TRUE(Frozen());
}

TEST_P(DamagedFilesTest, JournalAndIntentTogetherAreTheCheckpointsThatHoldsThePod) {
  Leave();
  Break(layout.IntentFile("c1"));
  Break(journal_file_);
  const std::vector<std::string> uids = Start();
  EXPECT_TRUE(Frozen()) << "the store may have committed";
  EXPECT_TRUE(ReadIntent(layout, "c1.json").ok());
  EXPECT_TRUE(DriveAll(uids));
  EXPECT_EQ(cluster.Seen().status.claim->pod_uid, "pod-uid") << "it has won its own claim first";
  ExpectNothingIsHeld();
}

TEST_P(DamagedFilesTest, AllThreeTogetherWaitForTheCheckpointToTell) {
  Leave();
  Break(layout.IntentFile("c1"));
  Break(layout.PodFile("pod-uid"));
  Break(journal_file_);
  cluster.reachable = false;
  std::vector<std::string> uids = Start();
  EXPECT_THAT(uids, ElementsAre("ck-uid", Executor::kDamagedFiles));
  EXPECT_FALSE(DriveAll(uids, 10));
  EXPECT_TRUE(Frozen()) << "nobody can tell whether another copy runs";
  cluster.reachable = true;
  EXPECT_TRUE(DriveAll(uids));
  EXPECT_EQ(cluster.Seen().status.claim->pod_uid, "pod-uid");
  EXPECT_TRUE(cluster.HasEvent("pod/web-0", "JournalDamaged"));
  ExpectNothingIsHeld();
}

TEST_P(DamagedFilesTest, AllThreeTogetherOfAReadyOneWaitForItsEviction) {
  Leave();
  Break(layout.IntentFile("c1"));
  Break(layout.PodFile("pod-uid"));
  Break(journal_file_);
  cluster.checkpoint["status"]["phase"] = "Ready";
  cluster.checkpoint["status"]["manifest"] = {{"store", "default"}, {"id", "ck-uid"}};
  const std::vector<std::string> uids = Start();
  EXPECT_FALSE(DriveAll(uids, 10));
  EXPECT_TRUE(Frozen());
  EXPECT_TRUE(ReadIntent(layout, "c1.json").ok()) << "so that its end is a kill";
  EXPECT_TRUE(Exists(layout.PodFile("pod-uid")));
  node.containers.clear();
  cluster.pods.clear();
  EXPECT_TRUE(DriveAll(uids));
  ExpectNothingIsHeld();
}

TEST_P(DamagedFilesTest, WhatWasNotFinalGoesOnWhenItsEntryWasSeenTo) {
  Leave(false);
  Break(layout.IntentFile("c1"));
  Break(journal_file_);
  EXPECT_TRUE(DriveAll(Start()));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kFailed);
  EXPECT_FALSE(cluster.Seen().status.claim);
  ExpectNothingIsHeld();
}

// The entry is gone altogether, with whatever took it.
TEST_P(DamagedFilesTest, AnIntentThatNoEntryListsIsThawedAndToldOf) {
  Leave();
  ASSERT_TRUE(journal.Remove("ck-uid").ok());
  Break(layout.IntentFile("c1"));
  EXPECT_THAT(Start(), IsEmpty());
  EXPECT_TRUE(cluster.HasEvent("pod/web-0", "IntentDamaged"));
  ExpectNothingIsHeld();
}

TEST_P(DamagedFilesTest, OfAPodThatIsEndingItIsNotThawedWhileWhatHoldsItCannotBeTold) {
  Leave();
  ASSERT_TRUE(journal.Remove("ck-uid").ok());
  Break(layout.IntentFile("c1"));
  Break(layout.PodFile("pod-uid"));
  cluster.pods["default/web-0"]["metadata"]["deletionTimestamp"] = FormatTime(clock.Wall());
  const std::vector<std::string> uids = Start();
  EXPECT_THAT(uids, ElementsAre(Executor::kDamagedFiles));
  EXPECT_FALSE(DriveAll(uids, 10));
  EXPECT_TRUE(Frozen()) << "its successor may have its state";
  node.containers["c1"] = ContainerState::kGone;
  EXPECT_TRUE(DriveAll(uids));
  EXPECT_TRUE(node.thawed.empty() || node.thawed == std::vector<std::string>{"c1"});
  ExpectNothingIsHeld();
}

TEST_P(DamagedFilesTest, AWordThatAPodIsHeldIsWrittenAnewOrTakenBack) {
  Leave();
  Break(layout.PodFile("pod-uid"));
  EXPECT_THAT(Start(), ElementsAre("ck-uid"));
  EXPECT_EQ(*ReadFile(layout.PodFile("pod-uid")), R"({"checkpoint_uid":"ck-uid"})");
  ASSERT_TRUE(RemoveIntents(layout, Entry(Step::kStoring)).ok() && journal.Remove("ck-uid").ok());
  ASSERT_TRUE(WriteFileAtomically(layout.PodFile("pod-uid"), R"({"checkpoint_uid":"ck-uid"})").ok());
  Break(layout.PodFile("pod-uid"));
  node.containers["c1"] = ContainerState::kRunning;
  EXPECT_THAT(Start(), IsEmpty());
  ExpectNothingIsHeld();
}

TEST_P(DamagedFilesTest, TheManifestOfACommitThatWasAskedForIsNotNeededToEndIt) {
  Leave();
  ASSERT_TRUE(journal.Write(Entry(Step::kCommitAsked)).ok());
  ASSERT_TRUE(journal.WriteManifest("ck-uid", store.manifest.Serialize()).ok());
  Break(layout.JournalFolder() + "/ck-uid.manifest");
  EXPECT_TRUE(DriveAll(Start()));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kFailed);
  ExpectNothingIsHeld();
}

TEST_P(DamagedFilesTest, ADumpsResultThatCannotBeReadIsAFailedDump) {
  Leave();
  ASSERT_TRUE(journal.Write(Entry(Step::kDumping)).ok());
  ASSERT_TRUE(WriteFileAtomically(layout.Landing("ck-uid", Place::kDisk) + "/result.json", R"({"ok":true,"reason":"Completed"})").ok());
  if (GetParam() == Damage::kUnknownVersion) return;  // without "ok" it has failed, and says no more
  Break(layout.Landing("ck-uid", Place::kDisk) + "/result.json");
  EXPECT_TRUE(DriveAll(Start()));
  EXPECT_EQ(Reason(), api::reason::kDumpFailed);
  ExpectNothingIsHeld();
}

TEST_P(DamagedFilesTest, WhatIsKeptForPeopleIsBounded) {
  for (int i = 0; i < 40; ++i) {
    const std::string id = "gone" + std::to_string(i);
    ASSERT_TRUE(WriteFileAtomically(layout.IntentFile(id), R"({"checkpoint_uid": "a", "pod_uid": "b"})").ok());
    Break(layout.IntentFile(id));
  }
  EXPECT_THAT(Start(), IsEmpty());
  EXPECT_EQ(ListDir(layout.Damaged())->size(), kDamagedKept);
  EXPECT_THAT(*ListDir(layout.Containers()), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Ways, DamagedFilesTest, Values(Damage::kTruncated, Damage::kEmptied, Damage::kRandom, Damage::kUnknownVersion));

}  // namespace
}  // namespace holdfast::agent
