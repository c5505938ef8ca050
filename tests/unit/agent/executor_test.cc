// Every way of a Checkpoint through the executor, and a death at every step of it.
#include "agent/executor.h"

#include <gmock/gmock.h>

#include <thread>

#include "fakes.h"

namespace holdfast::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Moves a FakeClock on while somebody waits on it.
class Pump {
 public:
  explicit Pump(FakeClock& clock)
      : thread_([&clock](std::stop_token stop) {
          while (!stop.stop_requested()) {
            // Paced: free running, virtual time would outrun the code under test.
            if (clock.waiters() > 0) clock.Advance(std::chrono::milliseconds(100));
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        }) {}

 private:
  std::jthread thread_;
};

class ExecutorTest : public testing::Test {
 protected:
  ExecutorTest() {
    layout.run = dir.path() + "/run";
    layout.state = dir.path() + "/state";
    EXPECT_TRUE(layout.Make().ok());
    cluster.pods["default/web-0"] = PodJson("web-0", "pod-uid");
    cluster.checkpoint = CheckpointJson(true);
    cluster.checkpoint["metadata"]["creationTimestamp"] = FormatTime(clock.Wall());
    node.containers["c1"] = ContainerState::kRunning;
    node.on_dump = [this](const std::string& landing) { Dump(landing, true); };
    kubelet.on_checkpoint = [this](const std::string&) -> Result<std::string> {
      Dump(layout.Landing("ck-uid"), true);
      const std::string archive = dir.path() + "/archive.tar";
      EXPECT_TRUE(WriteFileAtomically(archive, "stub").ok());
      return archive;
    };
    Restart();
  }

  void Restart() {
    ExecutorOptions options;
    options.node_name = "node1";
    options.store_name = "default";
    options.admit = [this](int64_t term) { return term < leader_term ? Status(Code::kFailedPrecondition, "over") : Status::Ok(); };
    options.ingest = [this](const std::string& landing, storage::Session&, const storage::IngestOptions& o) { return Ingest(landing, o); };
    executor = std::make_unique<Executor>(options, layout, journal, node, kubelet, store, cluster, metrics, clock);
  }

  void Dump(const std::string& landing, bool ok) {
    runtime::DumpResult result;
    result.ok = ok;
    result.reason = ok ? "Completed" : "DumpFailed";
    result.message = ok ? "" : "CRIU: io_uring";
    result.frozen_ms = 810;
    result.memory_bytes = 1 << 20;
    Result<std::string> text = ReadFile(landing + "/request.json");
    ASSERT_TRUE(text.ok());
    const bool final = GetBool(*ParseJson(*text), {"final"});
    ASSERT_TRUE(MakeDirs(landing + "/main/images").ok());
    ASSERT_TRUE(WriteFileAtomically(landing + "/main/images/pages-1.img", std::string(8192, 'x')).ok());
    if (ok && final) node.containers["c1"] = ContainerState::kPaused;
    ASSERT_TRUE(WriteFileAtomically(landing + "/result.json", DumpJson(result.ToJson())).ok());
  }

  Result<std::vector<storage::FileEntry>> Ingest(const std::string& landing, const storage::IngestOptions& options) {
    EXPECT_TRUE(Exists(landing + "/result.json"));
    if (on_ingest) return on_ingest(options);
    return std::vector<storage::FileEntry>{};
  }

  // Runs until there is nothing to do now. Returns true when the checkpoint is finished on this node.
  bool Drive(int rounds = 50) {
    for (int i = 0; i < rounds; ++i) {
      Result<std::optional<Duration>> again = executor->Run("ck-uid", {});
      if (again.ok() && !*again) return !Exists(layout.JournalFolder() + "/ck-uid.json");
      last = again.status();
      clock.Advance(again.ok() ? **again : std::chrono::milliseconds(500));
    }
    return false;
  }

  Step StepNow() { return journal.Read("ck-uid")->step; }
  std::string Reason() { return cluster.Seen().Ready() == nullptr ? "" : cluster.Seen().Ready()->reason; }
  std::string Message() { return cluster.Seen().Ready() == nullptr ? "" : cluster.Seen().Ready()->message; }
  bool Frozen() { return node.containers["c1"] == ContainerState::kPaused; }
  void ExpectNothingLeft() {
    EXPECT_THAT(*ListDir(layout.Containers()), IsEmpty());
    EXPECT_THAT(*ListDir(layout.run + "/pods"), IsEmpty());
    EXPECT_THAT(*ListDir(layout.state + "/landing"), IsEmpty());
    EXPECT_THAT(*ListDir(layout.JournalFolder()), IsEmpty());
  }

  int64_t leader_term = 0;
  TempDir dir;
  FakeClock clock;
  Layout layout;
  Journal journal{dir.path() + "/state/journal"};
  FakeNode node;
  FakeKubelet kubelet;
  FakeStore store;
  FakeCluster cluster;
  Metrics metrics;
  std::function<Result<std::vector<storage::FileEntry>>(const storage::IngestOptions&)> on_ingest;
  std::unique_ptr<Executor> executor;
  Status last;
};

TEST_F(ExecutorTest, AFinalCheckpointBecomesReadyAndThePodStaysFrozenUntilItIsGone) {
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_EQ(Reason(), "Completed");
  EXPECT_EQ(cluster.Seen().status.manifest_digest, "blake3:00");
  EXPECT_EQ(cluster.Seen().status.frozen_ms, 810);
  EXPECT_EQ(cluster.Seen().status.containers.at(0).pages, 2);
  EXPECT_TRUE(cluster.Seen().status.containers.at(0).restorable);
  EXPECT_TRUE(Frozen());
  EXPECT_TRUE(Exists(layout.PodFile("pod-uid")));
  EXPECT_TRUE(Exists(layout.IntentFile("c1")));
  EXPECT_THAT(node.thawed, IsEmpty());
  node.containers.clear();
  EXPECT_FALSE(Drive(2)) << "the kubelet might still create its containers again";
  cluster.pods.clear();
  EXPECT_TRUE(Drive());
  ExpectNothingLeft();
  EXPECT_THAT(node.thawed, IsEmpty());
}

TEST_F(ExecutorTest, AnAssignmentOfALeaderWhoseTermIsOverWaitsUntilItIsRenewed) {
  leader_term = 7;
  cluster.checkpoint["status"]["term"] = 6;
  EXPECT_FALSE(Drive(3));
  EXPECT_THAT(*ListDir(layout.JournalFolder()), IsEmpty());
  EXPECT_FALSE(Frozen());
  cluster.checkpoint["status"]["term"] = 7;
  EXPECT_FALSE(Drive());
  EXPECT_EQ(StepNow(), Step::kCommitted);
}

TEST_F(ExecutorTest, APodThatTheControllerReclaimedIsThawed) {
  EXPECT_FALSE(Drive(3));
  cluster.checkpoint["status"]["claim"] = {{"podName", "web-0"}, {"podUID", "pod-uid"}, {"at", "2026-01-01T00:00:00Z"}};
  EXPECT_TRUE(Drive());
  EXPECT_FALSE(Frozen());
  EXPECT_TRUE(cluster.HasEvent("pod/web-0", "Thawed"));
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, AClaimOfTheSuccessorDoesNotThaw) {
  EXPECT_FALSE(Drive(3));
  cluster.checkpoint["status"]["claim"] = {{"podName", "web-1"}, {"podUID", "other"}, {"at", "2026-01-01T00:00:00Z"}};
  EXPECT_FALSE(Drive(5));
  EXPECT_TRUE(Frozen());
}

TEST_F(ExecutorTest, ACheckpointThatIsNotFinalGoesThroughTheKubeletAndThePodRunsOn) {
  cluster.checkpoint["spec"]["final"] = false;
  EXPECT_TRUE(Drive());
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_THAT(kubelet.asked, ElementsAre("main"));
  EXPECT_EQ(node.dumps, 0);
  EXPECT_FALSE(Frozen());
  EXPECT_FALSE(Exists(dir.path() + "/archive.tar")) << "the kubelet's archive must not fill its disk";
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, AReplacedPodIsNotedAfterTheKubeletsCall) {
  cluster.checkpoint["spec"]["final"] = false;
  auto dump = kubelet.on_checkpoint;
  kubelet.on_checkpoint = [&, dump](const std::string& c) {
    cluster.pods["default/web-0"]["metadata"]["uid"] = "successor";
    return dump(c);
  };
  EXPECT_TRUE(Drive());
  EXPECT_EQ(Reason(), "PodReplaced");
  EXPECT_EQ(store.commits, 0);
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, ARestartedContainerIsNotedAfterTheKubeletsCall) {
  cluster.checkpoint["spec"]["final"] = false;
  auto dump = kubelet.on_checkpoint;
  kubelet.on_checkpoint = [&, dump](const std::string& c) {
    cluster.pods["default/web-0"]["status"]["containerStatuses"][0]["containerID"] = "containerd://c2";
    return dump(c);
  };
  EXPECT_TRUE(Drive());
  EXPECT_EQ(Reason(), "PodReplaced");
}

TEST_F(ExecutorTest, AKubeletThatDoesNotReachOurRuntimeIsADumpFailure) {
  cluster.checkpoint["spec"]["final"] = false;
  kubelet.on_checkpoint = [](const std::string&) -> Result<std::string> { return std::string("/nowhere/archive.tar"); };
  EXPECT_TRUE(Drive());
  EXPECT_EQ(Reason(), "DumpFailed");
  EXPECT_THAT(Message(), HasSubstr("runtime entry"));
}

TEST_F(ExecutorTest, ARefusingKubeletIsADumpFailureWithItsWords) {
  cluster.checkpoint["spec"]["final"] = false;
  kubelet.on_checkpoint = [](const std::string&) -> Result<std::string> { return Status(Code::kPermissionDenied, "no nodes/checkpoint"); };
  EXPECT_TRUE(Drive());
  EXPECT_EQ(Reason(), "DumpFailed");
  EXPECT_THAT(Message(), HasSubstr("no nodes/checkpoint"));
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, AFailedDumpThawsAndSaysWhatCriuSaid) {
  node.on_dump = [this](const std::string& landing) { Dump(landing, false); };
  EXPECT_TRUE(Drive());
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kFailed);
  EXPECT_EQ(Reason(), "DumpFailed");
  EXPECT_THAT(Message(), HasSubstr("io_uring"));
  EXPECT_TRUE(cluster.HasEvent("pod/web-0", "DumpFailed"));
  EXPECT_THAT(node.thawed, ElementsAre("c1"));
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, ADumpThatEndsWithoutAResultIsTriedOnceMore) {
  int tries = 0;
  node.on_dump = [&](const std::string& landing) {
    if (++tries == 2) Dump(landing, true);
  };
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_EQ(tries, 2);
}

TEST_F(ExecutorTest, ADumpThatNeverGivesAResultFailsAfterTwoTries) {
  node.on_dump = nullptr;
  node.output = "holdfast-runc: no space";
  EXPECT_TRUE(Drive());
  EXPECT_EQ(node.dumps, 2);
  EXPECT_EQ(Reason(), "DumpFailed");
  EXPECT_THAT(Message(), HasSubstr("no space"));
}

TEST_F(ExecutorTest, ADumpPastItsDeadlineIsKilledAndThePodThawed) {
  node.on_dump = [this](const std::string&) {
    node.dump_running = true;
    node.containers["c1"] = ContainerState::kPaused;
  };
  Pump pump(clock);
  EXPECT_TRUE(Drive());
  EXPECT_EQ(Reason(), "Deadline");
  EXPECT_EQ(node.kills, 1);
  EXPECT_FALSE(Frozen());
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, NothingIsFrozenForAFullStore) {
  store.full = true;
  EXPECT_TRUE(Drive());
  EXPECT_EQ(node.dumps, 0);
  EXPECT_EQ(Reason(), "StoreFull");
  EXPECT_THAT(Message(), HasSubstr("10 of 10 GiB"));
  EXPECT_FALSE(Frozen());
  EXPECT_TRUE(cluster.HasEvent("pod/web-0", "StoreFull"));
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, NothingIsFrozenForAStoreThatDoesNotAnswerUntilTheDeadline) {
  store.reachable = false;
  EXPECT_TRUE(Drive(1000));
  EXPECT_EQ(Reason(), "StoreUnavailable");
  EXPECT_EQ(node.dumps, 0);
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, AStoreThatFillsUpDuringTheDumpThawsThePodAndSaysSo) {
  node.on_dump = [&](const std::string& landing) {
    Dump(landing, true);
    store.full = true;
  };
  EXPECT_TRUE(Drive());
  EXPECT_EQ(Reason(), "StoreFull");
  EXPECT_FALSE(Frozen());
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, AStoreThatDiesDuringTheDumpIsAskedUntilTheDeadline) {
  node.on_dump = [&](const std::string& landing) {
    Dump(landing, true);
    store.reachable = false;
  };
  EXPECT_TRUE(Drive(1000));
  EXPECT_EQ(Reason(), "StoreUnavailable");
  EXPECT_FALSE(Frozen());
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, AStoreThatComesBackBeforeTheDeadlineGetsTheCheckpoint) {
  store.reachable = false;
  EXPECT_FALSE(Drive(10));
  EXPECT_FALSE(Frozen());
  store.reachable = true;
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
}

TEST_F(ExecutorTest, AReadPastTheDeadlineIsGivenUp) {
  on_ingest = [&](const storage::IngestOptions& options) -> Result<std::vector<storage::FileEntry>> {
    while (!options.stop.stop_requested()) std::this_thread::yield();
    return Status(Code::kCancelled, "stopped");
  };
  Pump pump(clock);
  EXPECT_TRUE(Drive());
  EXPECT_EQ(Reason(), "Deadline");
  EXPECT_FALSE(Frozen());
}

TEST_F(ExecutorTest, ProgressIsReportedWhileItIsStored) {
  on_ingest = [&](const storage::IngestOptions& options) -> Result<std::vector<storage::FileEntry>> {
    options.progress({5, 10, 3});
    while (clock.waiters() == 0) std::this_thread::yield();
    clock.Advance(std::chrono::seconds(1));
    while (cluster.CachedCheckpoint("ck-uid")->status.progress_bytes == 0) std::this_thread::yield();
    return std::vector<storage::FileEntry>{};
  };
  EXPECT_FALSE(Drive(3));
  EXPECT_THAT(cluster.phases, ElementsAre("Dumping", "Storing", "Ready"));
}

TEST_F(ExecutorTest, ADeletedCheckpointIsUndoneBeforeItsCommit) {
  on_ingest = [&](const storage::IngestOptions&) -> Result<std::vector<storage::FileEntry>> {
    cluster.checkpoint = nullptr;
    return std::vector<storage::FileEntry>{};
  };
  EXPECT_TRUE(Drive());
  EXPECT_EQ(store.commits, 0);
  EXPECT_FALSE(Frozen());
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, ACheckpointDeletedAfterItsCommitTakesItsManifestAlongBeforeThePodThaws) {
  store.on_commit = [&] { cluster.checkpoint = nullptr; };
  EXPECT_TRUE(Drive());
  EXPECT_TRUE(store.deleted);
  EXPECT_FALSE(Frozen());
}

TEST_F(ExecutorTest, ACheckpointDeletedWhileThePodIsKeptFrozenLetsThePodGo) {
  EXPECT_FALSE(Drive(3));
  cluster.checkpoint = nullptr;
  EXPECT_TRUE(Drive());
  EXPECT_FALSE(Frozen());
  EXPECT_TRUE(cluster.HasEvent("pod/web-0", "Thawed"));
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, ACheckpointDeletedAfterAnotherPodClaimedItLeavesTheOldPodFrozen) {
  EXPECT_FALSE(Drive(3));
  cluster.checkpoint["status"]["claim"] = {{"podName", "web-1"}, {"podUID", "other"}, {"at", "2026-01-01T00:00:00Z"}};
  EXPECT_FALSE(Drive(2));
  cluster.checkpoint = nullptr;
  Restart();
  EXPECT_FALSE(Drive(5));
  EXPECT_TRUE(Frozen());
}

TEST_F(ExecutorTest, ACommitWhoseAnswerIsLostLeavesThePodFrozenWhileNeitherStoreNorClaimAnswer) {
  store.commit_lost = true;
  store.on_commit = [&] { cluster.reachable = false; };
  EXPECT_FALSE(Drive(400));  // far past the deadline
  EXPECT_TRUE(Frozen());
  EXPECT_EQ(StepNow(), Step::kCommitAsked);
  EXPECT_TRUE(cluster.HasEvent("pod/web-0", "KeptFrozen"));
  // The store comes back and says the truth.
  store.commit_lost = false;
  store.on_commit = nullptr;
  store.reachable = cluster.reachable = true;
  EXPECT_FALSE(Drive(5));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_TRUE(Frozen());
}

TEST_F(ExecutorTest, ACommitWhoseAnswerIsLostIsUndoneOnlyAfterTheClaimIsWon) {
  store.commit_lost = true;
  EXPECT_TRUE(Drive(400));
  EXPECT_EQ(Reason(), "StoreUnavailable");
  ASSERT_TRUE(cluster.Seen().status.claim.has_value());
  EXPECT_EQ(cluster.Seen().status.claim->pod_uid, "pod-uid");
  EXPECT_FALSE(Frozen());
}

TEST_F(ExecutorTest, AClaimOfAnotherPodKeepsTheOldOneFrozen) {
  store.commit_lost = true;
  cluster.checkpoint["status"]["claim"] = {{"podName", "web-1"}, {"podUID", "other"}, {"at", "2026-01-01T00:00:00Z"}};
  EXPECT_FALSE(Drive(400));
  EXPECT_TRUE(Frozen());
  EXPECT_THAT(node.thawed, IsEmpty());
}

TEST_F(ExecutorTest, AnAbortedSessionLetsThePodGoAfterCommitWasAsked) {
  store.commit_error = Status(Code::kFailedPrecondition, "aborted by the operator");
  store.on_commit = nullptr;
  on_ingest = [&](const storage::IngestOptions&) -> Result<std::vector<storage::FileEntry>> {
    store.state = storage::SessionState::kAborted;
    return std::vector<storage::FileEntry>{};
  };
  EXPECT_TRUE(Drive());
  EXPECT_FALSE(Frozen());
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kFailed);
  EXPECT_FALSE(cluster.Seen().status.claim.has_value());
}

TEST_F(ExecutorTest, ACommitRefusedForSpaceIsAbortedAndUndone) {
  store.commit_error = Status(Code::kResourceExhausted, "no space for the manifest");
  EXPECT_TRUE(Drive());
  EXPECT_EQ(Reason(), "StoreFull");
  EXPECT_EQ(store.state, storage::SessionState::kAborted);
  EXPECT_FALSE(Frozen());
}

TEST_F(ExecutorTest, AMissingSegmentIsSentAgain) {
  store.commit_error = Status(Code::kInvalidArgument, "a segment is missing");
  int reads = 0;
  on_ingest = [&](const storage::IngestOptions&) -> Result<std::vector<storage::FileEntry>> {
    if (++reads == 2) store.commit_error = Status::Ok();
    return std::vector<storage::FileEntry>{};
  };
  EXPECT_FALSE(Drive(4));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
}

TEST_F(ExecutorTest, ReadyIsReportedWhenTheApiServerComesBack) {
  store.on_commit = [&] { cluster.reachable = false; };
  EXPECT_FALSE(Drive(5));
  EXPECT_TRUE(Frozen());
  cluster.reachable = true;
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_EQ(store.commits, 1);
}

TEST_F(ExecutorTest, AStatusThatTheApiServerRefusesIsReportedWithTheLeast) {
  cluster.on_patch = [](const Json& patch) {
    return Find(patch, {"status", "platform"}) != nullptr ? Status(Code::kInvalidArgument, "platform: unknown") : Status::Ok();
  };
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_EQ(cluster.Seen().status.manifest_id, "ck-uid");
}

TEST_F(ExecutorTest, AThawThatFailsIsTriedUntilItWorks) {
  node.on_dump = [this](const std::string& landing) { Dump(landing, false); };
  node.thaw_fails = true;
  EXPECT_FALSE(Drive(5));
  EXPECT_THAT(last.message(), HasSubstr("stays frozen"));
  node.thaw_fails = false;
  EXPECT_TRUE(Drive());
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, ASecondCheckpointOfAPodWaitsForTheFirst) {
  EXPECT_FALSE(Drive(3));
  cluster.checkpoint["metadata"]["uid"] = "second";
  cluster.checkpoint["metadata"]["name"] = "second";
  cluster.checkpoint["status"] = {{"phase", "Assigned"}, {"nodeName", "node1"}, {"podUID", "pod-uid"}};
  Result<std::optional<Duration>> again = executor->Run("second", {});
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->has_value());
  clock.Advance(std::chrono::seconds(200));
  EXPECT_TRUE(executor->Run("second", {}).ok());
  EXPECT_EQ(Reason(), "Deadline");
}

TEST_F(ExecutorTest, ADeadAgentsSuccessorGoesOnFromEveryStep) {
  struct Case {
    Step step;
    bool result;     // the dump has left its result
    bool committed;  // the store has committed
  };
  const Case cases[] = {{Step::kIntent, false, false},    {Step::kDumping, false, false}, {Step::kDumping, true, false},
                        {Step::kDumped, true, false},     {Step::kStoring, true, false},  {Step::kCommitAsked, true, false},
                        {Step::kCommitAsked, true, true}, {Step::kCommitted, true, true}};
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(StepName(c.step)) + (c.result ? " with" : " without") + " result" + (c.committed ? ", committed" : ""));
    cluster.checkpoint = CheckpointJson(true);
    cluster.checkpoint["status"]["phase"] = "Storing";
    cluster.pods["default/web-0"] = PodJson("web-0", "pod-uid");
    node.containers["c1"] = c.result ? ContainerState::kPaused : ContainerState::kRunning;
    node.thawed.clear();
    store = FakeStore();
    JournalEntry entry;
    entry.uid = "ck-uid";
    entry.ns = "default";
    entry.name = "ck";
    entry.pod = "web-0";
    entry.pod_uid = "pod-uid";
    entry.final = true;
    entry.step = c.step;
    entry.deadline_unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(clock.Wall().time_since_epoch()).count() + 60000;
    entry.containers = {{"main", "c1", "counter:1", ""}};
    ASSERT_TRUE(WriteIntents(layout, entry).ok());
    if (c.result) Dump(layout.Landing("ck-uid"), true);
    if (c.step >= Step::kCommitAsked) {
      storage::Manifest manifest;
      manifest.ns = "default";
      manifest.checkpoint = "ck";
      manifest.checkpoint_uid = "ck-uid";
      manifest.created = "2026-01-01T00:00:00Z";
      ASSERT_TRUE(journal.WriteManifest("ck-uid", manifest.Serialize()).ok());
      store.state = storage::SessionState::kOpen;
      if (c.committed) {
        store.state = storage::SessionState::kCommitted;
        store.manifest = manifest;
      }
    }
    if (c.step == Step::kCommitted) entry.commit.id = "ck-uid";
    ASSERT_TRUE(journal.Write(entry).ok());
    Restart();
    Result<std::vector<std::string>> uids = executor->Recover();
    ASSERT_TRUE(uids.ok());
    EXPECT_THAT(*uids, ElementsAre("ck-uid"));
    EXPECT_FALSE(Drive(5));
    EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady) << last.ToString();
    EXPECT_TRUE(Frozen());
    node.containers.clear();
    cluster.pods.clear();
    EXPECT_TRUE(Drive());
    ExpectNothingLeft();
  }
}

TEST_F(ExecutorTest, ASuccessorFinishesAnUndoThatHadBegun) {
  JournalEntry entry;
  entry.uid = "ck-uid";
  entry.ns = "default";
  entry.name = "ck";
  entry.pod = "web-0";
  entry.pod_uid = "pod-uid";
  entry.final = true;
  entry.step = Step::kStoring;
  entry.failure_reason = "StoreFull";
  entry.failure_message = "full";
  entry.containers = {{"main", "c1", "", ""}};
  ASSERT_TRUE(WriteIntents(layout, entry).ok());
  ASSERT_TRUE(journal.Write(entry).ok());
  node.containers["c1"] = ContainerState::kPaused;
  ASSERT_TRUE(executor->Recover().ok());
  EXPECT_TRUE(Drive());
  EXPECT_FALSE(Frozen());
  EXPECT_EQ(Reason(), "StoreFull");
  ExpectNothingLeft();
}

TEST_F(ExecutorTest, ASuccessorWaitsForADumpThatOutlivedTheAgent) {
  JournalEntry entry;
  entry.uid = "ck-uid";
  entry.ns = "default";
  entry.name = "ck";
  entry.pod = "web-0";
  entry.pod_uid = "pod-uid";
  entry.final = true;
  entry.step = Step::kDumping;
  entry.deadline_unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(clock.Wall().time_since_epoch()).count() + 60000;
  entry.containers = {{"main", "c1", "", ""}};
  ASSERT_TRUE(WriteIntents(layout, entry).ok());
  ASSERT_TRUE(journal.Write(entry).ok());
  node.dump_running = true;
  ASSERT_TRUE(executor->Recover().ok());
  std::jthread dump([this](std::stop_token stop) {
    while (clock.waiters() == 0) std::this_thread::yield();
    Dump(layout.Landing("ck-uid"), true);
    while (!stop.stop_requested()) {
      if (clock.waiters() > 0) clock.Advance(std::chrono::milliseconds(5));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // paced, as Pump is
    }
  });
  EXPECT_FALSE(Drive(3));
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_EQ(node.dumps, 0);
  EXPECT_THAT(node.thawed, IsEmpty());
}

TEST_F(ExecutorTest, AFrozenContainerThatNoJournalClaimsIsThawedAtTheStart) {
  JournalEntry entry;
  entry.uid = "lost";
  entry.ns = "default";
  entry.name = "lost";
  entry.pod = "web-0";
  entry.pod_uid = "pod-uid";
  entry.final = true;
  entry.containers = {{"main", "c1", "", ""}};
  ASSERT_TRUE(WriteIntents(layout, entry).ok());
  node.containers["c1"] = ContainerState::kPaused;
  Result<std::vector<std::string>> uids = executor->Recover();
  ASSERT_TRUE(uids.ok());
  EXPECT_THAT(*uids, IsEmpty());
  EXPECT_FALSE(Frozen());
  EXPECT_THAT(*ListDir(layout.Containers()), IsEmpty());
  EXPECT_THAT(*ListDir(layout.run + "/pods"), IsEmpty());
}

TEST_F(ExecutorTest, WhatADamagedJournalEntryFrozeStaysFrozen) {
  JournalEntry entry;
  entry.uid = "damaged";
  entry.ns = "default";
  entry.name = "x";
  entry.pod = "web-0";
  entry.pod_uid = "pod-uid";
  entry.final = true;
  entry.containers = {{"main", "c1", "", ""}};
  ASSERT_TRUE(WriteIntents(layout, entry).ok());
  ASSERT_TRUE(WriteFileAtomically(layout.JournalFolder() + "/damaged.json", "{\"uid\": \"dam").ok());
  node.containers["c1"] = ContainerState::kPaused;
  ASSERT_TRUE(executor->Recover().ok());
  EXPECT_TRUE(Frozen());
}

TEST_F(ExecutorTest, ACheckpointOfAnotherNodeOrAFinishedOneIsNotTouched) {
  cluster.checkpoint["status"]["nodeName"] = "node2";
  EXPECT_TRUE(Drive());
  cluster.checkpoint["status"] = {{"phase", "Ready"}, {"nodeName", "node1"}};
  EXPECT_TRUE(Drive());
  EXPECT_EQ(node.dumps, 0);
  EXPECT_THAT(cluster.phases, IsEmpty());
}

TEST_F(ExecutorTest, AStaleCacheDoesNotTurnAFinishedCheckpointIntoAFailedOne) {
  cluster.checkpoint["spec"]["final"] = false;
  ASSERT_TRUE(Drive());
  ASSERT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_TRUE(Drive());
  EXPECT_EQ(cluster.Seen().status.phase, api::Phase::kReady);
  EXPECT_EQ(kubelet.asked.size(), 1u);
}

}  // namespace
}  // namespace holdfast::agent
