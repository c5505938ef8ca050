// Sessions beside each other, and how they end.
#include <unistd.h>

#include "tests/unit/storage/fixture.h"

namespace holdfast::storage {
namespace {

SegmentId IdOf(Session& session, const std::string& content) { return HashSegment(session.hash_key(), AsBytes(content)); }

bool Lacks(Session& session, const SegmentId& id) {
  Result<std::vector<bool>> missing = session.Missing(std::vector{id});
  EXPECT_OK(missing);
  return missing.ok() && (*missing)[0];
}

TEST(Session, StoresAContentOnce) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  auto one = Take(store->OpenSession("uid-1", "default")), two = Take(store->OpenSession("uid-2", "default"));
  EXPECT_TRUE(Lacks(*one, IdOf(*one, "shared")));
  FileEntry file = PutFile(*one, "a", {"shared"});
  EXPECT_FALSE(Lacks(*two, IdOf(*two, "shared")));
  Result<CommitResult> first = one->Commit(ManifestOf("uid-1", "default", {file})),
                       second = two->Commit(ManifestOf("uid-2", "default", {file}));
  ASSERT_OK(first);
  ASSERT_OK(second);
  EXPECT_GT(first->new_bytes, 0U);
  EXPECT_EQ(second->new_bytes, 0U);
  EXPECT_EQ(store->Usage()->objects, 1U);
}

TEST(Session, RefusesAPoisonedSegment) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  auto session = Take(store->OpenSession("uid-1", "default"));
  const SegmentId good = IdOf(*session, "good");
  EXPECT_EQ(session->Put(good, Codec::kRaw, 4, AsBytes("evil")).code(), Code::kDataLoss);
  EXPECT_TRUE(Lacks(*session, good));
  EXPECT_OK(session->Put(good, Codec::kRaw, 4, AsBytes("good")));
  // Also when the store has the content already.
  EXPECT_EQ(session->Put(good, Codec::kRaw, 4, AsBytes("evil")).code(), Code::kDataLoss);
  EXPECT_EQ(session->Put(good, Codec::kRaw, 5, AsBytes("good")).code(), Code::kInvalidArgument);
  EXPECT_EQ(session->Put(good, Codec::kRaw, 0, {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(session->Put(good, Codec::kLz4, 1 << 30, AsBytes("good")).code(), Code::kInvalidArgument);
}

TEST(Session, DoesNotCommitWhatIsNotThere) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  auto session = Take(store->OpenSession("uid-1", "default"));
  FileEntry file = PutFile(*session, "a", {"here"});
  file.segments.push_back({.id = IdOf(*session, "not here"), .size = 8});
  file.size += 8;
  EXPECT_EQ(CodeOf(session->Commit(ManifestOf("uid-1", "default", {file}))), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf(store->GetManifest("uid-1")), Code::kNotFound);
  // A size that is not the segment's would make Fetch fail later: refused now.
  file.segments.back() = {.id = file.segments[0].id, .size = 8};
  EXPECT_EQ(CodeOf(session->Commit(ManifestOf("uid-1", "default", {file}))), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf(session->Commit(ManifestOf("uid-2", "default", {}))), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf(session->Commit(ManifestOf("uid-1", "other", {}))), Code::kInvalidArgument);
  EXPECT_OK(session->Put(IdOf(*session, "not here"), Codec::kRaw, 8, AsBytes("not here")));
  file.segments.back() = {.id = IdOf(*session, "not here"), .size = 8};
  EXPECT_OK(session->Commit(ManifestOf("uid-1", "default", {file})));
}

TEST(Session, NeverCommitsAfterAnAbortAlsoNotAfterARestart) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  auto session = Take(store->OpenSession("uid-1", "default"));
  FileEntry file = PutFile(*session, "a", {"content"});
  ASSERT_OK(session->Abort());
  EXPECT_OK(store->Abort("uid-1", "default"));
  EXPECT_EQ(CodeOf(session->Commit(ManifestOf("uid-1", "default", {file}))), Code::kFailedPrecondition);
  EXPECT_EQ(session->Put(file.segments[0].id, Codec::kRaw, 7, AsBytes("content")).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(PacksIn(dir / "store").empty());
  session.reset();
  store.reset();
  store = OpenStore(dir / "store");
  EXPECT_EQ(store->StateOf("uid-1").value_or(SessionState::kUnknown), SessionState::kAborted);
  EXPECT_EQ(CodeOf(store->OpenSession("uid-1", "default")), Code::kFailedPrecondition);
  EXPECT_EQ(CodeOf(store->FindSession("uid-1")), Code::kFailedPrecondition);
}

TEST(Session, AnAbortOfWhatWasNeverOpenedHoldsToo) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  ASSERT_OK(store->Abort("uid-1", "default"));
  store.reset();
  store = OpenStore(dir / "store");
  EXPECT_EQ(CodeOf(store->OpenSession("uid-1", "default")), Code::kFailedPrecondition);
}

TEST(Session, CannotBeAbortedOnceCommitted) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  auto session = Take(store->OpenSession("uid-1", "default"));
  ASSERT_OK(session->Commit(ManifestOf("uid-1", "default", {})));
  EXPECT_EQ(session->Abort().code(), Code::kFailedPrecondition);
  EXPECT_EQ(store->Abort("uid-1", "default").code(), Code::kFailedPrecondition);
  EXPECT_EQ(store->StateOf("uid-1").value_or(SessionState::kUnknown), SessionState::kCommitted);
}

TEST(Session, KeepsWhatItWasToldWhenTheOwnerIsDeleted) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  auto one = Take(store->OpenSession("uid-1", "default"));
  FileEntry file = PutFile(*one, "a", {"shared"});
  ASSERT_OK(one->Commit(ManifestOf("uid-1", "default", {file})));
  auto two = Take(store->OpenSession("uid-2", "default"));
  ASSERT_FALSE(Lacks(*two, file.segments[0].id));
  ASSERT_OK(store->Delete("uid-1"));
  ASSERT_OK(two->Commit(ManifestOf("uid-2", "default", {file})));
  EXPECT_EQ(store->GetSegment("uid-2", file.segments[0]).value_or(""), "shared");
  ASSERT_OK(store->Delete("uid-2"));
  EXPECT_TRUE(PacksIn(dir / "store").empty());
}

TEST(Session, KeepsWhatItWasToldAlsoAcrossARestart) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  auto one = Take(store->OpenSession("uid-1", "default"));
  FileEntry file = PutFile(*one, "a", {"shared"});
  ASSERT_OK(one->Commit(ManifestOf("uid-1", "default", {file})));
  auto two = Take(store->OpenSession("uid-2", "default"));
  ASSERT_FALSE(Lacks(*two, file.segments[0].id));
  one.reset();
  two.reset();
  store.reset();
  store = OpenStore(dir / "store");
  ASSERT_OK(store->Delete("uid-1"));
  two = Take(store->FindSession("uid-2"));
  ASSERT_OK(two->Commit(ManifestOf("uid-2", "default", {file})));
  EXPECT_EQ(store->GetSegment("uid-2", file.segments[0]).value_or(""), "shared");
}

TEST(Session, DropsItsOwnSegmentsWhenItIsAborted) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  auto one = Take(store->OpenSession("uid-1", "default")), two = Take(store->OpenSession("uid-2", "default"));
  PutFile(*one, "a", {"only one", "both"});
  ASSERT_FALSE(Lacks(*two, IdOf(*two, "both")));
  ASSERT_OK(one->Abort());
  EXPECT_EQ(store->Usage()->objects, 1U);
  EXPECT_FALSE(Lacks(*two, IdOf(*two, "both")));
}

TEST(Session, GoesOnWithWhatIsWholeOfATornPack) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  auto session = Take(store->OpenSession("uid-1", "default"));
  FileEntry file = PutFile(*session, "a", {RandomText(5000, 1), RandomText(6000, 2), RandomText(7000, 3)});
  session.reset();
  store.reset();
  // As a power cut leaves a pack that was being written: no index, no footer, zeros in the middle.
  unlink((dir / "store/index/" + FilesBelow(dir / "store/index").at(0)).c_str());
  const std::string pack = dir / "store/packs/" + PacksIn(dir / "store").at(0);
  std::string bytes = ReadText(pack);
  memset(bytes.data() + 8000, 0, 100);
  WriteText(pack, bytes.substr(0, 256 + 3 * 64 + 18'000));
  store = OpenStore(dir / "store");
  session = Take(store->FindSession("uid-1"));
  EXPECT_EQ(CodeOf(session->Commit(ManifestOf("uid-1", "default", {file}))), Code::kInvalidArgument);
  EXPECT_FALSE(Lacks(*session, file.segments[0].id));
  EXPECT_TRUE(Lacks(*session, file.segments[1].id));
  EXPECT_FALSE(Lacks(*session, file.segments[2].id));
  PutFile(*session, "a", {RandomText(6000, 2)});
  ASSERT_OK(session->Commit(ManifestOf("uid-1", "default", {file})));
  EXPECT_OK(Fetch(*store, "uid-1", dir / "out", {}));
  EXPECT_EQ(ReadText(dir / "out/a"), RandomText(5000, 1) + RandomText(6000, 2) + RandomText(7000, 3));
}

TEST(Session, EndsWhenNobodyUsesIt) {
  TempDir dir;
  FakeClock clock;
  auto store = Take(LocalStore::Open({.dir = dir / "store", .reserve_bytes = 0, .session_idle = std::chrono::hours(1)}, clock));
  auto session = Take(store->OpenSession("uid-1", "default"));
  PutFile(*session, "a", {"content"});
  clock.Advance(std::chrono::minutes(59));
  PutFile(*session, "b", {"more"});
  clock.Advance(std::chrono::minutes(59));
  store->ExpireSessions();
  EXPECT_EQ(store->StateOf("uid-1").value_or(SessionState::kUnknown), SessionState::kOpen);
  clock.Advance(std::chrono::minutes(2));
  store->ExpireSessions();
  EXPECT_EQ(store->StateOf("uid-1").value_or(SessionState::kUnknown), SessionState::kAborted);
  EXPECT_TRUE(PacksIn(dir / "store").empty());
}

TEST(Session, FailsWhenTheStoreCloses) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  auto session = Take(store->OpenSession("uid-1", "default"));
  store->Close();
  EXPECT_EQ(CodeOf(session->Commit(ManifestOf("uid-1", "default", {}))), Code::kUnavailable);
  EXPECT_EQ(session->Abort().code(), Code::kUnavailable);
  EXPECT_EQ(CodeOf(store->OpenSession("uid-2", "default")), Code::kUnavailable);
}

TEST(Session, NumberIsBounded) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  std::vector<std::unique_ptr<Session>> sessions;
  for (size_t i = 0; i < kMaxOpenSessions; ++i) sessions.push_back(Take(store->OpenSession("uid-" + std::to_string(i), "default")));
  // Hole 16: this passes, and does not mean that the store is full (which ends a checkpoint at once).
  EXPECT_EQ(CodeOf(store->OpenSession("one-more", "default")), Code::kUnavailable);
  ASSERT_OK(sessions[0]->Abort());
  EXPECT_OK(store->OpenSession("one-more", "default"));
}

// Hole 16: the sessions of nodes that had died kept others out for a day.
TEST(Session, OneThatNobodyUsesAnyMoreGivesWay) {
  TempDir dir;
  FakeClock clock;
  const LocalStoreOptions options{.dir = dir / "store", .keks = {}};
  auto store = Take(LocalStore::Open(options, clock));
  auto left = Take(store->OpenSession("left", "default", "dead-node"));
  FileEntry file = PutFile(*left, "a", {"some content"});
  clock.Advance(std::chrono::minutes(1));
  for (size_t i = 1; i < kMaxOpenSessions; ++i) {
    ASSERT_OK(store->OpenSession("uid-" + std::to_string(i), "default", "node-" + std::to_string(i % 20)));
  }
  clock.Advance(options.session_abandoned - std::chrono::seconds(90));
  EXPECT_EQ(CodeOf(store->OpenSession("one-more", "default", "node-1")), Code::kUnavailable) << "the first is old, but not so old";
  ASSERT_OK(store->OpenSession("uid-1", "default", "node-1"));
  clock.Advance(std::chrono::minutes(1));
  auto one_more = Take(store->OpenSession("one-more", "default", "node-1"));
  EXPECT_EQ(store->StateOf("left").value_or(SessionState::kOpen), SessionState::kUnknown);
  EXPECT_EQ(store->StateOf("uid-1").value_or(SessionState::kUnknown), SessionState::kOpen) << "it was used";
  // It was alive after all: what it had sent is sent again.
  ASSERT_OK(one_more->Abort());
  EXPECT_EQ(CodeOf(left->Missing(std::vector<SegmentId>(1))), Code::kFailedPrecondition);
  auto again = Take(store->OpenSession("left", "default", "dead-node"));
  file = PutFile(*again, "a", {"some content"});
  EXPECT_OK(again->Commit(ManifestOf("left", "default", {file})));
}

TEST(Session, ANodeHasItsOwnBoundAlsoAfterARestart) {
  TempDir dir;
  FakeClock clock;
  const LocalStoreOptions options{.dir = dir / "store", .keks = {}};
  auto store = Take(LocalStore::Open(options, clock));
  for (size_t i = 0; i < kMaxOpenSessionsOfNode; ++i) ASSERT_OK(store->OpenSession("uid-" + std::to_string(i), "default", "greedy"));
  for (bool restarted : {false, true}) {
    if (restarted) {
      store.reset();
      store = Take(LocalStore::Open(options, clock));
    }
    EXPECT_EQ(CodeOf(store->OpenSession("one-more", "default", "greedy")), Code::kUnavailable);
    EXPECT_OK(store->OpenSession("uid-0", "default", "greedy"));  // it is open
    EXPECT_OK(store->OpenSession("other", "default", "modest"));
  }
}

TEST(Session, SurvivesManyThreadsAtOnce) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 10; ++round) {
        const std::string uid = "uid-" + std::to_string(t) + "-" + std::to_string(round);
        auto session = store->OpenSession(uid, "default");
        ASSERT_OK(session);
        FileEntry file = PutFile(**session, "a", {"in all", "of round " + std::to_string(round), "own " + uid});
        if (round % 3 == 2) {
          ASSERT_OK((*session)->Abort());
          continue;
        }
        ASSERT_OK((*session)->Commit(ManifestOf(uid, "default", {file})));
        for (const SegmentRef& segment : file.segments) ASSERT_OK(store->GetSegment(uid, segment));
        if (round % 2 == 0) ASSERT_OK(store->Delete(uid));
      }
    });
  }
  threads.clear();
  const std::vector<std::string> left = Take(ListDir(dir / "store/manifests"));
  for (const std::string& uid : left) {
    EXPECT_OK(Fetch(*store, uid, dir / "out", {}));
    ASSERT_OK(store->Delete(uid));
  }
  EXPECT_TRUE(PacksIn(dir / "store").empty());
}

}  // namespace
}  // namespace holdfast::storage
