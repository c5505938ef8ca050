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

// What the flip of a bit is tried on.
struct Scene {
  std::map<std::string, std::string> namespaces;  // of the checkpoints, by uid
  std::map<std::string, FileEntry> files;
  std::map<std::string, std::vector<unsigned>> contents;
  SimFs fs;

  static std::string Text(unsigned number) { return RandomText(100 + 50 * number, number); }
  // Two segments a leaf. The first one's pack is written anew, as version 3 has it.
  void Add(LocalStore& store, const std::string& uid, const std::string& ns, const std::vector<unsigned>& numbers) {
    std::vector<std::string> texts;
    for (unsigned number : numbers) texts.push_back(Text(number));
    auto session = Take(store.OpenSession(uid, ns));
    const FileEntry file = PutLong(*session, "pages", texts, 2);
    EXPECT_OK(session->Commit(ManifestOf(uid, ns, {file})));
    if (files.empty()) EXPECT_OK(store.Collect({.tighten_after = Duration(0), .stop = {}}));
    namespaces[uid] = ns;
    files[uid] = file;
    contents[uid] = numbers;
  }
};

using Ids = std::set<std::string>;

// Of whom something cannot be read, and which of `lost` (segments and leaves, in hexadecimal).
Ids ReadersHurt(LocalStore& store, const Scene& scene, const std::string& where, Ids& lost) {
  Ids hurt;
  for (const auto& [uid, file] : scene.files) {
    auto damaged = [&, uid = uid](const Status& status, const std::string& what) {
      hurt.insert(uid);
      if (!what.empty()) lost.insert(what);
      EXPECT_EQ(status.code(), Code::kDataLoss) << where << ": " << status.ToString();
      EXPECT_THAT(status.message(), ::testing::HasSubstr(uid)) << where;
    };
    Result<Manifest> manifest = store.GetManifest(uid);
    if (!manifest.ok()) {
      damaged(manifest.status(), "");
      continue;
    }
    const std::vector<unsigned>& numbers = scene.contents.at(uid);
    for (size_t i = 0; i < file.leaves.size(); ++i) {
      std::vector<SegmentRef> segments;
      Status read = ReadLeaves(store, uid, std::span(file.leaves).subspan(i, 1), [&](size_t, const std::vector<SegmentRef>& part) {
        segments = part;
        return Status::Ok();
      });
      if (!read.ok()) damaged(read, file.leaves[i].id.Hex());
      for (size_t j = 0; j < segments.size(); ++j) {
        Result<std::string> content = store.GetSegment(uid, segments[j]);
        if (!content.ok()) damaged(content.status(), segments[j].id.Hex());
        EXPECT_TRUE(!content.ok() || *content == Scene::Text(numbers[2 * i + j])) << where;
      }
    }
  }
  return hurt;
}

Ids HurtIn(const std::vector<HurtCheckpoint>& checkpoints) {
  Ids ids;
  for (const HurtCheckpoint& hurt : checkpoints) ids.insert(hurt.id);
  return ids;
}

// Whom damage to `path` may hurt at most.
Ids MayBeHurt(const Scene& scene, const std::string& path) {
  Ids ids;
  for (const auto& [uid, ns] : scene.namespaces) {
    if (path == "/store/manifests/" + uid || path == "/store/keys/" + ns || path.starts_with("/store/packs/" + ns + "/")) ids.insert(uid);
  }
  return ids;
}

// How many flips hurt somebody, and how many hurt more than one.
struct Flips {
  size_t hurt_one = 0, hurt_more = 0;
};

void Flip(Scene& scene, const std::string& path, size_t at, bool scrubbed, Flips& flips) {
  const std::string where = path + " at " + std::to_string(at);
  const ScrubOptions now{.bytes_per_second = 0, .every = Duration(0), .stop = {}};
  auto flip = [&](SimFs& fs) { fs.Content(path)[at] = static_cast<char>(fs.Content(path)[at] ^ (1 << (at % 8))); };
  const std::unique_ptr<SimFs> flipped = scene.fs.Copy();
  flip(*flipped);
  Ids lost, hurt;
  {
    Result<std::unique_ptr<LocalStore>> store = LocalStore::Open(OptionsOn(*flipped));
    if (path == "/store/FORMAT") {
      EXPECT_FALSE(store.ok()) << where;
      return;
    }
    ASSERT_TRUE(store.ok()) << where << ": " << store.status().ToString();
    hurt = ReadersHurt(**store, scene, where, lost);
  }
  EXPECT_THAT(MayBeHurt(scene, path), ::testing::IsSupersetOf(hurt)) << where;
  // One record is damaged, and all who have it are hurt, nobody else.
  EXPECT_LE(lost.size(), 1U) << where;
  for (const auto& [uid, file] : scene.files) {
    for (size_t i = 0; i < file.leaves.size() && lost.size() == 1; ++i) {
      EXPECT_TRUE(hurt.contains(uid) || !lost.contains(file.leaves[i].id.Hex())) << where;
    }
  }
  flips.hurt_one += hurt.size() == 1 ? 1 : 0;
  flips.hurt_more += hurt.size() > 1 ? 1 : 0;
  Result<FsckReport> report = Fsck({.dir = "/store", .keks = {kKek}, .fs = flipped.get()}, 1);
  ASSERT_TRUE(report.ok()) << where << report.status().ToString();
  EXPECT_EQ(HurtIn(report->hurt), hurt) << where;
  if (!scrubbed) return;
  // The scrub of a later life finds the same, also when nobody has read it.
  auto later = Take(LocalStore::Open(OptionsOn(*flipped)));
  ASSERT_OK(later->Scrub(now));
  EXPECT_EQ(HurtIn(later->Hurt()), hurt) << where;
  // And that of a life in which it happened: but keys and FORMAT it knows, and writes them anew.
  const std::unique_ptr<SimFs> living = scene.fs.Copy();
  auto store = Take(LocalStore::Open(OptionsOn(*living)));
  flip(*living);
  ASSERT_OK(store->Scrub(now));
  EXPECT_EQ(HurtIn(store->Hurt()), path.starts_with("/store/keys/") ? Ids() : hurt) << where;
}

// Every `stride`th byte that says something.
Flips FlipEverywhere(Scene& scene, size_t stride) {
  SetLogLevel(LogLevel::kError);
  Flips flips;
  size_t part = 0;
  for (const std::string& path : scene.fs.Files()) {
    const std::string content = scene.fs.Content(path);
    for (size_t at = 0; at < content.size(); at += content[at] == '\0' && at % 64 != 0 ? 64 - at % 64 : 1) {
      if (++part % stride != 0 || testing::IsLeftToOtherCommits(part / stride, 4)) continue;
      Flip(scene, path, at, part / stride % 4 < 2, flips);
      if (::testing::Test::HasFailure()) return flips;
    }
  }
  return flips;
}

TEST_F(PowerCut, AFlippedBitAnywhereHurtsOnlyWhatHasItAndNeverGivesWrongContent) {
  Scene scene;
  {
    auto store = Take(LocalStore::Open(OptionsOn(scene.fs)));
    scene.Add(*store, "one", "ns-one", {1, 2});
    scene.Add(*store, "two", "ns-two", {1, 2});
  }
  const Flips flips = FlipEverywhere(scene, 1);
  EXPECT_EQ(flips.hurt_more, 0U);
  EXPECT_GT(flips.hurt_one, testing::InGate() ? 175U : 700U);
}

TEST_F(PowerCut, AFlippedBitHurtsAllWhoShareWhatHasItAndNobodyElse) {
  Scene scene;
  {
    auto store = Take(LocalStore::Open(OptionsOn(scene.fs)));
    scene.Add(*store, "one", "ns", {1, 2, 3, 4});  // a leaf is shared, and of another one a segment
    scene.Add(*store, "two", "ns", {1, 2, 3, 5});
  }
  const Flips flips = FlipEverywhere(scene, 3);
  EXPECT_GT(flips.hurt_more, testing::InGate() ? 50U : 200U);
  EXPECT_GT(flips.hurt_one, testing::InGate() ? 50U : 200U);
}

TEST_F(PowerCut, AFlippedBitHurtsNoNeighbourInTheSameNamespace) {
  Scene scene;
  {
    auto store = Take(LocalStore::Open(OptionsOn(scene.fs)));
    scene.Add(*store, "one", "ns", {1, 2});
    scene.Add(*store, "two", "ns", {3, 4});
  }
  const Flips flips = FlipEverywhere(scene, 3);
  EXPECT_LE(flips.hurt_more, 52U) << "but for the keys of their namespace";
  EXPECT_GT(flips.hurt_one, testing::InGate() ? 60U : 240U);
}

}  // namespace
}  // namespace holdfast::storage
