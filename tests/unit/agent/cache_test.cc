// Checkpoints that stay on their node: within a budget, never where the disk has no room, and never used when they are not what was stored.
#include "agent/cache.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "fakes.h"
#include "storage/local_store.h"

namespace holdfast::agent {
namespace {

class CacheTest : public testing::Test {
 protected:
  CacheTest() {
    layout.run = dir.path() + "/run";
    layout.state = dir.path() + "/state";
    EXPECT_TRUE(layout.Make().ok());
    Result<std::unique_ptr<storage::LocalStore>> opened = storage::LocalStore::Open({.dir = dir.path() + "/store", .reserve_bytes = 0});
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    store = std::move(*opened);
    stores = std::make_unique<Stores>(std::map<std::string, storage::Store*>{{"default", store.get()}}, nullptr, clock);
    Restart();
  }
  void Restart() {
    cache =
        std::make_unique<Cache>(CacheOptions{.max_bytes = max_bytes, .free_part = [this] { return free_part; }}, layout, *stores, clock);
    cache->Recover();
  }

  // A checkpoint of `bytes` that was stored and whose landing folder is still there. Returns its manifest.
  std::string Land(const std::string& uid, size_t bytes = 300'000, Place place = Place::kDisk) {
    const std::string landing = layout.Landing(uid, place);
    EXPECT_TRUE(MakeDirs(landing + "/main/images").ok());
    std::string pages(bytes - 5, 'p');
    for (size_t i = 0; i < pages.size(); i += 1000)
      pages.replace(i, 8, std::to_string(10'000'000 + i).substr(0, std::min<size_t>(8, pages.size() - i)));
    pages.resize(bytes - 5);
    EXPECT_TRUE(WriteFileAtomically(landing + "/main/images/pages-1.img", uid.substr(0, 3) + "." + "\n" + pages).ok());
    Result<std::unique_ptr<storage::Session>> session = store->OpenSession(uid, "default");
    EXPECT_TRUE(session.ok());
    Result<std::vector<storage::FileEntry>> files = storage::Ingest(landing, **session, {});
    EXPECT_TRUE(files.ok());
    storage::Manifest manifest;
    manifest.ns = "default";
    manifest.checkpoint = "ck";
    manifest.checkpoint_uid = uid;
    manifest.created = "2026-01-01T00:00:00Z";
    manifest.files = *files;
    EXPECT_TRUE((*session)->Commit(manifest).ok());
    return manifest.Serialize();
  }
  void Adopt(const std::string& uid, size_t bytes = 300'000) {
    const std::string manifest = Land(uid, bytes);
    cache->Adopt(layout.Landing(uid, Place::kDisk), manifest, "default");
    clock.Advance(std::chrono::seconds(1));
  }
  bool Has(const std::string& uid) const {
    return Exists(layout.state + "/cache/" + uid) && Exists(layout.state + "/cache/" + uid + ".json");
  }
  std::string Pages(const std::string& folder) const { return ReadFile(folder + "/main/images/pages-1.img").value_or(""); }
  std::vector<std::string> Kept() const { return ListDir(layout.state + "/cache").value_or({}); }

  TempDir dir;
  FakeClock clock;
  Layout layout;
  uint64_t max_bytes = 1'000'000;
  double free_part = 0.5;
  std::unique_ptr<storage::LocalStore> store;
  std::unique_ptr<Stores> stores;
  std::unique_ptr<Cache> cache;
  const std::string to = dir.path() + "/state/restore/pod";
};

TEST_F(CacheTest, GivesALandingFolderBackWholeAndOnce) {
  Adopt("one");
  EXPECT_FALSE(Exists(layout.Landing("one", Place::kDisk)));
  EXPECT_EQ(cache->bytes(), 300'000U);
  ASSERT_TRUE(MakeDirs(to + "/of an earlier try").ok());
  ASSERT_EQ(symlink("/etc", (layout.state + "/cache/one/main/link").c_str()), 0);
  Status taken = cache->Take("one", to, {});
  ASSERT_TRUE(taken.ok()) << taken.ToString();
  EXPECT_EQ(Pages(to).size(), 300'000U);
  EXPECT_FALSE(Exists(to + "/of an earlier try"));
  EXPECT_FALSE(Exists(to + "/main/link")) << "it was not stored";
  EXPECT_EQ(cache->bytes(), 0U);
  EXPECT_THAT(Kept(), testing::IsEmpty());
  EXPECT_EQ(cache->Take("one", to, {}).code(), Code::kNotFound) << "it is the first pod's";
  EXPECT_EQ(cache->Take("none", to, {}).code(), Code::kNotFound);
  EXPECT_EQ(cache->Take("../store", to, {}).code(), Code::kInvalidArgument);
}

TEST_F(CacheTest, WhatWasDumpedIntoMemoryIsCopied) {
  std::string memory = "/dev/shm/holdfast-cache-XXXXXX";
  ASSERT_NE(mkdtemp(memory.data()), nullptr);
  ASSERT_TRUE(MakeDirs(layout.run).ok());
  ASSERT_EQ(symlink(memory.c_str(), layout.Memory().c_str()), 0);
  const std::string manifest = Land("one", 3'000'000, Place::kMemory), landing = layout.Landing("one", Place::kMemory);
  max_bytes = 3'000'000;
  Restart();
  cache->Adopt(landing, manifest, "default");
  EXPECT_TRUE(Has("one"));
  EXPECT_THAT(Kept(), testing::ElementsAre("one", "one.json"));
  EXPECT_TRUE(Exists(landing)) << "whoever made it removes it";
  Status taken = cache->Take("one", to, {});
  EXPECT_TRUE(taken.ok()) << taken.ToString();
  EXPECT_EQ(Pages(to).size(), 3'000'000U);
  // What is not whole is not kept, and leaves nothing.
  const std::string second = Land("two", 300'000, Place::kMemory);
  ASSERT_TRUE(RemoveAll(layout.Landing("two", Place::kMemory) + "/main/images/pages-1.img").ok());
  cache->Adopt(layout.Landing("two", Place::kMemory), second, "default");
  EXPECT_THAT(Kept(), testing::IsEmpty());
  // An agent that died while it copied.
  ASSERT_TRUE(MakeDirs(layout.state + "/cache/three.copy/main").ok());
  Restart();
  EXPECT_THAT(Kept(), testing::IsEmpty());
  ASSERT_TRUE(RemoveAll(memory).ok());
}

TEST_F(CacheTest, WhatIsNotWhatWasStoredIsNotUsed) {
  const std::vector<std::function<void(const std::string&)>> damages = {
      [](const std::string& images) {
        std::fstream file(images + "/main/images/pages-1.img", std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(123'456);
        file.put('!');
      },
      [](const std::string& images) { EXPECT_EQ(truncate((images + "/main/images/pages-1.img").c_str(), 299'999), 0); },
      [](const std::string& images) { EXPECT_EQ(chmod((images + "/main/images/pages-1.img").c_str(), 0644), 0); },
      [](const std::string& images) { EXPECT_EQ(unlink((images + "/main/images/pages-1.img").c_str()), 0); },
      [](const std::string& images) { EXPECT_TRUE(WriteFileAtomically(images + "/main/images/more.img", "x").ok()); },
      [](const std::string& images) { EXPECT_TRUE(WriteFileAtomically(images + ".json", "{}").ok()); },
      [](const std::string& images) { EXPECT_TRUE(WriteFileAtomically(images + ".json", "not JSON").ok()); },
  };
  for (size_t i = 0; i < damages.size(); ++i) {
    const std::string uid = "one-" + std::to_string(i);
    Adopt(uid);
    ASSERT_TRUE(Has(uid)) << i;
    damages[i](layout.state + "/cache/" + uid);
    EXPECT_EQ(cache->Take(uid, to, {}).code(), Code::kNotFound) << i;
    EXPECT_FALSE(Exists(to)) << i;
    EXPECT_THAT(Kept(), testing::IsEmpty()) << i;
  }
}

TEST_F(CacheTest, TheOldestGoesWhenTheBudgetIsSpent) {
  for (const char* uid : {"one", "two", "three", "four"}) Adopt(uid);
  EXPECT_FALSE(Has("one"));
  EXPECT_TRUE(Has("two") && Has("three") && Has("four"));
  EXPECT_LE(cache->bytes(), max_bytes);
  Adopt("huge", 1'000'001);
  EXPECT_FALSE(Has("huge"));
  EXPECT_TRUE(Exists(layout.Landing("huge", Place::kDisk))) << "whoever made it removes it";
  EXPECT_TRUE(Has("two")) << "nothing goes for what does not fit anyhow";
}

TEST_F(CacheTest, ADiskWithLittleRoomKeepsNothing) {
  Adopt("one");
  Adopt("two");
  free_part = 0.19;
  Adopt("three");
  EXPECT_FALSE(Has("three"));
  cache->Sweep({"one", "two"});
  EXPECT_TRUE(Has("one") && Has("two")) << "there is some";
  // Room comes back with the first that goes.
  free_part = 0.1;
  const std::string first = layout.state + "/cache/one";
  cache = std::make_unique<Cache>(CacheOptions{.max_bytes = max_bytes, .free_part = [&] { return Exists(first) ? 0.1 : 0.3; }}, layout,
                                  *stores, clock);
  cache->Recover();
  cache->Sweep({"one", "two"});
  EXPECT_FALSE(Has("one"));
  EXPECT_TRUE(Has("two"));
}

TEST_F(CacheTest, GoesWithItsCheckpoint) {
  Adopt("one");
  Adopt("two");
  cache->Sweep({"two"});
  EXPECT_FALSE(Has("one"));
  EXPECT_TRUE(Has("two"));
}

TEST_F(CacheTest, SurvivesARestartAndWhatWasNotFinishedDoesNot) {
  Adopt("one");
  Adopt("two");
  ASSERT_TRUE(MakeDirs(layout.state + "/cache/moved, and then the agent died").ok());
  ASSERT_TRUE(WriteFileAtomically(layout.state + "/cache/taken.json", R"({"bytes": 5})").ok());
  ASSERT_TRUE(WriteFileAtomically(layout.state + "/cache/taken.json.tmp", "x").ok());
  Restart();
  EXPECT_EQ(cache->bytes(), 600'000U);
  EXPECT_THAT(Kept(), testing::ElementsAre("one", "one.json", "two", "two.json"));
  ASSERT_TRUE(cache->Take("one", to, {}).ok());
  // With a smaller budget, and with none.
  Adopt("three");
  max_bytes = 400'000;
  Restart();
  EXPECT_FALSE(Has("two"));
  EXPECT_TRUE(Has("three"));
  max_bytes = 0;
  Restart();
  EXPECT_THAT(Kept(), testing::IsEmpty());
}

TEST_F(CacheTest, AStoreThatDoesNotGiveItsKeyMakesNothingBeKept) {
  const std::string manifest = Land("one");
  FakeStore other;
  Stores others({{"default", &other}}, nullptr, clock);
  Cache without({.max_bytes = max_bytes, .free_part = nullptr}, layout, others, clock);
  without.Adopt(layout.Landing("one", Place::kDisk), manifest, "default");
  EXPECT_TRUE(Exists(layout.Landing("one", Place::kDisk)));
  without.Adopt(layout.Landing("one", Place::kDisk), "no manifest", "default");
  EXPECT_TRUE(Exists(layout.Landing("one", Place::kDisk)));
  EXPECT_EQ(without.bytes(), 0U);
}

TEST_F(CacheTest, OneThatIsStoppedWhileItIsHashedStays) {
  Adopt("one");
  std::stop_source stop;
  stop.request_stop();
  storage::IngestOptions options;
  options.stop = stop.get_token();
  EXPECT_EQ(cache->Take("one", to, options).code(), Code::kCancelled);
  EXPECT_TRUE(Has("one"));
  EXPECT_TRUE(cache->Take("one", to, {}).ok());
}

}  // namespace
}  // namespace holdfast::agent
