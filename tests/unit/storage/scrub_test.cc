// Damage is found before somebody needs what it hurts: where it was, a restart goes on; and beside writers and collections nothing is
// taken for damaged that is not.
#include <thread>

#include "storage/fsck.h"
#include "storage/keys.h"
#include "tests/unit/storage/fixture.h"
#include "tests/unit/storage/sim_fs.h"

namespace holdfast::storage {
namespace {

using std::chrono::hours;

const Kek kKek = MakeKek(Secret{5});
const ScrubOptions kNow{.bytes_per_second = 0, .every = Duration(0), .stop = {}};

LocalStoreOptions OptionsOn(SimFs& fs) {
  return {.dir = "/store", .reserve_bytes = 0, .keks = {kKek}, .packs = {.pack_bytes = 128 << 10, .buffer_bytes = 16 << 10}, .fs = &fs};
}

std::vector<std::string> Contents(unsigned first, unsigned count, size_t size = 20'000) {
  std::vector<std::string> contents;
  for (unsigned i = first; i < first + count; ++i) contents.push_back(RandomText(size, i));
  return contents;
}

FileEntry Keep(LocalStore& store, const std::string& uid, const std::vector<std::string>& contents, const std::string& ns = "default") {
  auto session = Take(store.OpenSession(uid, ns));
  FileEntry file = PutFile(*session, "pages", contents);
  EXPECT_OK(session->Commit(ManifestOf(uid, ns, {file})));
  return file;
}

// Flips a bit of the record of that segment.
void Damage(SimFs& fs, const SegmentId& id) {
  const std::string name(reinterpret_cast<const char*>(id.bytes.data()), id.bytes.size());
  for (const std::string& path : fs.Files()) {
    if (!path.starts_with("/store/packs/")) continue;
    std::string& bytes = fs.Content(path);
    const size_t at = bytes.find(name);
    if (at == std::string::npos) continue;
    bytes[at + 40] = static_cast<char>(bytes[at + 40] ^ 4);
    return;
  }
  FAIL() << "the segment lies nowhere";
}

std::vector<std::string> HurtIds(LocalStore& store) {
  std::vector<std::string> ids;
  for (const HurtCheckpoint& hurt : store.Hurt()) ids.push_back(hurt.id);
  return ids;
}

using Ids = std::vector<std::string>;

// As much time as somebody waits for, and no more.
void LetPass(FakeClock& clock) {
  const MonoTime next = clock.next(), now = clock.Mono();
  if (next != MonoTime::max() && next > now) clock.Advance(next - now);
  std::this_thread::yield();
}

TEST(Scrub, FindsAFlippedBitAndSaysWhomItHurts) {
  SimFs fs;
  auto store = Take(LocalStore::Open(OptionsOn(fs)));
  const FileEntry a = Keep(*store, "uid-a", Contents(1, 12));
  Keep(*store, "uid-b", Contents(1, 3));
  Keep(*store, "uid-c", Contents(40, 12));
  ASSERT_OK(store->Scrub(kNow));
  EXPECT_EQ(HurtIds(*store), Ids{});
  EXPECT_GE(store->Usage()->scrub.read_bytes, 24 * 20'000U);
  EXPECT_EQ(store->Usage()->scrub.passes, 1U);
  Damage(fs, a.segments[1].id);
  Damage(fs, a.segments[9].id);
  ASSERT_OK(store->Scrub(kNow));
  EXPECT_EQ(HurtIds(*store), (Ids{"uid-a", "uid-b"}));
  EXPECT_EQ(store->Hurt()[0].lost_segments, 2U);
  EXPECT_EQ(store->Hurt()[1].lost_segments, 1U);
  EXPECT_EQ(store->Hurt()[0].name, "drain-uid-a");
  EXPECT_THAT(store->Hurt()[1].why, ::testing::HasSubstr(a.segments[1].id.Hex()));
  EXPECT_EQ(store->Usage()->scrub.damaged_segments, 2U);
  // The whole one reads, and of the others all that is whole.
  EXPECT_OK(store->GetSegment("uid-a", a.segments[0]));
  EXPECT_EQ(CodeOf(store->GetSegment("uid-a", a.segments[1])), Code::kDataLoss);
  ASSERT_OK(store->Delete("uid-b"));
  EXPECT_EQ(HurtIds(*store), Ids{"uid-a"});
}

TEST(Scrub, FindsDamageInLeavesAndManifests) {
  SimFs fs;
  auto store = Take(LocalStore::Open(OptionsOn(fs)));
  auto session = Take(store->OpenSession("uid-leaf", "default"));
  const FileEntry leafy = PutLong(*session, "pages", Contents(1, 6), 2);
  ASSERT_OK(session->Commit(ManifestOf("uid-leaf", "default", {leafy})));
  Keep(*store, "uid-plain", Contents(50, 2));
  Keep(*store, "uid-other", Contents(60, 2), "other");
  Damage(fs, leafy.leaves[1].id);
  fs.Content("/store/manifests/uid-other")[100] ^= 1;
  ASSERT_OK(store->Scrub(kNow));
  EXPECT_EQ(HurtIds(*store), (Ids{"uid-leaf", "uid-other"}));
  fs.Content("/store/manifests/uid-other")[100] ^= 1;
  ASSERT_OK(store->Scrub(kNow));
  EXPECT_EQ(HurtIds(*store), Ids{"uid-leaf"}) << "it reads again";
}

TEST(Scrub, ForgetsNoDamageOverARestart) {
  SimFs fs;
  auto store = Take(LocalStore::Open(OptionsOn(fs)));
  const FileEntry a = Keep(*store, "uid-a", Contents(1, 5));
  Damage(fs, a.segments[2].id);
  ASSERT_OK(store->Scrub(kNow));
  store.reset();
  store = Take(LocalStore::Open(OptionsOn(fs)));
  EXPECT_EQ(HurtIds(*store), Ids{"uid-a"}) << "before any pass of this life";
  EXPECT_EQ(store->Usage()->scrub.passes, 1U);
  store.reset();
  // What was written down is damaged itself: nobody is accused, and a pass finds it again.
  fs.Content("/store/scrub")[20] ^= 1;
  store = Take(LocalStore::Open(OptionsOn(fs)));
  EXPECT_EQ(HurtIds(*store), Ids{});
  ASSERT_OK(store->Scrub(kNow));
  EXPECT_EQ(HurtIds(*store), Ids{"uid-a"});
}

TEST(Scrub, SaysSoWhenSomebodyMendedIt) {
  SimFs fs;
  auto store = Take(LocalStore::Open(OptionsOn(fs)));
  const FileEntry a = Keep(*store, "uid-a", Contents(1, 5));
  Damage(fs, a.segments[2].id);
  ASSERT_OK(store->Scrub(kNow));
  ASSERT_EQ(HurtIds(*store), Ids{"uid-a"});
  Keep(*store, "uid-b", Contents(1, 5));  // the store lacks it, so it is given again
  ASSERT_OK(store->Scrub({.bytes_per_second = 0, .every = hours(1), .stop = {}}));
  EXPECT_EQ(HurtIds(*store), Ids{}) << "also when no pass is due";
  EXPECT_OK(store->GetSegment("uid-a", a.segments[2]));
  EXPECT_EQ(store->Usage()->scrub.damaged_segments, 0U);
}

TEST(Scrub, GoesOnWhereItWasAfterARestart) {
  SimFs fs;
  FakeClock clock;
  auto store = Take(LocalStore::Open(OptionsOn(fs), clock));
  Keep(*store, "uid-a", Contents(1, 60));
  const uint64_t live = store->Usage()->object_bytes;
  const size_t packs = store->Usage()->packs;
  ASSERT_GT(packs, 8U);
  // A byte of a pack's life a second: it sleeps after each record, and is stopped in the middle.
  std::stop_source stop;
  Status scrubbed;
  {
    std::jthread scrub([&] { scrubbed = store->Scrub({.bytes_per_second = 20'000, .every = hours(100), .stop = stop.get_token()}); });
    while (store->Usage()->scrub.read_bytes < live / 2) {
      LetPass(clock);
    }
    stop.request_stop();
  }
  ASSERT_OK(scrubbed);
  EXPECT_EQ(store->Usage()->scrub.passes, 0U);
  EXPECT_GT(store->Usage()->scrub.done, 0.2);
  EXPECT_LT(store->Usage()->scrub.done, 0.9);
  const uint64_t before = store->Usage()->scrub.read_bytes;
  store.reset();
  store = Take(LocalStore::Open(OptionsOn(fs), clock));
  ASSERT_OK(store->Scrub({.bytes_per_second = 0, .every = hours(100), .stop = {}}));
  const uint64_t after = store->Usage()->scrub.read_bytes;
  EXPECT_EQ(store->Usage()->scrub.passes, 1U);
  EXPECT_GE(before + after, live) << "all was read";
  EXPECT_LE(before + after, live + (200 << 10)) << "but for one pack, once";
  // The next one begins when it is due.
  ASSERT_OK(store->Scrub({.bytes_per_second = 0, .every = hours(100), .stop = {}}));
  EXPECT_EQ(store->Usage()->scrub.read_bytes, after);
  clock.Advance(hours(101));
  ASSERT_OK(store->Scrub({.bytes_per_second = 0, .every = hours(100), .stop = {}}));
  EXPECT_EQ(store->Usage()->scrub.passes, 2U);
}

TEST(Scrub, ReadsNoFasterThanItMayAndIsDoneInTimeAllTheSame) {
  SimFs fs;
  FakeClock clock;
  auto store = Take(LocalStore::Open(OptionsOn(fs), clock));
  Keep(*store, "uid-a", Contents(1, 60));
  const double live = static_cast<double>(store->Usage()->object_bytes);
  auto pass = [&](uint64_t rate, Duration every) {
    const MonoTime begin = clock.Mono();
    std::atomic<bool> done = false;
    std::jthread scrub([&] {
      EXPECT_OK(store->Scrub({.bytes_per_second = rate, .every = every, .stop = {}}));
      done = true;
    });
    while (!done) {
      LetPass(clock);
    }
    return std::chrono::duration<double>(clock.Mono() - begin).count();
  };
  const double limited = pass(20'000, hours(1));
  EXPECT_GT(limited, live / 20'000 * 0.9);
  EXPECT_LT(limited, live / 20'000 * 2 + 5);
  clock.Advance(hours(2));
  EXPECT_LT(pass(100, hours(1)), 3700) << "at 100 bytes a second it would be three hours";
}

TEST(Scrub, MakesAnewWhatMemoryOrTheOtherCopyKnows) {
  SimFs fs;
  auto store = Take(LocalStore::Open(OptionsOn(fs)));
  const FileEntry a = Keep(*store, "uid-a", Contents(1, 3));
  for (const std::string& path : fs.Files()) {
    if (path == "/store/FORMAT" || path == "/store/keys/default" || path.starts_with("/store/index/")) fs.Content(path)[30] ^= 1;
  }
  ASSERT_OK(store->Scrub(kNow));
  EXPECT_EQ(store->Usage()->scrub.mended_files, 3U);
  EXPECT_EQ(HurtIds(*store), Ids{});
  ASSERT_OK(store->Scrub(kNow));
  EXPECT_EQ(store->Usage()->scrub.mended_files, 3U) << "once";
  store.reset();
  Result<FsckReport> report = Fsck({.dir = "/store", .keks = {kKek}, .fs = &fs}, 1);
  ASSERT_OK(report);
  EXPECT_EQ(report->damaged_indexes, 0U);
  EXPECT_TRUE(report->hurt.empty());
  store = Take(LocalStore::Open(OptionsOn(fs)));
  EXPECT_OK(store->GetSegment("uid-a", a.segments[0]));
}

TEST(Scrub, FindsWhatIsLostOfAPackWithoutIndexAndFooter) {
  SimFs fs;
  auto store = Take(LocalStore::Open(OptionsOn(fs)));
  const FileEntry a = Keep(*store, "uid-a", Contents(1, 3));
  Keep(*store, "uid-b", Contents(1, 1));
  for (const std::string& path : fs.Files()) {
    std::string& bytes = fs.Content(path);
    if (path.starts_with("/store/index/") || path.starts_with("/store/packs/")) bytes[bytes.size() - 5] ^= 1;
  }
  Damage(fs, a.segments[2].id);
  ASSERT_OK(store->Scrub(kNow));
  EXPECT_EQ(HurtIds(*store), Ids{"uid-a"});
  EXPECT_EQ(store->Hurt()[0].lost_segments, 1U);
}

TEST(Scrub, APackThatIsGoneHurtsAllThatNeedsIt) {
  SimFs fs;
  auto store = Take(LocalStore::Open(OptionsOn(fs)));
  Keep(*store, "uid-a", Contents(1, 3));
  for (const std::string& path : fs.Files()) {
    if (path.starts_with("/store/packs/")) ASSERT_OK(fs.Remove(path));
  }
  ASSERT_OK(store->Scrub(kNow));
  EXPECT_EQ(HurtIds(*store), Ids{"uid-a"});
  EXPECT_EQ(store->Hurt()[0].lost_segments, 3U);
}

TEST(Scrub, OneReadThatFailsIsNotDamage) {
  SimFs fs;
  auto store = Take(LocalStore::Open(OptionsOn(fs)));
  Keep(*store, "uid-a", Contents(1, 8));
  const uint64_t begin = fs.steps();
  ASSERT_OK(store->Scrub(kNow));
  const uint64_t steps = fs.steps() - begin;
  ASSERT_GT(steps, 10U);
  for (uint64_t at = 1; at <= steps; ++at) {
    fs.FailAt(at, SimFs::Fault::kInputOutput);
    [[maybe_unused]] Status scrubbed = store->Scrub(kNow);
    EXPECT_EQ(HurtIds(*store), Ids{}) << at;
    EXPECT_EQ(store->Usage()->scrub.damaged_segments, 0U) << at;
  }
}

TEST(Scrub, AccusesNobodyBesideWritersDeletionsAndCollections) {
  TempDir dir;
  LocalStoreOptions options{
      .dir = dir / "store", .reserve_bytes = 0, .keks = {kKek}, .packs = {.pack_bytes = 256 << 10, .buffer_bytes = 32 << 10}};
  auto store = Take(LocalStore::Open(options));
  std::atomic<bool> done = false;
  {
    std::jthread scrub([&] {
      while (!done) EXPECT_OK(store->Scrub(kNow));
    });
    std::jthread collect([&] {
      while (!done) EXPECT_OK(store->Collect({}));
    });
    for (unsigned round = 0; round < 60; ++round) {
      Keep(*store, "uid-" + std::to_string(round), Contents(round * 3, 12, 9000));
      if (round >= 4) ASSERT_OK(store->Delete("uid-" + std::to_string(round - 4)));
    }
    done = true;
  }
  ASSERT_OK(store->Scrub(kNow));
  EXPECT_EQ(HurtIds(*store), Ids{});
  EXPECT_EQ(store->Usage()->scrub.damaged_segments, 0U);
  EXPECT_EQ(store->Usage()->scrub.mended_files, 0U);
  EXPECT_GT(store->Usage()->scrub.passes, 1U);
  store.reset();
  Result<FsckReport> report = Fsck({.dir = dir / "store", .keks = {kKek}, .fs = nullptr});
  ASSERT_OK(report);
  EXPECT_TRUE(report->hurt.empty());
}

}  // namespace
}  // namespace holdfast::storage
