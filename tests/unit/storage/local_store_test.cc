// The store as its users see it across restarts: what is there, what goes, what is refused.
#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include "storage/fsck.h"
#include "tests/unit/storage/fixture.h"

namespace holdfast::storage {
namespace {

size_t PacksOf(const TempDir& dir) { return PacksIn(dir / "store").size(); }

TEST(LocalStore, KeepsACheckpointAcrossARestart) {
  TempDir dir;
  WriteText(dir / "in/a", "hello");
  Result<CommitResult> kept = Keep(*OpenStore(dir / "store"), "uid-1", dir / "in");
  ASSERT_OK(kept);
  auto store = OpenStore(dir / "store");
  EXPECT_EQ(store->StateOf("uid-1").value_or(SessionState::kUnknown), SessionState::kCommitted);
  ASSERT_OK(Fetch(*store, "uid-1", dir / "out", {}));
  ExpectSameTree(dir / "in", dir / "out");
  // Said again, it is the same; with another content it is not.
  Result<std::unique_ptr<Session>> again = store->OpenSession("uid-1", "default");
  ASSERT_OK(again);
  Result<CommitResult> second = (*again)->Commit(*store->GetManifest("uid-1"));
  ASSERT_OK(second);
  EXPECT_EQ(second->digest, kept->digest);
  EXPECT_EQ(second->new_bytes, kept->new_bytes);
  EXPECT_EQ(CodeOf((*again)->Commit(ManifestOf("uid-1", "default", {}))), Code::kFailedPrecondition);
}

TEST(LocalStore, RefusesAnotherFormatAndSomebodysFolder) {
  TempDir dir;
  WriteText(dir / "newer/FORMAT", "holdfast-store 4 x\n");
  EXPECT_EQ(CodeOf(LocalStore::Open({.dir = dir / "newer"})), Code::kUnsupported);
  WriteText(dir / "older/FORMAT", "holdfast-store 1\n");
  Result<std::unique_ptr<LocalStore>> older = LocalStore::Open({.dir = dir / "older"});
  EXPECT_EQ(CodeOf(older), Code::kUnsupported);
  EXPECT_THAT(older.status().message(), ::testing::HasSubstr("empty folder"));
  ASSERT_NE(OpenStore(dir / "damaged"), nullptr);
  std::string format = ReadText(dir / "damaged/FORMAT");
  format[20] ^= 1;
  WriteText(dir / "damaged/FORMAT", format);
  EXPECT_EQ(CodeOf(LocalStore::Open({.dir = dir / "damaged"})), Code::kDataLoss);
  WriteText(dir / "home/photo.jpg", "x");
  EXPECT_EQ(CodeOf(LocalStore::Open({.dir = dir / "home"})), Code::kFailedPrecondition);
  EXPECT_EQ(ReadText(dir / "home/photo.jpg"), "x");
}

TEST(LocalStore, HasOneWriter) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  Result<std::unique_ptr<LocalStore>> second = LocalStore::Open({.dir = dir / "store"});
  EXPECT_EQ(CodeOf(second), Code::kFailedPrecondition);
  EXPECT_OK(Fsck({.dir = dir / "store"}));
}

TEST(LocalStore, RefusesIdsThatArePaths) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  for (const char* id : {"", ".", "..", "../x", "a/b", ".hidden", "x.tmp", "a b"}) {
    EXPECT_EQ(CodeOf(store->OpenSession(id, "default")), Code::kInvalidArgument) << id;
    EXPECT_EQ(CodeOf(store->OpenSession("uid", id)), Code::kInvalidArgument) << id;
    EXPECT_EQ(CodeOf(store->GetManifest(id)), Code::kInvalidArgument) << id;
    EXPECT_EQ(CodeOf(store->Delete(id)), Code::kInvalidArgument) << id;
    EXPECT_EQ(CodeOf(store->Abort(id, "default")), Code::kInvalidArgument) << id;
  }
}

TEST(LocalStore, GivesOnlySegmentsOfTheNamedCheckpoint) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  auto mine = Take(store->OpenSession("uid-1", "mine")), theirs = Take(store->OpenSession("uid-2", "theirs"));
  FileEntry my_file = PutFile(*mine, "a", {"my memory"}), their_file = PutFile(*theirs, "a", {"their memory"});
  ASSERT_OK(mine->Commit(ManifestOf("uid-1", "mine", {my_file})));
  ASSERT_OK(theirs->Commit(ManifestOf("uid-2", "theirs", {their_file})));
  EXPECT_EQ(store->GetSegment("uid-1", my_file.segments[0]).value_or(""), "my memory");
  EXPECT_EQ(CodeOf(store->GetSegment("uid-1", their_file.segments[0])), Code::kInvalidArgument);
}

TEST(LocalStore, NamesContentDifferentlyPerNamespace) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  auto a = Take(store->OpenSession("uid-1", "a")), b = Take(store->OpenSession("uid-2", "b"));
  EXPECT_NE(a->hash_key(), b->hash_key());
  FileEntry file = PutFile(*a, "x", {"shared"});
  EXPECT_EQ(b->Missing(std::vector{file.segments[0].id}).value_or({}), std::vector<bool>{true});
  EXPECT_EQ(CodeOf(b->Put(file.segments[0].id, Codec::kRaw, 6, AsBytes("shared"))), Code::kDataLoss);
}

TEST(LocalStore, DeleteFreesWhatNothingElseNeeds) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  auto one = Take(store->OpenSession("uid-1", "default")), two = Take(store->OpenSession("uid-2", "default"));
  ASSERT_OK(one->Commit(ManifestOf("uid-1", "default", {PutFile(*one, "a", {"shared", "only one"})})));
  ASSERT_OK(two->Commit(ManifestOf("uid-2", "default", {PutFile(*two, "a", {"shared", "only two", "shared"})})));
  EXPECT_EQ(store->Usage()->objects, 3U);
  ASSERT_OK(store->Delete("uid-1"));
  EXPECT_EQ(store->Usage()->objects, 2U);
  EXPECT_EQ(CodeOf(store->GetManifest("uid-1")), Code::kNotFound);
  ASSERT_OK(store->Delete("uid-1"));
  ASSERT_OK(Fetch(*store, "uid-2", dir / "out", {}));
  EXPECT_EQ(ReadText(dir / "out/a"), "sharedonly twoshared");
  // The counts are the same after a restart.
  one.reset();
  two.reset();
  store.reset();
  store = OpenStore(dir / "store");
  EXPECT_EQ(store->Usage()->objects, 2U);
  ASSERT_OK(store->Delete("uid-2"));
  EXPECT_EQ(PacksOf(dir), 0U);
  EXPECT_EQ(store->Usage()->object_bytes, 0U);
  EXPECT_EQ(store->Usage()->pack_bytes, 0U);
  ASSERT_OK(store->Collect({}));
  EXPECT_TRUE(FilesBelow(dir / "store/trash").empty());
  EXPECT_TRUE(FilesBelow(dir / "store/index").empty());
}

TEST(LocalStore, DropsAtStartWhatNobodyCommitted) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  auto session = Take(store->OpenSession("uid-1", "default"));
  PutFile(*session, "a", {"one", "two"});
  session.reset();
  store.reset();
  WriteText(dir / "store/trash/00112233445566778899aabbccddeeff", "a dropped pack");
  WriteText(dir / "store/index/00112233445566778899aabbccddeeff.ix", "its index");
  WriteText(dir / "store/manifests/uid-9.tmp", "half a manifest");
  // Its session may go on: kept. Without a session: dropped.
  store = OpenStore(dir / "store");
  EXPECT_EQ(store->Usage()->objects, 2U);
  EXPECT_TRUE(FilesBelow(dir / "store/trash").empty());
  EXPECT_EQ(FilesBelow(dir / "store/index").size(), 1U);
  EXPECT_TRUE(FilesBelow(dir / "store/manifests").empty());
  store.reset();
  unlink((dir / "store/sessions/uid-1").c_str());
  store = OpenStore(dir / "store");
  EXPECT_EQ(PacksOf(dir), 0U);
}

TEST(LocalStore, DropsNothingWhileAManifestCannotBeRead) {
  TempDir dir;
  WriteText(dir / "in/a", "hello");
  ASSERT_OK(Keep(*OpenStore(dir / "store"), "uid-1", dir / "in"));
  const std::string manifest = ReadText(dir / "store/manifests/uid-1");
  WriteText(dir / "store/manifests/uid-1", manifest.substr(0, manifest.size() - 3));
  auto store = OpenStore(dir / "store");
  ASSERT_OK(store->Collect({}));
  EXPECT_EQ(PacksOf(dir), 1U);
  EXPECT_EQ(CodeOf(store->GetManifest("uid-1")), Code::kDataLoss);
  store.reset();
  Result<FsckReport> report = Fsck({.dir = dir / "store"});
  ASSERT_OK(report);
  ASSERT_EQ(report->hurt.size(), 1U);
  EXPECT_EQ(report->hurt[0].ns, "default");
  // Put back by hand, it is whole again.
  WriteText(dir / "store/manifests/uid-1", manifest);
  ASSERT_OK(Fetch(*OpenStore(dir / "store"), "uid-1", dir / "out", {}));
  // Given up, what it referred to goes.
  WriteText(dir / "store/manifests/uid-1", manifest.substr(0, manifest.size() - 3));
  store = OpenStore(dir / "store");
  ASSERT_OK(store->Delete("uid-1"));
  EXPECT_EQ(PacksOf(dir), 0U);
}

TEST(LocalStore, FsckNamesTheCheckpointsThatAreHurt) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  auto one = Take(store->OpenSession("uid-1", "default")), two = Take(store->OpenSession("uid-2", "default"));
  FileEntry file = PutFile(*one, "a", {"first", "second"});
  ASSERT_OK(one->Commit(ManifestOf("uid-1", "default", {file})));
  ASSERT_OK(two->Commit(ManifestOf("uid-2", "default", {PutFile(*two, "b", {"second"})})));
  const std::string hex = file.segments[0].id.Hex();
  ASSERT_TRUE(DamageRecord(dir / "store", file.segments[0].id));
  EXPECT_EQ(CodeOf(store->GetSegment("uid-1", file.segments[0])), Code::kDataLoss);
  Status fetched = Fetch(*store, "uid-1", dir / "out", {});
  EXPECT_EQ(CodeOf(fetched), Code::kDataLoss);
  EXPECT_THAT(fetched.message(), ::testing::HasSubstr("uid-1"));
  EXPECT_OK(Fetch(*store, "uid-2", dir / "out-2", {}));
  Result<FsckReport> report = Fsck({.dir = dir / "store"});
  ASSERT_OK(report);
  ASSERT_EQ(report->hurt.size(), 1U);
  EXPECT_EQ(report->hurt[0].id, "uid-1");
  EXPECT_EQ(report->hurt[0].name, "drain-uid-1");
  EXPECT_THAT(report->hurt[0].why, ::testing::HasSubstr(hex));
  EXPECT_EQ(report->damaged_objects, 1U);
}

TEST(LocalStore, ALostSegmentHealsWhenItIsOfferedAgain) {
  TempDir dir;
  WriteText(dir / "in/a", "hello");
  ASSERT_OK(Keep(*OpenStore(dir / "store"), "uid-1", dir / "in"));
  for (const std::string& pack : PacksIn(dir / "store")) unlink((dir / "store/packs/" + pack).c_str());
  auto store = OpenStore(dir / "store");
  EXPECT_EQ(CodeOf(Fetch(*store, "uid-1", dir / "out", {})), Code::kDataLoss);
  ASSERT_OK(Keep(*store, "uid-2", dir / "in"));
  EXPECT_OK(Fetch(*store, "uid-1", dir / "out", {}));
}

// The damaged one still lies in its pack, and a start reads packs in the order of their random names.
TEST(LocalStore, WhatWasMendedStaysMendedAtTheNextStart) {
  for (int round = 0; round < 8; ++round) {
    TempDir dir;
    WriteText(dir / "in/a", "hello");
    WriteText(dir / "in/b", "somebody needs the pack");
    ASSERT_OK(Keep(*OpenStore(dir / "store"), "uid-1", dir / "in"));
    auto store = OpenStore(dir / "store");
    const SegmentRef damaged = Take(store->GetManifest("uid-1")).files.at(0).segments.at(0);
    ASSERT_TRUE(DamageRecord(dir / "store", damaged.id));
    EXPECT_EQ(CodeOf(Fetch(*store, "uid-1", dir / "out", {})), Code::kDataLoss);
    ASSERT_OK(Keep(*store, "uid-2", dir / "in"));
    store.reset();
    store = OpenStore(dir / "store");
    ASSERT_OK(Fetch(*store, "uid-1", dir / "out", {}));
    ExpectSameTree(dir / "in", dir / "out");
  }
}

TEST(LocalStore, ADamagedSegmentHealsWhenItIsOfferedAgain) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  auto one = Take(store->OpenSession("uid-1", "default")), two = Take(store->OpenSession("uid-2", "default"));
  FileEntry file = PutFile(*one, "a", {"precious"});
  ASSERT_OK(one->Commit(ManifestOf("uid-1", "default", {file})));
  ASSERT_TRUE(DamageRecord(dir / "store", file.segments[0].id));
  EXPECT_EQ(CodeOf(store->GetSegment("uid-1", file.segments[0])), Code::kDataLoss);
  EXPECT_EQ(two->Missing(std::vector{file.segments[0].id}).value_or({}), std::vector<bool>{true});
  ASSERT_OK(two->Commit(ManifestOf("uid-2", "default", {PutFile(*two, "a", {"precious"})})));
  EXPECT_EQ(store->GetSegment("uid-1", file.segments[0]).value_or(""), "precious");
}

TEST(LocalStore, MakesIndexFilesAnewFromThePacks) {
  TempDir dir;
  WriteText(dir / "in/a", RandomText(300'000, 1));
  ASSERT_OK(Keep(*OpenStore(dir / "store"), "uid-1", dir / "in"));
  const std::string index = dir / "store/index/" + FilesBelow(dir / "store/index").at(0);
  const std::string pack = dir / "store/packs/" + PacksIn(dir / "store").at(0);
  const std::string whole = ReadText(index), packed = ReadText(pack);
  std::string damaged = whole;
  damaged[300] ^= 4;
  for (const bool with_footer : {true, false}) {
    WriteText(index, damaged);
    if (!with_footer) WriteText(pack, packed.substr(0, packed.size() - 70));
    EXPECT_GT(Fsck({.dir = dir / "store"})->packs, 0U);
    EXPECT_TRUE(Fsck({.dir = dir / "store"})->hurt.empty());
    ASSERT_OK(Fetch(*OpenStore(dir / "store"), "uid-1", dir / ("out" + std::to_string(with_footer)), {}));
    Result<FsckReport> report = Fsck({.dir = dir / "store"});
    ASSERT_OK(report);
    EXPECT_EQ(report->damaged_indexes, 0U);
    EXPECT_TRUE(report->hurt.empty());
  }
}

TEST(LocalStore, RefusesNewSessionsWhenMaxBytesIsShort) {
  TempDir dir;
  auto store = OpenStore(dir / "store", /*max_bytes=*/100'000, /*reserve_bytes=*/20'000);
  EXPECT_EQ(store->Usage()->room_bytes, 80'000U);
  auto session = Take(store->OpenSession("uid-1", "default"));
  FileEntry file = PutFile(*session, "a", {RandomText(85'000, 1)});
  const std::string more = RandomText(10'000, 2);
  Status put = session->Put(HashSegment(session->hash_key(), AsBytes(more)), Codec::kRaw, 10'000, AsBytes(more));
  EXPECT_EQ(put.code(), Code::kResourceExhausted);
  Result<std::unique_ptr<Session>> refused = store->OpenSession("uid-2", "default");
  EXPECT_EQ(CodeOf(refused), Code::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), ::testing::HasSubstr("--max-bytes"));
  EXPECT_EQ(store->Usage()->room_bytes, 0U);
  // What has begun can end, and what never began can be ruled out.
  EXPECT_OK(store->OpenSession("uid-1", "default"));
  EXPECT_OK(session->Commit(ManifestOf("uid-1", "default", {file})));
  EXPECT_OK(store->Abort("uid-2", "default"));
  ASSERT_OK(store->Delete("uid-1"));
  EXPECT_OK(store->OpenSession("uid-3", "default"));
}

TEST(LocalStore, SaysSoWhenTheVolumeIsFull) {
  ASSERT_EQ(geteuid(), 0U) << "mounts a tmpfs: run as root";
  TempDir dir;
  ASSERT_OK(MakeDirs(dir / "volume"));
  ASSERT_EQ(mount("tmpfs", (dir / "volume").c_str(), "tmpfs", 0, "size=4m"), 0);
  WriteText(dir / "in/small", RandomText(100'000, 5));
  WriteText(dir / "big/pages", RandomText(8 << 20, 6));
  {
    auto store = OpenStore(dir / "volume/store", 0, /*reserve_bytes=*/3 << 19);
    ASSERT_NE(store, nullptr);
    ASSERT_OK(Keep(*store, "uid-1", dir / "in"));
    Result<CommitResult> kept = Keep(*store, "uid-2", dir / "big");
    EXPECT_EQ(CodeOf(kept), Code::kResourceExhausted) << kept.status().ToString();
    EXPECT_EQ(CodeOf(store->OpenSession("uid-3", "default")), Code::kResourceExhausted);
    EXPECT_OK(store->Abort("uid-2", "default"));
    EXPECT_OK(store->OpenSession("uid-3", "default"));
    EXPECT_OK(Fetch(*store, "uid-1", dir / "out", {}));
    // Without any reserve the kernel says it.
    store.reset();
    store = OpenStore(dir / "volume/store", 0, 0);
    EXPECT_EQ(CodeOf(Keep(*store, "uid-4", dir / "big")), Code::kResourceExhausted);
    EXPECT_EQ(store->StateOf("uid-1").value_or(SessionState::kUnknown), SessionState::kCommitted);
  }
  ASSERT_EQ(umount((dir / "volume").c_str()), 0);
  ExpectSameTree(dir / "in", dir / "out");
}

}  // namespace
}  // namespace holdfast::storage
