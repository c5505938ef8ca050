// Several stores: which one a checkpoint goes to, what happens when that cannot take it, and that it stays where its journal says.
#include "agent/stores.h"

#include "api/stores.h"
#include "executor_fixture.h"

namespace holdfast::agent {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kSecond[] = "holdfast-store-1";

// A Deployment of the namespace default whose own store is this one.
std::string OwnerThatPrefers(const std::string& store) {
  for (int i = 0;; ++i) {
    std::string name = "web-" + std::to_string(i);
    if (api::StoresFor({"default", kSecond}, "default", "Deployment/" + name)[0] == store) return name;
  }
}

class TwoStores : public ExecutorTest {
 protected:
  TwoStores() {
    two_stores = true;
    Prefer(kSecond);
    Restart();
  }
  void Prefer(const std::string& wanted) {
    cluster.checkpoint["status"]["owner"] = {{"kind", "Deployment"}, {"name", OwnerThatPrefers(wanted)}, {"uid", "o"}};
  }
  std::string StoredIn() { return cluster.Seen().status.manifest_store; }
};

TEST_F(TwoStores, ACheckpointGoesToItsWorkloadsOwnStore) {
  EXPECT_FALSE(Drive(4));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady) << Message();
  EXPECT_EQ(StoredIn(), kSecond);
  EXPECT_EQ(second.commits, 1);
  EXPECT_EQ(store.opens, 0) << "nobody else is asked";
}

TEST_F(TwoStores, AStoreThatIsFullOrSilentIsPassedOver) {
  for (bool full : {true, false}) {
    SCOPED_TRACE(full);
    store = FakeStore();
    second = FakeStore();
    (full ? second.full : second.reachable) = full;
    cluster.checkpoint = CheckpointJson(false);
    cluster.checkpoint["metadata"]["creationTimestamp"] = FormatTime(clock.Wall());
    Prefer(kSecond);
    EXPECT_TRUE(Drive(8)) << last.ToString();
    EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady) << Message();
    EXPECT_EQ(StoredIn(), "default");
    EXPECT_EQ(second.commits, 0);
  }
}

TEST_F(TwoStores, TheParentIsOfTheSameStoreOrThereIsNone) {
  auto other = [&](const std::string& uid, const std::string& completed, const std::string& where) {
    Json cp = cluster.checkpoint;
    cp["metadata"]["uid"] = cp["metadata"]["name"] = uid;
    cp["status"]["phase"] = "Ready";
    cp["status"]["completedAt"] = completed;
    cp["status"]["manifest"] = {{"store", where}, {"id", uid}, {"digest", "d"}};
    return cp;
  };
  cluster.others = {other("older", "2026-01-01T00:00:00Z", kSecond), other("newer", "2026-01-02T00:00:00Z", "default")};
  std::vector<std::string> parents;
  on_ingest = [&](const storage::IngestOptions& options) -> Result<std::vector<storage::FileEntry>> {
    parents.push_back(options.parent);
    return std::vector<storage::FileEntry>{};
  };
  EXPECT_FALSE(Drive(4));
  EXPECT_EQ(StoredIn(), kSecond);
  EXPECT_THAT(parents, ElementsAre("older"));
}

TEST_F(TwoStores, OnlyWhenAllAreFullNothingIsFrozenForIt) {
  store.full = second.full = true;
  EXPECT_TRUE(Drive());
  EXPECT_EQ(Reason(), api::reason::kStoreFull);
  EXPECT_THAT(Message(), HasSubstr(kSecond));
  EXPECT_THAT(Message(), HasSubstr("store default"));
  EXPECT_FALSE(Frozen());
}

TEST_F(TwoStores, ItWaitsForOneThatIsSilentWhileTheOtherIsFull) {
  store.full = true;
  second.reachable = false;
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kAssigned);
  EXPECT_THAT(Message(), HasSubstr("waiting for the store"));
  EXPECT_FALSE(Frozen());
  second.reachable = true;
  EXPECT_FALSE(Drive(4));
  EXPECT_EQ(StoredIn(), kSecond);
}

TEST_F(TwoStores, AnAgentThatDiedGoesOnWhereItsJournalSays) {
  second.reachable = false;
  on_ingest = [](const storage::IngestOptions&) { return Status(Code::kUnavailable, "the agent dies here"); };
  EXPECT_FALSE(Drive(1));
  ASSERT_EQ(StepNow(), Step::kStoring);
  EXPECT_EQ(journal.Read("ck-uid")->store, "default");
  second.reachable = true;
  on_ingest = nullptr;
  Restart();
  EXPECT_FALSE(Drive(4));
  EXPECT_EQ(StoredIn(), "default");
  EXPECT_EQ(store.commits, 1);
  EXPECT_EQ(second.state, storage::SessionState::kUnknown);
}

TEST_F(TwoStores, AJournalOfBeforeThereWereSeveralMeansTheDefaultOne) {
  Json old = Entry(Step::kStoring).ToJson();
  old.erase("store");
  ASSERT_TRUE(WriteFileAtomically(layout.JournalFolder() + "/ck-uid.json", DumpJson(old)).ok());
  node.containers["c1"] = ContainerState::kPaused;
  ASSERT_TRUE(MakeDirs(layout.Landing("ck-uid", Place::kDisk)).ok());
  ASSERT_TRUE(WriteFileAtomically(layout.Landing("ck-uid", Place::kDisk) + "/request.json", R"({"final": true})").ok());
  Dump(layout.Landing("ck-uid", Place::kDisk), true);
  Restart();
  EXPECT_FALSE(Drive(4));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady) << Message() << last.ToString();
  EXPECT_EQ(StoredIn(), "default");
  EXPECT_EQ(second.opens, 0);
}

TEST_F(TwoStores, APodWhoseCommitIsInAStoreThatIsGoneRunsOnOnlyByTheClaim) {
  JournalEntry entry = Entry(Step::kCommitAsked);
  entry.store = "holdfast-store-7";
  ASSERT_TRUE(journal.Write(entry).ok());
  storage::Manifest manifest;
  manifest.ns = "default";
  manifest.checkpoint = "ck";
  manifest.checkpoint_uid = "ck-uid";
  ASSERT_TRUE(journal.WriteManifest("ck-uid", manifest.Serialize()).ok());
  node.containers["c1"] = ContainerState::kPaused;
  ASSERT_TRUE(MakeDirs(layout.Landing("ck-uid", Place::kDisk)).ok());
  Restart();
  EXPECT_FALSE(Drive(3));
  EXPECT_TRUE(Frozen()) << "it may have been committed there";
  EXPECT_TRUE(Drive(400)) << last.ToString();
  EXPECT_FALSE(Frozen());
  EXPECT_EQ(cluster.Seen().status.claim->pod_uid, "pod-uid");
  EXPECT_EQ(Reason(), api::reason::kStoreUnavailable);
  EXPECT_EQ(store.opens + second.opens, 0) << "what is in one store is looked for in no other";
}

TEST_F(TwoStores, ADeletedCheckpointOfAStoreThatIsGoneLetsItsPodGo) {
  JournalEntry entry = Entry(Step::kCommitted);
  entry.store = "holdfast-store-7";
  entry.commit.id = "ck-uid";
  ASSERT_TRUE(journal.Write(entry).ok());
  node.containers["c1"] = ContainerState::kPaused;
  cluster.checkpoint = nullptr;
  Restart();
  EXPECT_TRUE(Drive()) << last.ToString();
  EXPECT_FALSE(Frozen());
  EXPECT_FALSE(store.deleted || second.deleted);
}

TEST_F(TwoStores, OneThatWasSilentIsAskedLastForAWhile) {
  second.reachable = false;
  const std::string workload = "Deployment/" + OwnerThatPrefers(kSecond);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(*both.Open("a" + std::to_string(i), "default", workload, {}), "default");
  EXPECT_EQ(second.opens, 1) << "the others do not wait for it";
  second.reachable = true;
  clock.Advance(seconds(10));
  EXPECT_EQ(*both.Open("b", "default", workload, {}), kSecond);
}

TEST_F(TwoStores, AStoresLastWordOnAnIdIsNotTakenElsewhere) {
  class Ended final : public storage::Store {
   public:
    Result<std::unique_ptr<storage::Session>> OpenSession(const std::string&, const std::string&) override { return Over(); }
    Result<storage::SessionState> StateOf(const std::string&) override { return Over(); }
    Result<storage::Manifest> GetManifest(const std::string&) override { return Over(); }
    Result<std::string> GetSegment(const std::string&, const storage::SegmentRef&) override { return Over(); }
    Status Delete(const std::string&) override { return Over(); }

   private:
    static Status Over() { return {Code::kFailedPrecondition, "it was aborted"}; }
  } ended;
  Stores with_ended({{"default", &store}, {kSecond, &ended}}, nullptr, clock);
  const auto opened = with_ended.Open("a", "default", "Deployment/" + OwnerThatPrefers(kSecond), {});
  EXPECT_EQ(opened.status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(store.opens, 0);
}

// Each of them lets whoever asks wait for as long as it may.
TEST(Stores, ThatAllHangTakeSomeSecondsInAll) {
  FakeClock clock;
  FakeStore silent;
  silent.reachable = false;
  std::map<std::string, storage::Store*> all;
  for (int i = 0; i < 32; ++i) all["s" + std::to_string(i)] = &silent;
  class Hanging final : public storage::Store {
   public:
    Hanging(FakeClock& clock, MonoTime until) : clock_(clock), until_(until) {}
    Result<std::unique_ptr<storage::Session>> OpenSession(const std::string&, const std::string&) override { return Hang(); }
    Result<storage::SessionState> StateOf(const std::string&) override { return Hang(); }
    Result<storage::Manifest> GetManifest(const std::string&) override { return Hang(); }
    Result<std::string> GetSegment(const std::string&, const storage::SegmentRef&) override { return Hang(); }
    Status Delete(const std::string&) override { return Hang(); }

   private:
    Status Hang() {
      clock_.Advance(until_ - clock_.Mono());
      return {Code::kUnavailable, "no answer"};
    }
    FakeClock& clock_;
    const MonoTime until_;
  };
  Stores stores(
      all, [&](const std::string&, MonoTime until, std::stop_token) { return std::make_unique<Hanging>(clock, until); }, clock);
  const MonoTime began = clock.Mono();
  EXPECT_EQ(stores.Open("a", "default", "Job/x", {}).status().code(), Code::kUnavailable);
  EXPECT_EQ(clock.Mono() - began, seconds(8));
}

TEST(Stores, OneThatIsNotConfiguredAnswersThatItIsNot) {
  FakeClock clock;
  FakeStore store;
  Stores stores({{"default", &store}}, nullptr, clock);
  EXPECT_TRUE(stores.Has("default"));
  EXPECT_FALSE(stores.Has("other"));
  EXPECT_EQ(stores.Of("other").StateOf("a").status().code(), Code::kUnavailable);
  EXPECT_EQ(stores.Of("other").Delete("a").code(), Code::kUnavailable);
  EXPECT_EQ(&stores.Of("default"), &store);
  EXPECT_THAT(Stores::Missing("other").message(), HasSubstr("store.replicas"));
}

}  // namespace
}  // namespace holdfast::agent
