// A checkpoint that builds on an earlier one: what has not changed is neither asked for nor sent, and cannot go meanwhile.
#include "storage/fsck.h"
#include "tests/unit/storage/fixture.h"

namespace holdfast::storage {
namespace {

// Counts what the store is asked.
class CountingSession final : public Session {
 public:
  explicit CountingSession(std::unique_ptr<Session> session) : session_(std::move(session)) {}
  std::atomic<size_t> asked = 0, questions = 0;
  Result<std::vector<bool>> Missing(std::span<const SegmentId> ids) override {
    asked += ids.size();
    ++questions;
    return session_->Missing(ids);
  }
  Status Hold(const std::string& manifest) override { return session_->Hold(manifest); }
  Status Put(const SegmentId& id, Codec codec, uint32_t size, std::span<const std::byte> bytes) override {
    return session_->Put(id, codec, size, bytes);
  }
  Result<CommitResult> Commit(const Manifest& manifest) override { return session_->Commit(manifest); }
  Status Abort() override { return session_->Abort(); }
  const std::array<uint8_t, 32>& hash_key() const override { return session_->hash_key(); }

 private:
  std::unique_ptr<Session> session_;
};

IngestOptions On(Store& store, const std::string& parent) {
  IngestOptions options;
  options.store = &store;
  options.parent = parent;
  return options;
}

TEST(Parent, WhatDidNotChangeIsNotAskedFor) {
  TempDir dir;
  std::string pages = RandomText(20 << 20, 1);
  WriteText(dir / "in/pages", pages);
  WriteText(dir / "in/small", "small");
  auto store = OpenStore(dir / "store");
  ASSERT_OK(Keep(*store, "uid-1", dir / "in"));
  {
    CountingSession session(Take(store->OpenSession("uid-2", "default")));
    auto files = Ingest(dir / "in", session, On(*store, "uid-1"));
    ASSERT_OK(files);
    EXPECT_EQ(session.questions, 0U);
    ASSERT_OK(session.Commit(ManifestOf("uid-2", "default", *files)));
  }
  pages[9 << 20] ^= 1;
  WriteText(dir / "in/pages", pages);
  CountingSession session(Take(store->OpenSession("uid-3", "default")));
  auto files = Ingest(dir / "in", session, On(*store, "uid-2"));
  ASSERT_OK(files);
  EXPECT_EQ(session.asked, 2U) << "the segment and its leaf";
  ASSERT_OK(session.Commit(ManifestOf("uid-3", "default", *files)));
  ASSERT_OK(Fetch(*store, "uid-3", dir / "out", {}));
  ExpectSameTree(dir / "in", dir / "out");
}

TEST(Parent, IsHeldUntilTheSessionEnds) {
  TempDir dir;
  WriteText(dir / "in/pages", RandomText(20 << 20, 1));
  WriteText(dir / "in/small", "small");
  auto store = OpenStore(dir / "store");
  ASSERT_OK(Keep(*store, "uid-1", dir / "in"));
  for (const bool commit : {false, true}) {
    const std::string uid = commit ? "uid-commit" : "uid-abort";
    auto session = Take(store->OpenSession(uid, "default"));
    auto files = Ingest(dir / "in", *session, On(*store, "uid-1"));
    ASSERT_OK(files);
    if (commit) {
      ASSERT_OK(store->Delete("uid-1"));
      ASSERT_OK(store->Collect({}));
      EXPECT_GT(store->Usage()->objects, 0U);
      ASSERT_OK(session->Commit(ManifestOf(uid, "default", *files)));
      ASSERT_OK(Fetch(*store, uid, dir / "out", {}));
      ExpectSameTree(dir / "in", dir / "out");
    } else {
      ASSERT_OK(session->Abort());
    }
  }
  ASSERT_OK(store->Delete("uid-commit"));
  EXPECT_EQ(store->Usage()->objects, 0U);
  EXPECT_TRUE(PacksIn(dir / "store").empty());
}

TEST(Parent, ThatWasDeletedGoesWithItsLastSession) {
  TempDir dir;
  WriteText(dir / "in/pages", RandomText(5 << 20, 1));
  auto store = OpenStore(dir / "store");
  ASSERT_OK(Keep(*store, "uid-1", dir / "in"));
  auto session = Take(store->OpenSession("uid-2", "default"));
  ASSERT_OK(session->Hold("uid-1"));
  ASSERT_OK(session->Hold("uid-1"));
  ASSERT_OK(store->Delete("uid-1"));
  EXPECT_GT(store->Usage()->objects, 80U);
  ASSERT_OK(session->Abort());
  EXPECT_EQ(store->Usage()->objects, 0U);
}

TEST(Parent, OfAnotherNamespaceOrNoneIsNotHeld) {
  TempDir dir;
  WriteText(dir / "in/pages", RandomText(3 << 20, 1));
  auto store = OpenStore(dir / "store");
  ASSERT_OK(Keep(*store, "uid-1", dir / "in", "other"));
  auto session = Take(store->OpenSession("uid-2", "default"));
  EXPECT_EQ(session->Hold("uid-1").code(), Code::kInvalidArgument);
  EXPECT_EQ(session->Hold("uid-none").code(), Code::kNotFound);
  EXPECT_EQ(session->Hold("../x").code(), Code::kInvalidArgument);
  // Without its help it goes as well.
  auto files = Ingest(dir / "in", *session, On(*store, "uid-1"));
  ASSERT_OK(files);
  ASSERT_OK(session->Commit(ManifestOf("uid-2", "default", *files)));
  ASSERT_OK(Fetch(*store, "uid-2", dir / "out", {}));
  ExpectSameTree(dir / "in", dir / "out");
}

TEST(Parent, OfADamagedNamespaceIsNotBelieved) {
  TempDir dir;
  WriteText(dir / "in/pages", RandomText(3 << 20, 1));
  {
    auto store = OpenStore(dir / "store");
    ASSERT_OK(Keep(*store, "uid-1", dir / "in"));
  }
  auto store = OpenStore(dir / "store");
  Status read;
  const SegmentRef victim = SegmentsOf(*store, "uid-1", Take(store->GetManifest("uid-1")).files[0], &read).at(3);
  ASSERT_OK(read);
  ASSERT_TRUE(DamageRecord(dir / "store", victim.id));
  EXPECT_EQ(CodeOf(store->GetSegment("uid-1", victim)), Code::kDataLoss);
  auto session = Take(store->OpenSession("uid-2", "default"));
  EXPECT_EQ(session->Hold("uid-1").code(), Code::kFailedPrecondition);
  auto files = Ingest(dir / "in", *session, On(*store, "uid-1"));
  ASSERT_OK(files);
  ASSERT_OK(session->Commit(ManifestOf("uid-2", "default", *files)));
  ASSERT_OK(Fetch(*store, "uid-2", dir / "out", {}));
  ExpectSameTree(dir / "in", dir / "out");
  ASSERT_OK(Fetch(*store, "uid-1", dir / "out-1", {}));
  ExpectSameTree(dir / "in", dir / "out-1");
}

}  // namespace
}  // namespace holdfast::storage
