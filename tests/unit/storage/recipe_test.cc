// Leaves: lists of segments that checkpoints share. Nothing that anybody needs goes, and nothing that nobody needs stays.
#include "storage/recipe.h"

#include "storage/fsck.h"
#include "tests/unit/storage/fixture.h"

namespace holdfast::storage {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> Texts(int first, int count) {
  std::vector<std::string> texts;
  for (int i = first; i < first + count; ++i) texts.push_back(RandomText(5000, static_cast<unsigned>(i)));
  return texts;
}

Result<CommitResult> KeepLong(Store& store, const std::string& uid, const std::vector<std::string>& texts, size_t per_leaf = 2) {
  auto session = Take(store.OpenSession(uid, "default"));
  return session->Commit(ManifestOf(uid, "default", {PutLong(*session, "pages", texts, per_leaf)}));
}

Status Read(Store& store, const std::string& uid, const std::vector<std::string>& texts) {
  HF_ASSIGN_OR_RETURN(Manifest manifest, store.GetManifest(uid));
  Status status;
  const std::vector<SegmentRef> segments = SegmentsOf(store, uid, manifest.files.at(0), &status);
  HF_RETURN_IF_ERROR(status);
  EXPECT_EQ(segments.size(), texts.size());
  for (size_t i = 0; i < segments.size(); ++i) {
    HF_ASSIGN_OR_RETURN(std::string content, store.GetSegment(uid, segments[i]));
    EXPECT_TRUE(content == texts[i]) << uid << " " << i;
  }
  return Status::Ok();
}

TEST(Leaf, ComesBackAsItWas) {
  std::vector<SegmentRef> segments;
  uint64_t bytes = 0;
  for (size_t i = 0; i < kLeafSegments; ++i) {
    segments.push_back({.id = {}, .size = static_cast<uint32_t>(i % 3 == 0 ? kMaxSegmentBytes : 1 + i), .zero = i % 5 == 0});
    if (!segments.back().zero) segments.back().id = HashSegment({}, AsBytes(std::to_string(i)));
    bytes += segments.back().size;
  }
  const std::string leaf = EncodeLeaf(segments);
  EXPECT_LE(leaf.size(), kMaxLeafBytes);
  std::vector<SegmentRef> back = Take(ParseLeaf(leaf, bytes));
  ASSERT_EQ(back.size(), segments.size());
  EXPECT_EQ(EncodeLeaf(back), leaf);
  EXPECT_EQ(back[7].id, segments[7].id);
  EXPECT_TRUE(back[5].zero);
}

TEST(Leaf, RefusesWhatCannotBeOne) {
  const std::vector<SegmentRef> two = {{.id = HashSegment({}, AsBytes("x")), .size = 7}, {.id = {}, .size = 9, .zero = true}};
  const std::string good = EncodeLeaf(two);
  EXPECT_OK(ParseLeaf(good, 16));
  EXPECT_EQ(CodeOf(ParseLeaf(good, 15)), Code::kInvalidArgument);
  for (size_t size = 0; size < good.size(); ++size) EXPECT_EQ(CodeOf(ParseLeaf(good.substr(0, size), 16)), Code::kInvalidArgument) << size;
  for (uint32_t size : {uint32_t{0}, uint32_t{kMaxSegmentBytes + 1}, ~uint32_t{0}}) {
    std::string wrong = good;
    PutInteger(size, wrong.data() + kLeafHeaderBytes);
    EXPECT_EQ(CodeOf(ParseLeaf(wrong, uint64_t{size} + 9)), Code::kInvalidArgument) << size;
  }
  const std::vector<SegmentRef> many(kLeafSegments + 1, SegmentRef{.id = {}, .size = 1, .zero = true});
  EXPECT_EQ(CodeOf(ParseLeaf(EncodeLeaf(many), many.size())), Code::kInvalidArgument);
}

TEST(Recipe, ALongFileIsAFewLeavesAndASmallChangeSendsOne) {
  TempDir dir;
  std::string pages = RandomText(40 << 20, 1);
  WriteText(dir / "in/pages", pages);
  auto store = OpenStore(dir / "store");
  ASSERT_OK(Keep(*store, "uid-1", dir / "in"));
  const Manifest manifest = Take(store->GetManifest("uid-1"));
  EXPECT_EQ(manifest.files.at(0).leaves.size(), 5U);
  EXPECT_LT(manifest.Serialize().size(), 1000U);
  pages[20 << 20] ^= 1;
  WriteText(dir / "in/pages", pages);
  CommitResult second = Take(Keep(*store, "uid-2", dir / "in"));
  EXPECT_LT(second.new_bytes, kSegmentBytes + kMaxLeafBytes + 200);
  ASSERT_OK(Fetch(*store, "uid-2", dir / "out", {}));
  ExpectSameTree(dir / "in", dir / "out");
}

TEST(Recipe, WhatOneOfTwoSharesStaysUntilBothAreGone) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  const std::vector<std::string> all = Texts(1, 6), some = Texts(3, 5);  // the leaves of 3, 4 and of 5, 6 are in both
  ASSERT_OK(KeepLong(*store, "uid-1", all));
  ASSERT_OK(KeepLong(*store, "uid-2", some));
  for (const bool restart : {false, true}) {
    if (restart) store.reset();
    if (restart) store = OpenStore(dir / "store");
    ASSERT_OK(Read(*store, "uid-1", all));
    ASSERT_OK(Read(*store, "uid-2", some));
  }
  EXPECT_EQ(store->Usage()->objects, 7U + 4U);
  ASSERT_OK(store->Delete("uid-1"));
  EXPECT_EQ(store->Usage()->objects, 5U + 3U);
  ASSERT_OK(store->Collect({}));
  ASSERT_OK(Read(*store, "uid-2", some));
  ASSERT_OK(KeepLong(*store, "uid-3", all));
  ASSERT_OK(store->Delete("uid-2"));
  ASSERT_OK(Read(*store, "uid-3", all));
  ASSERT_OK(store->Delete("uid-3"));
  EXPECT_EQ(store->Usage()->objects, 0U);
  EXPECT_TRUE(PacksIn(dir / "store").empty());
}

// Somebody names a leaf as if it were memory: it is counted apart.
TEST(Recipe, ALeafThatIsAlsoASegmentLosesNothing) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  const std::vector<std::string> texts = Texts(1, 2);
  {
    auto session = Take(store->OpenSession("uid-odd", "default"));
    const LeafRef leaf = PutLong(*session, "pages", texts, 2).leaves.at(0);
    FileEntry odd{.path = "pages", .size = leaf.size, .segments = {{.id = leaf.id, .size = leaf.size}}, .leaves = {}};
    ASSERT_OK(session->Commit(ManifestOf("uid-odd", "default", {odd})));
  }
  EXPECT_EQ(store->Usage()->objects, 1U) << "its segments are nobody's";
  ASSERT_OK(KeepLong(*store, "uid-1", texts));
  ASSERT_OK(store->Delete("uid-odd"));
  ASSERT_OK(Read(*store, "uid-1", texts));
  ASSERT_OK(KeepLong(*store, "uid-2", texts));
  ASSERT_OK(store->Delete("uid-1"));
  ASSERT_OK(Read(*store, "uid-2", texts));
  ASSERT_OK(store->Delete("uid-2"));
  EXPECT_EQ(store->Usage()->objects, 0U);
}

TEST(Recipe, ACommitNeedsItsLeavesAndAllThatTheyName) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  auto session = Take(store->OpenSession("uid-1", "default"));
  const FileEntry good = PutLong(*session, "pages", Texts(1, 4), 2);
  auto commit = [&](const FileEntry& file) { return session->Commit(ManifestOf("uid-1", "default", {file})).status(); };
  FileEntry file = good;
  file.leaves[1].id = HashSegment(session->hash_key(), AsBytes("not there"));
  EXPECT_EQ(commit(file).code(), Code::kInvalidArgument);
  file = good;
  file.leaves[0].bytes -= 1;
  file.leaves[1].bytes += 1;
  EXPECT_EQ(commit(file).code(), Code::kInvalidArgument) << "of another length";
  file = PutLong(*session, "pages", Texts(1, 4), 2);
  file.leaves[0].id = PutFile(*session, "x", {RandomText(file.leaves[0].size, 9)}).segments[0].id;
  EXPECT_EQ(commit(file).code(), Code::kInvalidArgument) << "no leaf";
  // Its segments were never sent.
  const std::vector<SegmentRef> missing = {{.id = HashSegment(session->hash_key(), AsBytes("nowhere")), .size = 7}};
  FileEntry hollow{.path = "pages", .size = 7, .segments = {}, .leaves = {}};
  const SegmentRef leaf = PutFile(*session, "x", {EncodeLeaf(missing)}).segments[0];
  hollow.leaves.push_back({.id = leaf.id, .size = leaf.size, .bytes = 7});
  EXPECT_THAT(commit(hollow).message(), HasSubstr(missing[0].id.Hex()));
  EXPECT_EQ(CodeOf(store->GetManifest("uid-1")), Code::kNotFound);
  // What failed holds nothing: all that stays is what the good one needs.
  ASSERT_OK(commit(good));
  EXPECT_EQ(store->Usage()->objects, 6U);
  // A shared leaf under another length.
  auto later = Take(store->OpenSession("uid-3", "default"));
  file = good;
  file.leaves[0].bytes -= 1;
  file.size -= 1;
  EXPECT_EQ(CodeOf(later->Commit(ManifestOf("uid-3", "default", {file}))), Code::kInvalidArgument);
}

// A session was told that the leaf is there; what the leaf names went with the last checkpoint that needed it.
TEST(Recipe, ALeafThatOutlivedItsSegmentsIsNotBelieved) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  const std::vector<std::string> texts = Texts(1, 2);
  ASSERT_OK(KeepLong(*store, "uid-1", texts));
  const FileEntry file = Take(store->GetManifest("uid-1")).files[0];
  auto session = Take(store->OpenSession("uid-2", "default"));
  EXPECT_EQ(session->Missing(std::vector{file.leaves[0].id}).value_or({}), std::vector<bool>{false});
  ASSERT_OK(store->Delete("uid-1"));
  EXPECT_EQ(CodeOf(session->Commit(ManifestOf("uid-2", "default", {file}))), Code::kInvalidArgument);
  PutFile(*session, "pages", texts);
  ASSERT_OK(session->Commit(ManifestOf("uid-2", "default", {file})));
  ASSERT_OK(Read(*store, "uid-2", texts));
}

TEST(Recipe, ADamagedLeafHurtsOnlyThoseWhoHaveItAndIsMendedByTheNext) {
  TempDir dir;
  const std::vector<std::string> texts = Texts(1, 4), others = Texts(10, 4);
  LeafRef leaf;
  {
    auto store = OpenStore(dir / "store");
    ASSERT_OK(KeepLong(*store, "uid-1", texts));
    ASSERT_OK(KeepLong(*store, "uid-2", others));
    leaf = Take(store->GetManifest("uid-1")).files[0].leaves[1];
  }
  ASSERT_TRUE(DamageRecord(dir / "store", leaf.id));
  FsckReport report = Take(Fsck({.dir = dir / "store"}));
  ASSERT_EQ(report.hurt.size(), 1U);
  EXPECT_EQ(report.hurt[0].id, "uid-1");
  EXPECT_THAT(report.hurt[0].why, HasSubstr(leaf.id.Hex()));
  auto store = OpenStore(dir / "store");
  Status damaged = Read(*store, "uid-1", texts);
  EXPECT_EQ(damaged.code(), Code::kDataLoss);
  EXPECT_THAT(damaged.message(), HasSubstr("uid-1"));
  ASSERT_OK(Read(*store, "uid-2", others));
  // What its segments are is not known, so nothing goes, and who sends the leaf again finds them.
  ASSERT_OK(store->Delete("uid-2"));
  EXPECT_EQ(store->Usage()->objects, 12U);
  ASSERT_OK(KeepLong(*store, "uid-3", texts));
  ASSERT_OK(Read(*store, "uid-3", texts));
  ASSERT_OK(Read(*store, "uid-1", texts));
  ASSERT_OK(store->Delete("uid-1"));
  EXPECT_EQ(store->Usage()->objects, 6U);
  ASSERT_OK(Read(*store, "uid-3", texts));
  store.reset();
  store = OpenStore(dir / "store");
  ASSERT_OK(Read(*store, "uid-3", texts));
  ASSERT_OK(store->Delete("uid-3"));
  EXPECT_EQ(store->Usage()->objects, 0U);
}

// A segment that could not be read makes its namespace careful: a leaf that names it is not shared unread.
TEST(Recipe, ALeafOfADamagedSegmentIsNotShared) {
  TempDir dir;
  const std::vector<std::string> texts = Texts(1, 4);
  SegmentRef victim;
  {
    auto store = OpenStore(dir / "store");
    ASSERT_OK(KeepLong(*store, "uid-1", texts));
    Status read;
    victim = SegmentsOf(*store, "uid-1", Take(store->GetManifest("uid-1")).files[0], &read)[1];
  }
  ASSERT_TRUE(DamageRecord(dir / "store", victim.id));
  auto store = OpenStore(dir / "store");
  const FileEntry file = Take(store->GetManifest("uid-1")).files[0];
  EXPECT_EQ(CodeOf(store->GetSegment("uid-1", victim)), Code::kDataLoss);
  auto session = Take(store->OpenSession("uid-2", "default"));
  EXPECT_EQ(CodeOf(session->Commit(ManifestOf("uid-2", "default", {file}))), Code::kInvalidArgument);
  PutFile(*session, "pages", texts);
  ASSERT_OK(session->Commit(ManifestOf("uid-2", "default", {file})));
  ASSERT_OK(Read(*store, "uid-1", texts));
}

}  // namespace
}  // namespace holdfast::storage
