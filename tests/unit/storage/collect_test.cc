// Space comes back, and nobody who was told that a segment is there loses it meanwhile.
#include <condition_variable>
#include <thread>

#include "storage/fsck.h"
#include "tests/unit/storage/fixture.h"
#include "tests/unit/storage/sim_fs.h"

namespace holdfast::storage {
namespace {

const Kek kKek = MakeKek(Secret{7});

LocalStoreOptions OptionsOn(SimFs& fs, uint64_t reserve_bytes = 0) {
  return {.dir = "/store",
          .reserve_bytes = reserve_bytes,
          .keks = {kKek},
          .packs = {.pack_bytes = 256 << 10, .buffer_bytes = 32 << 10},
          .fs = &fs};
}

std::vector<std::string> Contents(unsigned first, unsigned count, size_t size = 20'000) {
  std::vector<std::string> contents;
  for (unsigned i = first; i < first + count; ++i) contents.push_back(RandomText(size, i));
  return contents;
}

void Keep(LocalStore& store, const std::string& uid, const std::vector<std::string>& contents) {
  auto session = Take(store.OpenSession(uid, "default"));
  FileEntry file = PutFile(*session, "pages", contents);
  ASSERT_OK(session->Commit(ManifestOf(uid, "default", {file})));
}

void ExpectContents(LocalStore& store, const std::string& uid, const std::vector<std::string>& contents) {
  Manifest manifest = Take(store.GetManifest(uid));
  ASSERT_EQ(manifest.files[0].segments.size(), contents.size());
  for (size_t i = 0; i < contents.size(); ++i) {
    EXPECT_TRUE(store.GetSegment(uid, manifest.files[0].segments[i]).value_or("") == contents[i]) << uid << " " << i;
  }
}

void ExpectWhole(SimFs& fs) {
  Result<FsckReport> report = Fsck({.dir = "/store", .keks = {kKek}, .fs = &fs}, 1);
  ASSERT_OK(report);
  EXPECT_TRUE(report->hurt.empty());
  EXPECT_EQ(report->damaged_objects, 0U);
}

TEST(Collect, WritesAPackAnewWhenMuchOfItIsDead) {
  SimFs fs;
  auto store = Take(LocalStore::Open(OptionsOn(fs)));
  std::vector<std::string> all = Contents(1, 10), kept = Contents(1, 4);
  Keep(*store, "uid-1", all);
  Keep(*store, "uid-2", kept);
  const uint64_t full = store->Usage()->pack_bytes;
  ASSERT_OK(store->Collect({}));
  EXPECT_EQ(store->Usage()->pack_bytes, full) << "all of it is needed";
  ASSERT_OK(store->Delete("uid-1"));
  CollectReport report = Take(store->Collect({}));
  EXPECT_EQ(report.repacked, 1U);
  EXPECT_LT(store->Usage()->pack_bytes, full / 2);
  ExpectContents(*store, "uid-2", kept);
  EXPECT_EQ(Take(store->Collect({})).repacked, 0U) << "once is enough";
  store.reset();
  ExpectWhole(fs);
  store = Take(LocalStore::Open(OptionsOn(fs)));
  ExpectContents(*store, "uid-2", kept);
}

TEST(Collect, MakesOnePackOfManySmallOnes) {
  SimFs fs;
  auto store = Take(LocalStore::Open(OptionsOn(fs)));
  for (unsigned i = 0; i < 20; ++i) Keep(*store, "uid-" + std::to_string(i), Contents(i, 1, 1000));
  EXPECT_EQ(store->Usage()->packs, 20U);
  ASSERT_OK(store->Collect({}));
  EXPECT_EQ(store->Usage()->packs, 1U);
  for (unsigned i = 0; i < 20; ++i) ExpectContents(*store, "uid-" + std::to_string(i), Contents(i, 1, 1000));
}

// What zstd shortens and LZ4 does not.
std::vector<std::string> Nibbles(unsigned first, unsigned count) {
  std::vector<std::string> contents = Contents(first, count);
  for (std::string& content : contents) {
    for (char& c : content) c &= 15;
  }
  return contents;
}

TEST(Collect, CompressesOnceMoreWhatHasLasted) {
  SimFs fs;
  FakeClock clock;
  auto store = Take(LocalStore::Open(OptionsOn(fs), clock));
  const std::vector<std::string> nibbles = Nibbles(1, 20), noise = Contents(50, 5);
  Keep(*store, "uid-1", nibbles);
  Keep(*store, "uid-2", noise);
  const CollectOptions options{.tighten_after = std::chrono::hours(1), .stop = {}};
  const uint64_t before = store->Usage()->pack_bytes;
  EXPECT_EQ(Take(store->Collect(options)).tightened, 0U) << "not yet";
  EXPECT_EQ(Take(store->Collect({})).tightened, 0U) << "never";
  EXPECT_THAT(fs.Content("/store/FORMAT"), ::testing::StartsWith("holdfast-store 2 ")) << "an older release can still have it";
  clock.Advance(std::chrono::hours(1));
  EXPECT_GE(Take(store->Collect(options)).tightened, 2U);
  EXPECT_THAT(fs.Content("/store/FORMAT"), ::testing::StartsWith("holdfast-store 3 "));
  EXPECT_LT(store->Usage()->pack_bytes, before * 7 / 10);
  ExpectContents(*store, "uid-1", nibbles);
  ExpectContents(*store, "uid-2", noise);
  clock.Advance(std::chrono::hours(24));
  EXPECT_EQ(Take(store->Collect(options)).repacked, 0U) << "once is enough, also for what does not gain";

  store.reset();
  ExpectWhole(fs);
  store = Take(LocalStore::Open(OptionsOn(fs), clock));
  clock.Advance(std::chrono::hours(24));
  EXPECT_EQ(Take(store->Collect(options)).repacked, 0U) << "the packs say so themselves";
  ExpectContents(*store, "uid-1", nibbles);
  // What comes now is new, and what both have is not sent again.
  Keep(*store, "uid-3", Nibbles(15, 10));
  ASSERT_OK(store->Delete("uid-1"));
  clock.Advance(std::chrono::hours(2));
  ASSERT_OK(store->Collect(options));
  ExpectContents(*store, "uid-3", Nibbles(15, 10));
  ExpectContents(*store, "uid-2", noise);
  for (const char* uid : {"uid-2", "uid-3"}) ASSERT_OK(store->Delete(uid));
  ASSERT_OK(store->Collect({}));
  EXPECT_EQ(store->Usage()->pack_bytes, 0U);
}

TEST(Collect, APackWithoutItsIndexIsStillTight) {
  SimFs fs;
  FakeClock clock;
  const CollectOptions at_once{.tighten_after = Duration(0), .stop = {}};
  auto store = Take(LocalStore::Open(OptionsOn(fs), clock));
  Keep(*store, "uid-1", Nibbles(1, 5));
  EXPECT_EQ(Take(store->Collect(at_once)).tightened, 1U);
  store.reset();
  for (const std::string& path : fs.Files()) {
    if (path.starts_with("/store/index/")) ASSERT_OK(fs.Remove(path));
  }
  store = Take(LocalStore::Open(OptionsOn(fs), clock));
  EXPECT_EQ(Take(store->Collect(at_once)).repacked, 0U);
  store.reset();
  // Without its footer, too, nobody knows any more; but nothing is lost.
  for (const std::string& path : fs.Files()) {
    if (path.starts_with("/store/index/")) ASSERT_OK(fs.Remove(path));
    if (path.starts_with("/store/packs/")) fs.Content(path).back() ^= 1;
  }
  store = Take(LocalStore::Open(OptionsOn(fs), clock));
  ExpectContents(*store, "uid-1", Nibbles(1, 5));
  ASSERT_OK(store->Collect(at_once));
  ExpectContents(*store, "uid-1", Nibbles(1, 5));
}

TEST(Collect, LeavesADamagedPackAsItIs) {
  SimFs fs;
  auto store = Take(LocalStore::Open(OptionsOn(fs)));
  Keep(*store, "uid-1", Contents(1, 10));
  Keep(*store, "uid-2", Contents(1, 2));
  for (const std::string& path : fs.Files()) {
    if (path.starts_with("/store/packs/")) fs.Content(path)[400] ^= 1;
  }
  ASSERT_OK(store->Delete("uid-1"));
  ASSERT_OK(store->Collect({}));
  Manifest manifest = Take(store->GetManifest("uid-2"));
  EXPECT_EQ(CodeOf(store->GetSegment("uid-2", manifest.files[0].segments[0])), Code::kDataLoss);
  EXPECT_OK(store->GetSegment("uid-2", manifest.files[0].segments[1]));
}

TEST(Collect, WorksOnAFullVolumeWithItsReserve) {
  SimFs fs(1 << 20);
  auto store = Take(LocalStore::Open(OptionsOn(fs, /*reserve_bytes=*/512 << 10)));
  std::vector<std::string> mostly_dead = Contents(1, 12), kept = Contents(1, 6);
  Keep(*store, "uid-1", mostly_dead);
  Keep(*store, "uid-2", kept);
  // Somebody else fills the volume to the last byte.
  {
    auto hog = Take(fs.Create("/somebody"));
    while (hog->WriteAt(hog->Size().value_or(0), AsBytes(std::string(1024, 'x'))).ok()) {
    }
  }
  ASSERT_OK(store->Delete("uid-1"));
  ASSERT_OK(store->Collect({}));
  EXPECT_LT(store->Usage()->pack_bytes, 200'000U);
  ExpectContents(*store, "uid-2", kept);
  store.reset();
  ExpectWhole(fs);
}

TEST(Collect, AWriterThatSleptThroughItFindsWhatItWasTold) {
  SimFs fs;
  auto store = Take(LocalStore::Open(OptionsOn(fs)));
  std::vector<std::string> shared = Contents(1, 8);
  Keep(*store, "uid-1", shared);
  auto sleeper = Take(store->OpenSession("uid-2", "default"));
  Manifest manifest = Take(store->GetManifest("uid-1"));
  std::vector<SegmentId> ids;
  for (size_t i = 0; i < 3; ++i) ids.push_back(manifest.files[0].segments[i].id);
  EXPECT_EQ(sleeper->Missing(ids).value_or({}), std::vector<bool>(3, false));
  ASSERT_OK(store->Delete("uid-1"));
  EXPECT_EQ(Take(store->Collect({})).repacked, 1U);
  ASSERT_OK(sleeper->Commit(ManifestOf("uid-2", "default", {PutFile(*sleeper, "pages", Contents(1, 3))})));
  ExpectContents(*store, "uid-2", Contents(1, 3));
}

TEST(Collect, AWriterThatWasGivenUpWhileItSleptCommitsNothing) {
  SimFs fs;
  FakeClock clock;
  LocalStoreOptions options = OptionsOn(fs);
  options.session_idle = std::chrono::hours(1);
  auto store = Take(LocalStore::Open(options, clock));
  Keep(*store, "uid-1", Contents(1, 8));
  auto sleeper = Take(store->OpenSession("uid-2", "default"));
  FileEntry file = PutFile(*sleeper, "pages", Contents(1, 3));
  ASSERT_OK(store->Delete("uid-1"));
  clock.Advance(std::chrono::hours(2));
  store->ExpireSessions();
  ASSERT_OK(store->Collect({}));
  EXPECT_EQ(store->Usage()->pack_bytes, 0U);
  EXPECT_EQ(CodeOf(sleeper->Commit(ManifestOf("uid-2", "default", {file}))), Code::kFailedPrecondition);
  EXPECT_EQ(CodeOf(sleeper->Put(file.segments[0].id, Codec::kRaw, 20'000, AsBytes(Contents(1, 1)[0]))), Code::kFailedPrecondition);
  sleeper.reset();
  store.reset();
  ExpectWhole(fs);
}

TEST(Collect, AWriterStoppedInTheMiddleOfAWriteGoesOnAfterIt) {
  SimFs fs;
  auto store = Take(LocalStore::Open(OptionsOn(fs)));
  std::vector<std::string> shared = Contents(1, 8), mine = Contents(1, 2);
  for (const std::string& more : Contents(50, 6)) mine.push_back(more);
  Keep(*store, "uid-1", shared);
  std::mutex mutex;
  std::condition_variable changed;
  bool stopped = false, go_on = false;
  std::atomic<bool> armed{true};
  const auto writer_thread = std::make_shared<std::atomic<std::thread::id>>();
  fs.OnWrite([&, writer_thread](const std::string& path) {
    if (!path.starts_with("/store/packs/") || std::this_thread::get_id() != writer_thread->load() || !armed.exchange(false)) return;
    std::unique_lock lock(mutex);
    stopped = true;
    changed.notify_all();
    changed.wait(lock, [&] { return go_on; });
  });
  std::jthread writer([&] {
    *writer_thread = std::this_thread::get_id();
    Keep(*store, "uid-2", mine);
  });
  {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return stopped; }));
  }
  ASSERT_OK(store->Delete("uid-1"));
  ASSERT_OK(store->Collect({}));
  {
    std::lock_guard lock(mutex);
    go_on = true;
  }
  changed.notify_all();
  writer.join();
  ExpectContents(*store, "uid-2", mine);
  store.reset();
  ExpectWhole(fs);
}

TEST(CompactTable, FindsEverythingAndTakesLittle) {
  CompactTable<ObjectInfo> table;
  std::mt19937_64 random(1);
  auto key = [](uint64_t number) {
    SegmentId id;
    memcpy(id.bytes.data(), &number, sizeof number);  // much alike: not as hashes are
    return IdKey(id);
  };
  std::map<uint64_t, uint32_t> model;
  for (uint32_t i = 0; i < 60'000; ++i) {
    const uint64_t number = random() % 30'000;
    if (random() % 3 == 0) {
      table.Erase(key(number));
      model.erase(number);
    } else {
      table.Insert(key(number)).first->refs = i;
      model[number] = i;
    }
  }
  ASSERT_EQ(table.size(), model.size());
  for (uint64_t number = 0; number < 30'000; ++number) {
    ObjectInfo* found = table.Find(key(number));
    auto known = model.find(number);
    ASSERT_EQ(found != nullptr, known != model.end()) << number;
    if (found != nullptr) {
      ASSERT_EQ(found->refs, known->second);
    }
  }
  for (uint64_t number = 100'000; number < 300'000; ++number) table.Insert(key(number));
  EXPECT_LT(table.memory_bytes() / table.size(), 64U);
  table.ForEach([&](const ObjectInfo& object) { model.erase(object.key.low); });
  EXPECT_TRUE(model.empty());
}

}  // namespace
}  // namespace holdfast::storage
