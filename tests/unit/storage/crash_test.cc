// The process is killed at each named point; whoever opens the store next finds what was visible whole, and nothing half visible.
#include "storage/fsck.h"
#include "tests/unit/storage/fixture.h"

namespace holdfast::storage {
namespace {

class Crash : public ::testing::TestWithParam<const char*> {};

TEST_P(Crash, LosesNothingThatWasVisibleAndShowsNothingHalf) {
  TempDir dir;
  WriteText(dir / "old/pages", RandomText(3'000'000, 1));
  WriteText(dir / "new/pages", RandomText(1'000'000, 1) + RandomText(12'000'000, 2));
  WriteText(dir / "new/small", "small");
  ASSERT_OK(Keep(*OpenStore(dir / "store"), "uid-old", dir / "old"));

  ASSERT_TRUE(DiesAt(dir / "faults", GetParam(), [&] {
    auto store = OpenStore(dir / "store");
    [[maybe_unused]] auto kept = Keep(*store, "uid-new", dir / "new");
  })) << GetParam();

  auto store = OpenStore(dir / "store");
  ASSERT_NE(store, nullptr);
  ASSERT_OK(Fetch(*store, "uid-old", dir / "out-old", {}));
  ExpectSameTree(dir / "old", dir / "out-old");
  EXPECT_TRUE(FilesBelow(dir / "store/trash").empty());
  Result<SessionState> state = store->StateOf("uid-new");
  ASSERT_OK(state);
  const bool committed = std::string(GetParam()) == "store.after_manifest_rename";
  EXPECT_EQ(*state, committed ? SessionState::kCommitted : SessionState::kOpen);
  EXPECT_EQ(CodeOf(store->GetManifest("uid-new")), committed ? Code::kOk : Code::kNotFound);
  Result<FsckReport> report = Fsck({.dir = dir / "store"});
  ASSERT_OK(report);
  EXPECT_TRUE(report->hurt.empty());
  EXPECT_EQ(report->damaged_objects, 0U);

  // The agent tries again: the same session goes on, whether it was committed or not.
  ASSERT_OK(Keep(*store, "uid-old-2", dir / "old"));
  Result<std::unique_ptr<Session>> session = store->OpenSession("uid-new", "default");
  ASSERT_OK(session);
  if (!committed) {
    Result<std::vector<FileEntry>> files = Ingest(dir / "new", **session, {});
    ASSERT_OK(files);
    ASSERT_OK((*session)->Commit(ManifestOf("uid-new", "default", *files)));
  } else {
    ASSERT_OK((*session)->Commit(*store->GetManifest("uid-new")));
  }
  ASSERT_OK(Fetch(*store, "uid-new", dir / "out-new", {}));
  ExpectSameTree(dir / "new", dir / "out-new");
  for (const char* uid : {"uid-new", "uid-old", "uid-old-2"}) ASSERT_OK(store->Delete(uid));
  EXPECT_TRUE(PacksIn(dir / "store").empty());
}

TEST_P(Crash, AnAbortAfterItHolds) {
  TempDir dir;
  WriteText(dir / "new/pages", RandomText(2'000'000, 2));
  ASSERT_TRUE(DiesAt(dir / "faults", GetParam(), [&] {
    auto store = OpenStore(dir / "store");
    [[maybe_unused]] auto kept = Keep(*store, "uid-new", dir / "new");
  }));
  auto store = OpenStore(dir / "store");
  const bool committed = std::string(GetParam()) == "store.after_manifest_rename";
  Status aborted = store->Abort("uid-new", "default");
  EXPECT_EQ(aborted.code(), committed ? Code::kFailedPrecondition : Code::kOk);
  store.reset();
  store = OpenStore(dir / "store");
  EXPECT_EQ(store->StateOf("uid-new").value_or(SessionState::kUnknown), committed ? SessionState::kCommitted : SessionState::kAborted);
  EXPECT_EQ(store->OpenSession("uid-new", "default").ok(), committed);
  EXPECT_EQ(PacksIn(dir / "store").empty(), !committed);
}

INSTANTIATE_TEST_SUITE_P(At, Crash,
                         ::testing::Values("store.put", "store.before_sync", "store.before_manifest_rename", "store.after_manifest_rename",
                                           "ingest.segment_sent"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '.' || c == '_'; }, 'X');
                           return name;
                         });

}  // namespace
}  // namespace holdfast::storage
