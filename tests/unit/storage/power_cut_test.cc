// A store's whole life, stopped at every single operation on its files: by a kill, by a power cut, by a full volume, by a broken disk; and
// once more while the next start makes the best of it. And every byte of it flipped.
#include "tests/this_commit.h"
#include "tests/unit/storage/store_life.h"

namespace holdfast::storage {
namespace {

uint64_t StepsOfALife() {
  SimFs fs;
  Life life(fs);
  life.Run();
  EXPECT_EQ(life.told.states["a"], Told::kDeleted);
  EXPECT_EQ(life.told.states["b"], Told::kDeleted);
  EXPECT_EQ(life.told.states["c"], Told::kAborted);
  EXPECT_EQ(life.told.states["d"], Told::kCommitted);
  EXPECT_EQ(life.told.states["f"], Told::kCommitted);
  const uint64_t steps = fs.steps();
  ExpectKept(fs, life.told, "undisturbed");
  return steps;
}

class PowerCut : public ::testing::Test {
 protected:
  PowerCut() { SetLogLevel(LogLevel::kError); }
};

void CrashEverywhere(SimFs::Loss loss, unsigned seeds) {
  const uint64_t steps = StepsOfALife();
  ASSERT_GT(steps, 100U);
  for (uint64_t at = 1; at <= steps && !::testing::Test::HasFailure(); ++at) {
    SimFs fs;
    fs.FailAt(at, SimFs::Fault::kCrash);
    Life life(fs);
    life.Run();
    if (!fs.crashed()) break;
    for (unsigned seed = 0; seed < seeds; ++seed) {
      std::unique_ptr<SimFs> left = fs.AfterCrash(loss, seed);
      ExpectKept(*left, life.told, "stopped at operation " + std::to_string(at) + ", seed " + std::to_string(seed));
    }
  }
}

TEST_F(PowerCut, AKillAtEveryOperationLosesNothing) { CrashEverywhere(SimFs::Loss::kKill, 1); }
TEST_F(PowerCut, LosingAllThatWasNotSyncedAtEveryOperationLosesNothing) { CrashEverywhere(SimFs::Loss::kAllUnsynced, 1); }
TEST_F(PowerCut, LosingSomeOfWhatWasNotSyncedTornAndReorderedLosesNothing) { CrashEverywhere(SimFs::Loss::kSomeUnsynced, 3); }

// What is done after a start: who had no answer asks again, and the store looks after itself. What it says now holds, too.
void Recover(SimFs& fs, Told& told) {
  Result<std::unique_ptr<LocalStore>> opened = LocalStore::Open(OptionsOn(fs));
  if (!opened.ok()) return;
  LocalStore& store = **opened;
  for (const auto& [uid, numbers] : told.contents) {
    Told::State& state = told.states[uid];
    const SessionState now = store.StateOf(uid).value_or(SessionState::kUnknown);
    if (state == Told::kCommitting && now == SessionState::kCommitted) state = Told::kCommitted;
    if (state == Told::kNothing && now == SessionState::kAborted) state = Told::kAborted;
    if (state == Told::kDeleting && store.Delete(uid).ok()) state = Told::kDeleted;
  }
  [[maybe_unused]] Result<CollectReport> collected = store.Collect({.tighten_after = Duration(0), .stop = {}});
  [[maybe_unused]] Status scrubbed = store.Scrub({.bytes_per_second = 0, .every = Duration(0), .stop = {}});
}

// Stopped at every operation of the life, and then at some of the recovery's: other ones each time.
void CrashTwice(SimFs::Loss first, SimFs::Loss second, unsigned times) {
  const uint64_t steps = StepsOfALife();
  for (uint64_t at = 1; at <= steps && !::testing::Test::HasFailure(); ++at) {
    if (testing::IsLeftToOtherCommits(at, 4)) continue;
    SimFs fs;
    fs.FailAt(at, SimFs::Fault::kCrash);
    Life life(fs);
    life.Run();
    if (!fs.crashed()) break;
    const std::unique_ptr<SimFs> left = fs.AfterCrash(first, static_cast<unsigned>(at));
    const std::unique_ptr<SimFs> undisturbed = left->Copy();
    Told all = life.told;
    Recover(*undisturbed, all);
    for (unsigned time = 0; time < times; ++time) {
      const uint64_t again = 1 + (at * 31 + time * 17) % undisturbed->steps();
      const std::unique_ptr<SimFs> recovering = left->Copy();
      recovering->FailAt(again, SimFs::Fault::kCrash);
      Told told = life.told;
      Recover(*recovering, told);
      const std::unique_ptr<SimFs> found = recovering->AfterCrash(second, static_cast<unsigned>(again));
      ExpectKept(*found, told, "stopped at operation " + std::to_string(at) + ", and its recovery at " + std::to_string(again));
    }
  }
}

TEST_F(PowerCut, OneWhileAStartRecoversFromAKillLosesNothing) {
  CrashTwice(SimFs::Loss::kKill, SimFs::Loss::kAllUnsynced, 2);
  CrashTwice(SimFs::Loss::kKill, SimFs::Loss::kSomeUnsynced, 1);
}
TEST_F(PowerCut, OneWhileAStartRecoversFromAnotherLosesNothing) { CrashTwice(SimFs::Loss::kSomeUnsynced, SimFs::Loss::kSomeUnsynced, 2); }

void FailEverywhere(SimFs::Fault fault) {
  const uint64_t steps = StepsOfALife();
  for (uint64_t at = 1; at <= steps && !::testing::Test::HasFailure(); ++at) {
    SimFs fs;
    fs.FailAt(at, fault);
    Life life(fs);
    life.Run();
    // One failure hurts at most what was being done: whoever tries again is served.
    if (life.told.states["f"] != Told::kNothing) {
      EXPECT_EQ(life.told.states["f"], Told::kCommitted) << at << ": " << life.told.errors;
    }
    ExpectKept(fs, life.told, "failed at operation " + std::to_string(at));
  }
}

TEST_F(PowerCut, AnErrorOfTheDiskAtEveryOperationHurtsOnlyWhatWasBeingDone) { FailEverywhere(SimFs::Fault::kInputOutput); }
TEST_F(PowerCut, AFullVolumeAtEveryOperationHurtsOnlyWhatWasBeingDone) { FailEverywhere(SimFs::Fault::kNoSpace); }

TEST_F(PowerCut, AFlippedBitAnywhereHurtsOnlyWhatHasItAndNeverGivesWrongContent) {
  SetLogLevel(LogLevel::kError);
  SimFs fs;
  std::map<std::string, FileEntry> files;
  {
    auto store = Take(LocalStore::Open(OptionsOn(fs)));
    for (const std::string& uid : std::vector<std::string>{"one", "two"}) {
      auto session = Take(store->OpenSession(uid, "ns-" + uid));
      files[uid] = PutLong(*session, "pages", {RandomText(150, 1), RandomText(200, 2)}, 2);
      ASSERT_OK(session->Commit(ManifestOf(uid, "ns-" + uid, {files[uid]})));
      // The first one's pack is written anew, as version 3 has it.
      if (uid == "one") ASSERT_OK(store->Collect({.tighten_after = Duration(0), .stop = {}}));
    }
  }
  size_t hurt_somebody = 0;
  for (const std::string& path : fs.Files()) {
    const size_t size = fs.Content(path).size();
    for (size_t at = 0; at < size; at += fs.Content(path)[at] == '\0' && at % 64 != 0 ? 64 - at % 64 : 1) {
      std::unique_ptr<SimFs> flipped = fs.Copy();
      flipped->Content(path)[at] = static_cast<char>(flipped->Content(path)[at] ^ (1 << (at % 8)));
      const std::string where = path + " at " + std::to_string(at);
      Result<std::unique_ptr<LocalStore>> store = LocalStore::Open(OptionsOn(*flipped));
      if (path == "/store/FORMAT") {
        EXPECT_FALSE(store.ok()) << where;
        continue;
      }
      ASSERT_TRUE(store.ok()) << where << ": " << store.status().ToString();
      int hurt = 0;
      for (const auto& [uid, file] : files) {
        Status damage;
        Result<Manifest> manifest = (*store)->GetManifest(uid);
        if (!manifest.ok()) damage = manifest.status();
        std::vector<SegmentRef> segments;
        if (manifest.ok()) segments = SegmentsOf(**store, uid, manifest->files[0], &damage);
        for (size_t i = 0; i < segments.size(); ++i) {
          Result<std::string> content = (*store)->GetSegment(uid, segments[i]);
          if (!content.ok()) damage = content.status();
          if (content.ok()) {
            ASSERT_TRUE(*content == RandomText(150 + i * 50, static_cast<unsigned>(i) + 1)) << where;
          }
        }
        if (damage.ok()) continue;
        ++hurt;
        EXPECT_EQ(damage.code(), Code::kDataLoss) << where << ": " << damage.ToString();
        EXPECT_THAT(damage.message(), ::testing::HasSubstr(uid)) << where;
      }
      EXPECT_LE(hurt, 1) << where;
      if (path.starts_with("/store/index/")) {
        EXPECT_EQ(hurt, 0) << where;
      }
      hurt_somebody += static_cast<size_t>(hurt);
      store->reset();
      Result<FsckReport> report = Fsck({.dir = "/store", .keks = {kKek}, .fs = flipped.get()}, 1);
      ASSERT_TRUE(report.ok()) << where << report.status().ToString();
      EXPECT_EQ(report->hurt.size(), static_cast<size_t>(hurt)) << where;
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(hurt_somebody, 700U);
}

}  // namespace
}  // namespace holdfast::storage
