// From "a pod with a claim is here" to what holdfast-runc is told, and what is reported.
#include "agent/restorer.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <thread>

#include "fakes.h"

namespace holdfast::agent {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class RestorerTest : public testing::Test {
 protected:
  RestorerTest() {
    layout.run = dir.path() + "/run";
    layout.state = dir.path() + "/state";
    EXPECT_TRUE(layout.Make().ok());
    Json pod = PodJson("web-1", "new-uid");
    pod["metadata"]["annotations"][api::kRestore] = "ck";
    pod["spec"]["initContainers"] =
        Json::parse(R"([{"name":"holdfast-wait"},{"name":"migrate"},{"name":"log-shipper","restartPolicy":"Always"}])");
    pod["spec"]["containers"].push_back({{"name", "istio-proxy"}});
    pod["status"] = {{"phase", "Pending"}};
    cluster.pods["default/web-1"] = pod;
    cluster.checkpoint = CheckpointJson(true);
    cluster.checkpoint["status"] = {{"phase", "Ready"},
                                    {"nodeName", "node0"},
                                    {"podUID", "pod-uid"},
                                    {"completedAt", FormatTime(clock.Wall() - std::chrono::seconds(7))},
                                    {"manifest", {{"store", "default"}, {"id", "ck-uid"}, {"digest", "blake3:00"}}},
                                    {"containers", Json::array({{{"name", "main"}, {"restorable", true}}})},
                                    {"claim", {{"podName", "web-1"}, {"podUID", "new-uid"}, {"at", "2026-01-01T00:00:00Z"}}}};
    Restart();
  }

  void Restart() {
    RestorerOptions options;
    options.node_name = "node1";
    options.boot_id = boot_id;
    options.fetch = [this](storage::Store& from, const std::string& manifest, const std::string& to,
                           const storage::IngestOptions& asked) -> Status {
      ++fetches;
      EXPECT_EQ(manifest, "ck-uid");
      EXPECT_EQ(&from, &store);
      if (!fetch_error.ok()) return fetch_error;
      if (on_fetch) on_fetch(asked);
      WriteImages(to);
      return Status::Ok();
    };
    options.kept = [this](const std::string& manifest, const std::string& to, const storage::IngestOptions&) {
      return on_kept ? on_kept(manifest, to) : Status(Code::kNotFound, "none");
    };
    options.disk = &disk;
    options.enqueue = [](const std::string&) {};
    restorer = std::make_unique<Restorer>(options, layout, journal, node, stores, cluster, metrics, clock);
  }

  static void WriteImages(const std::string& to) {
    ASSERT_TRUE(MakeDirs(to + "/main/images").ok());
    ASSERT_TRUE(WriteFileAtomically(to + "/main/images/inventory.img", "x").ok());
    runtime::DumpRequest request;
    request.checkpoint_uid = "ck-uid";
    request.pod_uid = "pod-uid";
    request.ns = "default";
    request.pod = "web-0";
    request.containers = {{"main", "c1"}};
    request.volumes = {{"scratch", "/var/lib/kubelet/pods/pod-uid/volumes/kubernetes.io~empty-dir/scratch"}};
    ASSERT_TRUE(WriteFileAtomically(to + "/request.json", DumpJson(request.ToJson())).ok());
    runtime::DumpResult result;
    result.ok = true;
    result.frozen_ms = 810;
    ASSERT_TRUE(WriteFileAtomically(to + "/result.json", DumpJson(result.ToJson())).ok());
  }

  // The controller passes on what the pod's policy says.
  void Follow(const char* options) { cluster.pods["default/web-1"]["metadata"]["annotations"][api::kRestoreOptions] = options; }

  void Drive(int rounds = 20) {
    for (int i = 0; i < rounds; ++i) {
      Result<std::optional<Duration>> again = restorer->Run("default/web-1", {});
      if (again.ok() && !*again) return;
      clock.Advance(again.ok() ? **again : std::chrono::milliseconds(500));
    }
  }

  runtime::CreateAnswer Create(const std::string& container, const std::string& id, const std::string& pod = "web-1",
                               const std::string& uid = "new-uid") {
    runtime::CreateQuestion question;
    question.pod_uid = uid;
    question.ns = "default";
    question.pod = pod;
    question.container = container;
    question.container_id = id;
    return restorer->Create(question, {});
  }

  runtime::CreateAnswer Outcome(const std::string& id, bool ok, bool ran = false) {
    runtime::RestoreOutcome outcome;
    outcome.pod_uid = "new-uid";
    outcome.container = "main";
    outcome.container_id = id;
    outcome.ok = ok;
    outcome.ran = ran;
    outcome.seconds = 0.25;
    outcome.message = ok ? "" : "CRIU: cannot bind";
    if (ok) node.on_node.push_back({id, "new-uid", "default", "web-1", "main", true});
    return restorer->Outcome(outcome);
  }

  // A checkpoint that was made on this node, committed, and whose pod is there still.
  void LeaveLandingFolder(Place place = Place::kDisk) {
    JournalEntry entry;
    entry.uid = "ck-uid";
    entry.ns = "default";
    entry.name = "ck";
    entry.pod = "web-0";
    entry.pod_uid = "pod-uid";
    entry.step = Step::kCommitted;
    entry.place = place;
    ASSERT_TRUE(journal.Write(entry).ok());
    WriteImages(layout.Landing("ck-uid", place));
    storage::Manifest manifest;
    manifest.ns = "default";
    manifest.checkpoint = "ck";
    manifest.checkpoint_uid = "ck-uid";
    manifest.created = "2026-01-01T00:00:00Z";
    for (const char* path : {"main/images/inventory.img", "request.json", "result.json"}) {
      storage::FileEntry file;
      file.path = path;
      file.size = ReadFile(layout.Landing("ck-uid", place) + "/" + path)->size();
      storage::SegmentRef segment;
      segment.size = static_cast<uint32_t>(file.size);
      file.segments = {segment};
      manifest.files.push_back(file);
    }
    ASSERT_TRUE(journal.WriteManifest("ck-uid", manifest.Serialize()).ok());
  }

  std::string WaitStateNow() {
    Result<std::string> text = ReadFile(layout.WaitFolder("new-uid") + "/state");
    return text.ok() ? GetString(*ParseJson(*text), {"state"}) : "none";
  }

  TempDir dir;
  FakeClock clock;
  Layout layout;
  Journal journal{dir.path() + "/state/journal"};
  FakeNode node;
  FakeStore store;
  Stores stores{{{"default", &store}}, nullptr, clock};
  FakeCluster cluster;
  Metrics metrics;
  std::string boot_id = "boot-1";
  DiskSpace disk_space = {.size_bytes = 1 << 30, .free_bytes = 1 << 29};
  DiskRoom disk{[this](const std::string&) -> Result<DiskSpace> { return disk_space; }};
  Status fetch_error;
  int fetches = 0;
  std::function<void(const storage::IngestOptions&)> on_fetch;
  std::function<Status(const std::string& manifest, const std::string& to)> on_kept;
  std::unique_ptr<Restorer> restorer;
};

TEST_F(RestorerTest, AClaimedPodIsRestoredOnceAndBothSidesHearOfIt) {
  Drive();
  EXPECT_EQ(WaitStateNow(), "ready");
  runtime::CreateAnswer answer = Create("main", "n1");
  EXPECT_EQ(answer.action, "restore");
  EXPECT_EQ(answer.dir, layout.RestoreFolder("new-uid"));
  EXPECT_EQ(answer.container, "main");
  EXPECT_TRUE(answer.first);
  EXPECT_FALSE(answer.more);
  ASSERT_EQ(answer.volumes.size(), 1u);
  EXPECT_EQ(answer.volumes[0].path, "/var/lib/kubelet/pods/new-uid/volumes/kubernetes.io~empty-dir/scratch");
  EXPECT_EQ(Outcome("n1", true).action, "restore");
  Drive();
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "Restored");
  EXPECT_EQ(cluster.restores[0].seconds, 0.25);
  ASSERT_TRUE(cluster.HasEvent("pod/web-1", "Restored"));
  EXPECT_THAT(cluster.events.back().note, HasSubstr("from checkpoint ck taken on node node0, 7 s ago, frozen for 0.81 s"));
  EXPECT_FALSE(Exists(layout.RestoreFolder("new-uid")));
  EXPECT_FALSE(Exists(layout.WaitFolder("new-uid")));
  Drive();
  EXPECT_EQ(cluster.restores.size(), 1u);
}

TEST_F(RestorerTest, ARestoredContainerThatRestartsStartsColdAndSaysSo) {
  Drive();
  Create("main", "n1");
  Outcome("n1", true);
  EXPECT_EQ(Create("main", "n2").action, "cold");
  EXPECT_TRUE(cluster.HasEvent("pod/web-1", "RestartedCold"));
}

TEST_F(RestorerTest, AFailedRestoreIsTriedThreeTimesAndThenStartsCold) {
  Drive();
  for (const char* id : {"n1", "n2"}) {
    EXPECT_EQ(Create("main", id).action, "restore");
    EXPECT_EQ(Outcome(id, false).action, "refuse");
  }
  EXPECT_EQ(Create("main", "n3").action, "restore");
  EXPECT_EQ(Outcome("n3", false).action, "cold");
  Drive();
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "ColdStart");
  EXPECT_THAT(cluster.restores[0].reason, HasSubstr("cannot bind"));
  EXPECT_TRUE(cluster.HasEvent("pod/web-1", "ColdStart"));
  EXPECT_EQ(Create("main", "n4").action, "cold");
}

TEST_F(RestorerTest, TheNumberOfTriesIsThePolicys) {
  Follow(R"({"attempts":1})");
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "restore");
  EXPECT_EQ(Outcome("n1", false).action, "cold");
}

TEST_F(RestorerTest, OnFailureRetryTriesOnAndNeverStartsCold) {
  Follow(R"({"onFailure":"Retry","attempts":2})");
  Drive();
  for (const char* id : {"n1", "n2", "n3", "n4", "n5"}) {
    EXPECT_EQ(Create("main", id).action, "restore");
    EXPECT_EQ(Outcome(id, false).action, "refuse");
  }
  EXPECT_EQ(Create("main", "n6").action, "restore");
  EXPECT_EQ(Outcome("n6", true).action, "restore");
  Drive();
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "Restored");
}

TEST_F(RestorerTest, OnFailureRetryFetchesWhatWasDamagedUntilItIsWhole) {
  Follow(R"({"onFailure":"Retry"})");
  fetch_error = Status(Code::kDataLoss, "segment 12 is damaged");
  Drive(40);
  EXPECT_GT(fetches, 10);
  EXPECT_NE(WaitStateNow(), "cold");
  EXPECT_EQ(cluster.CountEvents("RestoreFailed"), 1) << "the same failure is told once";
  fetch_error = Status::Ok();
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "restore");
}

TEST_F(RestorerTest, OnFailureFailHoldsThePodAndSaysWhatToDo) {
  Follow(R"({"onFailure":"Fail","attempts":2})");
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "restore");
  EXPECT_EQ(Outcome("n1", false).action, "refuse");
  EXPECT_EQ(Create("main", "n2").action, "restore");
  EXPECT_EQ(Outcome("n2", false).action, "refuse");
  Drive();
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "Failed");
  EXPECT_FALSE(cluster.restores[0].ran);
  ASSERT_TRUE(cluster.HasEvent("pod/web-1", "RestoreFailed"));
  EXPECT_THAT(cluster.events.back().note, HasSubstr("Delete the pod to try once more"));
  Restart();
  restorer->Recover();
  runtime::CreateAnswer answer = Create("main", "n3");
  EXPECT_EQ(answer.action, "refuse");
  EXPECT_THAT(answer.reason, HasSubstr("restore.onFailure is Fail"));
  EXPECT_FALSE(cluster.HasEvent("pod/web-1", "ColdStart"));
}

TEST_F(RestorerTest, OnFailureFailHoldsAPodWhoseCheckpointIsDamaged) {
  Follow(R"({"onFailure":"Fail"})");
  fetch_error = Status(Code::kDataLoss, "segment 12 is damaged");
  Drive();
  EXPECT_EQ(fetches, 3);
  EXPECT_EQ(WaitStateNow(), "waiting") << "an init container that fails would have a Job make another pod";
  EXPECT_EQ(Create("migrate", "i1").action, "refuse");
  EXPECT_EQ(Create("main", "n1").action, "refuse");
  Drive();
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "Failed");
}

TEST_F(RestorerTest, OnFailureRetryDoesNotRepeatWhatMayHaveRun) {
  Follow(R"({"onFailure":"Retry"})");
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "restore");
  EXPECT_EQ(Outcome("n1", false, /*ran=*/true).action, "refuse");
  Drive();
  EXPECT_EQ(Create("main", "n2").action, "refuse");
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "Failed");
  EXPECT_TRUE(cluster.restores[0].ran);
}

TEST_F(RestorerTest, OtherContainersAreAnsweredByTheirKind) {
  EXPECT_EQ(Create("holdfast-wait", "w").action, "cold");
  EXPECT_EQ(WaitStateNow(), "waiting");
  Drive();
  EXPECT_EQ(Create("migrate", "i1").action, "skip");
  EXPECT_EQ(Create("log-shipper", "i2").action, "cold");
  EXPECT_EQ(Create("istio-proxy", "i3").action, "cold");
}

TEST_F(RestorerTest, APodThatAsksForNothingStartsCold) {
  cluster.pods["default/plain"] = PodJson("plain", "plain-uid");
  EXPECT_EQ(Create("main", "p1", "plain", "plain-uid").action, "cold");
  EXPECT_EQ(fetches, 0);
}

TEST_F(RestorerTest, APodThatWasLetGoWithoutACheckpointNeedNotWait) {
  Json& pod = cluster.pods["default/web-1"];
  pod["metadata"]["annotations"].erase("holdfast.dev/restore");
  pod["spec"]["initContainers"] = {{{"name", "holdfast-wait"}}};
  Drive();
  EXPECT_EQ(WaitStateNow(), "cold");
  EXPECT_EQ(Create("main", "n1").action, "cold");
  cluster.pods.erase("default/web-1");
  Drive();
  EXPECT_EQ(WaitStateNow(), "none");
}

TEST_F(RestorerTest, APodUnderAnotherRuntimeClassHasNoAuthorityThroughItsAnnotation) {
  cluster.pods["default/web-1"]["spec"].erase("runtimeClassName");
  Drive();
  EXPECT_EQ(fetches, 0);
  EXPECT_EQ(Create("main", "n1").action, "cold");
}

TEST_F(RestorerTest, AForgedAnnotationNeverGetsTheImages) {
  cluster.checkpoint["status"]["claim"]["podUID"] = "somebody-else";
  Drive(3);
  EXPECT_EQ(WaitStateNow(), "waiting");
  Drive(500);
  EXPECT_EQ(fetches, 0);
  EXPECT_EQ(WaitStateNow(), "cold");
  EXPECT_EQ(Create("main", "n1").action, "cold");
  EXPECT_TRUE(cluster.HasEvent("pod/web-1", "ColdStart"));
  EXPECT_THAT(cluster.restores, IsEmpty()) << "a checkpoint that is not this pod's is not written to";
}

TEST_F(RestorerTest, AnUnknownPodIsRefused) {
  clock.Advance(std::chrono::seconds(1));
  std::jthread time([this](std::stop_token stop) {
    while (!stop.stop_requested()) {
      if (clock.waiters() > 0)
        clock.Advance(std::chrono::milliseconds(500));
      else
        std::this_thread::yield();
    }
  });
  EXPECT_EQ(Create("main", "n1", "nobody", "nobody-uid").action, "refuse");
  EXPECT_EQ(Create("main", "n1", "web-1", "another-uid").action, "refuse");
}

TEST_F(RestorerTest, CreateWaitsForTheImagesAndIsThenRefused) {
  fetch_error = Status(Code::kUnavailable, "no store");
  Drive(3);
  std::jthread time([this](std::stop_token stop) {
    while (!stop.stop_requested()) {
      if (clock.waiters() > 0)
        clock.Advance(std::chrono::seconds(1));
      else
        std::this_thread::yield();
    }
  });
  runtime::CreateAnswer answer = Create("main", "n1");
  EXPECT_EQ(answer.action, "refuse");
  EXPECT_THAT(answer.reason, HasSubstr("not here yet"));
}

TEST_F(RestorerTest, CreateIsAnsweredAsSoonAsTheImagesAreThere) {
  std::jthread bring([this] {
    while (clock.waiters() == 0) std::this_thread::yield();
    Drive();
  });
  EXPECT_EQ(Create("main", "n1").action, "restore");
}

TEST_F(RestorerTest, ADamagedCheckpointStartsColdAfterThreeTries) {
  fetch_error = Status(Code::kDataLoss, "segment 12 is damaged");
  Drive();
  EXPECT_EQ(fetches, 3);
  EXPECT_EQ(WaitStateNow(), "cold") << "holdfast-wait must be able to read it";
  EXPECT_EQ(Create("main", "n1").action, "cold");
  Drive();
  EXPECT_FALSE(Exists(layout.RestoreFolder("new-uid")));
  EXPECT_TRUE(cluster.HasEvent("pod/web-1", "ColdStart"));
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_THAT(cluster.restores[0].reason, HasSubstr("segment 12"));
}

// Hole 8: five minutes without a store discarded what was stored.
TEST_F(RestorerTest, AStoreThatDoesNotAnswerIsWaitedForAndThePodSaysSo) {
  fetch_error = Status(Code::kUnavailable, "no store");
  Drive(3000);
  EXPECT_GT(fetches, 1000);
  EXPECT_EQ(WaitStateNow(), "fetching");
  EXPECT_TRUE(cluster.HasEvent("pod/web-1", "WaitsForState"));
  EXPECT_EQ(std::count_if(cluster.events.begin(), cluster.events.end(), [](const auto& e) { return e.reason == "WaitsForState"; }), 1);
  fetch_error = Status::Ok();
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "restore");
}

TEST_F(RestorerTest, WhoDeletesACheckpointThatCannotBeFetchedLetsItsPodStartCold) {
  fetch_error = Status(Code::kUnavailable, "no store");
  Drive(100);
  cluster.checkpoint["metadata"]["deletionTimestamp"] = FormatTime(clock.Wall());
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "cold");
}

// Hole 7: a restore that nobody recorded could be made twice.
TEST_F(RestorerTest, ItsBeginIsWrittenBeforeAnythingRuns) {
  Drive();
  cluster.reachable = false;
  EXPECT_EQ(Create("main", "n1").action, "refuse") << "it cannot be written";
  cluster.reachable = true;
  EXPECT_THAT(cluster.restores, IsEmpty());
  EXPECT_EQ(Create("main", "n1").action, "restore");
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "Started");
  EXPECT_EQ(cluster.restores[0].pod_uid, "new-uid");
}

TEST_F(RestorerTest, APodThatIsGoneBeforeAnyOfItRanGivesTheStateBack) {
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "restore");
  cluster.pods.clear();
  Drive();
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "Failed");
  EXPECT_FALSE(cluster.restores[0].ran) << "another one may go on from it";
}

TEST_F(RestorerTest, APodThatIsGoneInTheMiddleOfItsRestoreMayHaveRun) {
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "restore");
  ASSERT_TRUE(WriteFileAtomically(layout.RestoreFolder("new-uid") + "/main/" + runtime::kTryingFile, "n1").ok());
  cluster.pods.clear();
  Drive();
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_TRUE(cluster.restores[0].ran);
}

TEST_F(RestorerTest, AStoreThatIsNotConfiguredIsWaitedForAndNamed) {
  cluster.checkpoint["status"]["manifest"]["store"] = "holdfast-store-2";
  Drive(20);
  EXPECT_EQ(fetches, 0) << "no other store is asked";
  Result<std::string> told = ReadFile(layout.WaitFolder("new-uid") + "/state");
  ASSERT_TRUE(told.ok());
  EXPECT_THAT(*told, HasSubstr("holdfast-store-2"));
  FakeStore brought;
  Stores more({{"default", &store}, {"holdfast-store-2", &brought}}, nullptr, clock);
  RestorerOptions options;
  options.node_name = "node1";
  options.fetch = [&](storage::Store& from, const std::string&, const std::string& to, const storage::IngestOptions&) {
    EXPECT_EQ(&from, &brought);
    WriteImages(to);
    return Status::Ok();
  };
  options.enqueue = [](const std::string&) {};
  restorer = std::make_unique<Restorer>(options, layout, journal, node, more, cluster, metrics, clock);
  restorer->Recover();
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "restore");
  restorer.reset();
}

TEST_F(RestorerTest, TheInitContainerEndsWhenTheLastSecondsOfTheFetchHaveBegun) {
  on_fetch = [&](const storage::IngestOptions& fetch) {
    clock.Advance(std::chrono::seconds(4));
    fetch.progress({.bytes = 50, .total = 100});
    EXPECT_EQ(WaitStateNow(), "fetching");
    clock.Advance(std::chrono::seconds(4));
    fetch.progress({.bytes = 90, .total = 100});
    EXPECT_EQ(WaitStateNow(), "ready");
  };
  Drive();
  EXPECT_EQ(fetches, 1);
}

TEST_F(RestorerTest, AMissingCheckpointStartsCold) {
  cluster.checkpoint = nullptr;
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "cold");
  EXPECT_TRUE(cluster.HasEvent("pod/web-1", "ColdStart"));
}

TEST_F(RestorerTest, ACheckpointWithoutRestorableContainersStartsColdWithTheReason) {
  cluster.checkpoint["status"]["containers"] = Json::array({{{"name", "main"}, {"restorable", false}, {"reason", "plain runc"}}});
  Drive();
  runtime::CreateAnswer answer = Create("main", "n1");
  EXPECT_EQ(answer.action, "cold");
  EXPECT_THAT(answer.reason, HasSubstr("plain runc"));
}

TEST_F(RestorerTest, ACheckpointThatNeedsWhatThisNodeLacksIsNotEvenFetchedAndSaysWhat) {
  const std::pair<Json, const char*> cases[] = {{{{"arch", "arm64"}}, "it is of arm64, and this node amd64"},
                                                {{{"cpuFeatures", "avx avx512f"}}, "may have begun to use: avx512f"},
                                                {{{"criu", "4.10"}}, "made by CRIU 4.10, and this node has 4.2"}};
  for (const auto& [platform, why] : cases) {
    cluster.checkpoint["status"]["platform"] = platform;
    Restart();
    Drive();
    EXPECT_EQ(fetches, 0);
    EXPECT_EQ(Create("main", "n1").action, "cold");
    EXPECT_THAT(Create("main", "n1").reason, HasSubstr(why));
    std::filesystem::remove_all(layout.run);
    ASSERT_TRUE(layout.Make().ok());
  }
  cluster.checkpoint["status"]["platform"] = {{"arch", "amd64"}, {"cpuFeatures", "avx"}, {"criu", "4.1.1"}};
  Restart();
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "restore");
}

TEST_F(RestorerTest, ARestartedAgentKnowsThatAContainerWasRestored) {
  Drive();
  Create("main", "n1");
  Outcome("n1", true);
  Restart();
  EXPECT_THAT(restorer->Recover(), testing::ElementsAre("default/web-1"));
  EXPECT_EQ(Create("main", "n2").action, "cold");
  Drive();
  EXPECT_EQ(cluster.restores.size(), 1u);
}

TEST_F(RestorerTest, TheConnectionsArePutBackAsThePolicySays) {
  Drive();
  EXPECT_EQ(Create("main", "n1").established, "KeepLoopback");
  cluster.pods["default/web-1"]["metadata"]["uid"] = "another-uid";
  cluster.checkpoint["status"]["claim"]["podUID"] = "another-uid";
  Follow(R"({"established":"CloseAll"})");
  Drive();
  EXPECT_EQ(Create("main", "n2", "web-1", "another-uid").established, "CloseAll");
}

TEST_F(RestorerTest, ARestartedAgentKnowsAPodThatWasLetGoWithoutACheckpoint) {
  Json& pod = cluster.pods["default/web-1"];
  pod["spec"]["runtimeClassName"] = api::kRuntimeClass;
  pod["metadata"]["annotations"].erase(api::kRestore);
  Drive();
  ASSERT_TRUE(Exists(layout.RestoreFile("new-uid")));
  Restart();
  EXPECT_THAT(restorer->Recover(), testing::ElementsAre("default/web-1"));
  cluster.pods.clear();
  Drive();
  EXPECT_FALSE(Exists(layout.RestoreFile("new-uid")));
}

TEST_F(RestorerTest, ADamagedStateGoesWithItsPod) {
  layout.kubelet = dir.path() + "/kubelet";
  ASSERT_TRUE(MakeDirs(layout.KubeletPod("here")).ok());
  for (const char* uid : {"here", "gone"}) {
    ASSERT_TRUE(WriteFileAtomically(layout.RestoreFile(uid), "{\"podUID\": \"").ok());
    WriteImages(layout.RestoreFolder(uid));
  }
  Restart();
  EXPECT_THAT(restorer->Recover(), IsEmpty());
  EXPECT_TRUE(Exists(layout.RestoreFile("here")));
  EXPECT_FALSE(Exists(layout.RestoreFile("gone")));
  EXPECT_FALSE(Exists(layout.RestoreFolder("gone")));
}

TEST_F(RestorerTest, ALostOutcomeIsFoundByTheNextAgentAndReported) {
  Drive();
  Create("main", "n1");
  Drive();
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "Started");  // holdfast-runc is at work
  ASSERT_TRUE(WriteFileAtomically(layout.RestoreFolder("new-uid") + "/main/restored", "n1").ok());
  Restart();
  restorer->Recover();
  Drive();
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "Restored");
  EXPECT_FALSE(Exists(layout.RestoreFolder("new-uid")));
}

TEST_F(RestorerTest, AContainerWhoseLostRestoreHasRunAndEndedIsNotRestoredOnceMore) {
  Drive();
  Create("main", "n1");
  ASSERT_TRUE(WriteFileAtomically(layout.RestoreFolder("new-uid") + "/main/restored", "n1").ok());
  Restart();  // and before it looks, the container has crashed and containerd has deleted it
  restorer->Recover();
  EXPECT_EQ(Create("main", "n2").action, "cold");
}

TEST_F(RestorerTest, AFailedRestoreWhoseProcessMayHaveRunIsNotTriedAgain) {
  Drive();
  Create("main", "n1");
  EXPECT_EQ(Outcome("n1", false, true).action, "cold");
  Drive();
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "ColdStart");
}

TEST_F(RestorerTest, ALostOutcomeOfARestoreThatLeftNothingIsTriedAgain) {
  Drive();
  Create("main", "n1");
  Restart();
  restorer->Recover();
  EXPECT_EQ(Create("main", "n2").action, "restore");
}

TEST_F(RestorerTest, AColdPodsWaitFolderGoesWhenItsContainersHaveStarted) {
  cluster.checkpoint = nullptr;
  Drive();
  EXPECT_EQ(WaitStateNow(), "cold");
  node.on_node.push_back({"n1", "new-uid", "default", "web-1", "main", true});
  Drive();
  EXPECT_EQ(WaitStateNow(), "none");
}

TEST_F(RestorerTest, AWaitFolderThatWasMadeAnewWithItsNodeIsWrittenTo) {
  cluster.checkpoint = nullptr;
  Drive();
  node.on_node.push_back({"n1", "new-uid", "default", "web-1", "main", true});
  cluster.pods["default/web-1"]["status"] = PodJson("x", "x")["status"];
  Drive();
  EXPECT_EQ(WaitStateNow(), "none");
  // The API still says that it runs.
  node.on_node.clear();
  ASSERT_TRUE(MakeDirs(layout.WaitFolder("new-uid")).ok());  // by holdfast-runc, for a new init container
  Drive();
  EXPECT_EQ(WaitStateNow(), "cold");
}

TEST_F(RestorerTest, WhatAPodLeftIsRemovedWhenItIsGone) {
  Drive();
  Create("main", "n1");
  node.containers["n1"] = ContainerState::kStopped;  // its create was killed, so containerd does not know of it
  cluster.pods.clear();
  Drive();
  EXPECT_THAT(node.containers, IsEmpty());
  EXPECT_THAT(*ListDir(layout.state + "/restore"), IsEmpty());
  EXPECT_THAT(*ListDir(layout.run + "/wait"), IsEmpty());
}

TEST_F(RestorerTest, ARestoredContainerThatContainerdForgotIsRemovedWithItsPod) {
  Drive();
  Create("main", "n1");
  Outcome("n1", true);
  node.containers["n1"] = ContainerState::kStopped;
  cluster.pods.clear();
  Drive();
  EXPECT_THAT(node.containers, IsEmpty());
}

TEST_F(RestorerTest, ARestoredContainerThatStillRunsKeepsItsGrace) {
  Drive();
  Create("main", "n1");
  Outcome("n1", true);
  node.containers["n1"] = ContainerState::kRunning;
  cluster.pods.clear();
  Drive();
  EXPECT_EQ(node.containers.size(), 1U);
}

TEST_F(RestorerTest, TheLandingFolderOfTheSameNodeIsTakenInsteadOfTheStore) {
  LeaveLandingFolder();
  Drive();
  EXPECT_EQ(fetches, 0);
  EXPECT_EQ(Create("main", "n1").action, "restore");
}

TEST_F(RestorerTest, WhatLandedInMemoryIsRestoredFromThereAndNothingIsLeft) {
  LeaveLandingFolder(Place::kMemory);
  Drive();
  EXPECT_EQ(fetches, 0);
  runtime::CreateAnswer answer = Create("main", "n1");
  EXPECT_EQ(answer.action, "restore");
  EXPECT_EQ(answer.dir, layout.RestoreFolder("new-uid"));
  EXPECT_TRUE(Exists(answer.dir + "/main/images/inventory.img"));
  EXPECT_THAT(*ListDir(layout.Memory() + "/restore"), testing::ElementsAre("new-uid"));
  ASSERT_TRUE(layout.RemoveLanding("ck-uid").ok());  // its pod is gone
  EXPECT_TRUE(Exists(answer.dir + "/main/images/inventory.img"));
  EXPECT_EQ(Outcome("n1", true).action, "restore");
  Drive();
  EXPECT_FALSE(Exists(layout.RestoreFolder("new-uid")));
  EXPECT_THAT(*ListDir(layout.Memory() + "/restore"), testing::IsEmpty());
}

TEST_F(RestorerTest, AnAgentThatDiedWhileItTookWhatLandedInMemoryLeavesNothingInTheWay) {
  ASSERT_TRUE(MakeDirs(layout.RestoreMemory("new-uid") + "/main").ok());
  ASSERT_EQ(symlink(layout.RestoreMemory("new-uid").c_str(), layout.RestoreFolder("new-uid").c_str()), 0);
  ASSERT_TRUE(MakeDirs(layout.RestoreMemory("gone-uid") + "/main").ok());
  Restart();
  restorer->Recover();
  EXPECT_THAT(*ListDir(layout.Memory() + "/restore"), testing::IsEmpty()) << "no pod waits for it";
  ASSERT_TRUE(MakeDirs(layout.RestoreMemory("new-uid") + "/main").ok());
  ASSERT_EQ(symlink(layout.RestoreMemory("new-uid").c_str(), layout.RestoreFolder("new-uid").c_str()), 0);
  Drive();
  EXPECT_EQ(fetches, 1);
  EXPECT_EQ(Create("main", "n1").action, "restore");
  EXPECT_TRUE(Exists(layout.RestoreFolder("new-uid") + "/main/images/inventory.img"));
  EXPECT_FALSE(Exists(layout.RestoreMemory("new-uid")));
}

TEST_F(RestorerTest, WhatLayInTheMemoryOfANodeThatRestartedIsFetched) {
  LeaveLandingFolder(Place::kMemory);
  Drive();
  EXPECT_EQ(fetches, 0);
  ASSERT_TRUE(RemoveAll(layout.Memory()).ok());
  ASSERT_TRUE(journal.Remove("ck-uid").ok());
  Restart();
  restorer->Recover();
  Drive();
  EXPECT_EQ(fetches, 1);
  EXPECT_EQ(Create("main", "n1").action, "restore");
  EXPECT_TRUE(Exists(layout.RestoreFolder("new-uid") + "/main/images/inventory.img"));
}

TEST_F(RestorerTest, WhatLiesOnTheDiskOfANodeThatRestartedIsNotTakenUnread) {
  LeaveLandingFolder();
  JournalEntry entry = *journal.Read("ck-uid");
  entry.boot_id = "boot-0";
  ASSERT_TRUE(journal.Write(entry).ok());
  Drive();
  EXPECT_EQ(fetches, 1);
}

TEST_F(RestorerTest, WhatWasFetchedBeforeTheNodeRestartedIsFetchedAgainUnlessItWasTried) {
  Drive();
  EXPECT_EQ(fetches, 1);
  Restart();
  restorer->Recover();
  Drive();
  EXPECT_EQ(fetches, 1) << "another agent, the same node";
  boot_id = "boot-2";
  Restart();
  restorer->Recover();
  Drive();
  EXPECT_EQ(fetches, 2) << "a crash of the node may have cost it any part of the files";
  EXPECT_EQ(WaitStateNow(), "ready");
  EXPECT_EQ(Create("main", "n1").action, "restore");
  boot_id = "boot-3";
  Restart();
  restorer->Recover();
  Drive();
  EXPECT_EQ(fetches, 3) << "it was only asked for";
  EXPECT_EQ(Create("main", "n2").action, "restore");
  ASSERT_TRUE(WriteFileAtomically(layout.RestoreFolder("new-uid") + "/main/" + runtime::kTryingFile, "n2").ok());
  boot_id = "boot-4";
  Restart();
  restorer->Recover();
  Drive();
  EXPECT_EQ(fetches, 3) << "its process may have run";
  EXPECT_EQ(Create("main", "n3").action, "cold");
}

TEST_F(RestorerTest, APunchedLandingFolderIsNotTaken) {
  LeaveLandingFolder();
  ASSERT_TRUE(WriteFileAtomically(journal.SentLog("ck-uid"), "sent").ok());
  Drive();
  EXPECT_EQ(fetches, 1);
}

TEST_F(RestorerTest, WhatIsKeptOnThisNodeIsNotFetched) {
  on_kept = [&](const std::string& manifest, const std::string& to) {
    EXPECT_EQ(manifest, "ck-uid");
    WriteImages(to);
    return Status::Ok();
  };
  Drive();
  EXPECT_EQ(fetches, 0);
  EXPECT_EQ(Create("main", "n1").action, "restore");
}

TEST_F(RestorerTest, ALandingFolderThatIsNotWholeIsNotTaken) {
  LeaveLandingFolder();
  ASSERT_TRUE(RemoveAll(layout.Landing("ck-uid", Place::kDisk) + "/main/images/inventory.img").ok());
  Drive();
  EXPECT_EQ(fetches, 1);
}

TEST_F(RestorerTest, ARestartKeepsTheFolderThatAPodNobodyHasSeenYetWaitsIn) {
  layout.kubelet = dir.path() + "/kubelet";
  ASSERT_TRUE(MakeDirs(layout.KubeletPod("new-uid")).ok());
  ASSERT_TRUE(MakeDirs(layout.WaitFolder("new-uid")).ok());  // by the kubelet, while no agent ran
  ASSERT_TRUE(MakeDirs(layout.WaitFolder("gone-uid")).ok());
  struct stat before, after;
  ASSERT_EQ(stat(layout.WaitFolder("new-uid").c_str(), &before), 0);
  Restart();
  restorer->Recover();
  EXPECT_THAT(*ListDir(layout.run + "/wait"), testing::ElementsAre("new-uid"));
  ASSERT_EQ(stat(layout.WaitFolder("new-uid").c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino) << "the pod has this one mounted";
}

// Hole 10.
TEST_F(RestorerTest, WhatTheDiskHasNoRoomForIsNotFetchedUntilThereIsSome) {
  cluster.checkpoint["status"]["size"] = {{"memory", 400 << 20}, {"files", 1 << 20}};
  disk_space.free_bytes = 100 << 20;
  Drive(5);
  EXPECT_EQ(fetches, 0);
  EXPECT_THAT(*ReadFile(layout.WaitFolder("new-uid") + "/state"), HasSubstr("there is no room for it: the node's disk has 100 MiB"));
  disk_space.free_bytes = 1 << 29;
  Drive(5);
  EXPECT_EQ(fetches, 1);
  EXPECT_EQ(Create("main", "n1").action, "restore");
}

TEST_F(RestorerTest, ThePodSaysWhatTheDiskHasNoRoomFor) {
  cluster.checkpoint["status"]["size"] = {{"memory", 400 << 20}};
  disk_space.free_bytes = 100 << 20;
  Drive(2000);
  EXPECT_EQ(fetches, 0);
  ASSERT_TRUE(cluster.HasEvent("pod/web-1", "WaitsForState"));
  EXPECT_THAT(cluster.events.back().note, HasSubstr("there is no room for it: the node's disk has 100 MiB of space"));
}

// Hole 9: a tag that moved, or an image that was changed after the claim, is another program.
TEST_F(RestorerTest, WhatRanInAnotherImageStartsColdAndSaysWhy) {
  cluster.checkpoint["status"]["containers"][0]["imageDigest"] = "sha256:then";
  node.image_digests = std::vector<std::string>{"sha256:now", "sha256:its-configuration"};
  Drive();
  const runtime::CreateAnswer answer = Create("main", "n1");
  EXPECT_EQ(answer.action, "cold");
  EXPECT_THAT(answer.reason, HasSubstr("sha256:then, and this pod's is sha256:now"));
  Drive();
  ASSERT_TRUE(cluster.HasEvent("pod/web-1", "ColdStart"));
  EXPECT_THAT(cluster.events.back().note, HasSubstr("where a tag has moved, name the image by its digest"));
  ASSERT_EQ(cluster.restores.size(), 1u);
  EXPECT_EQ(cluster.restores[0].outcome, "ColdStart");
}

TEST_F(RestorerTest, TheSameImageOrOneThatIsNotKnownIsRestored) {
  using Digests = Result<std::vector<std::string>>;
  cluster.checkpoint["status"]["containers"][0]["imageDigest"] = "sha256:then";
  for (const Digests& here : {Digests(std::vector<std::string>{"sha256:index", "sha256:then"}), Digests(std::vector<std::string>{}),
                              Digests(Status(Code::kNotFound, "no ctr"))}) {
    node.image_digests = here;
    Drive();
    EXPECT_EQ(Create("main", "n1").action, "restore");
  }
}

TEST_F(RestorerTest, APodThatMustNotStartColdIsRefusedInAnotherImage) {
  Follow(R"({"onFailure":"Fail"})");
  cluster.checkpoint["status"]["containers"][0]["imageDigest"] = "sha256:then";
  node.image_digests = std::vector<std::string>{"sha256:now"};
  Drive();
  EXPECT_EQ(Create("main", "n1").action, "refuse");
  EXPECT_EQ(Create("main", "n2").action, "refuse") << "and again";
}

TEST_F(RestorerTest, WhatIsWiderThanThePodIsNotEvenFetched) {
  cluster.checkpoint["status"]["security"]["containers"] = Json::array({{{"name", "main"}, {"image", "counter:1"}, {"privileged", true}}});
  Drive();
  EXPECT_EQ(fetches, 0);
  EXPECT_EQ(Create("main", "n1").action, "cold");
  Drive();
  ASSERT_TRUE(cluster.HasEvent("pod/web-1", "ColdStart"));
  EXPECT_THAT(cluster.events.back().note, HasSubstr("of its container main: it was privileged"));
}

TEST(DecideCreate, ANativeSidecarIsRestoredWhenTheCheckpointHasIt) {
  kube::Pod pod;
  pod.containers.emplace_back().name = "main";
  pod.init_containers.emplace_back().name = "log-shipper";
  pod.init_containers.back().restart_always = true;
  RestoreState state;
  state.phase = RestoreState::Phase::kReady;
  state.containers = {{"log-shipper", {}}, {"main", {}}};
  runtime::CreateQuestion question;
  question.container = "log-shipper";
  question.container_id = "c1";
  const runtime::CreateAnswer answer = *DecideCreate(state, pod, question, false, Layout()).answer;
  EXPECT_EQ(answer.action, "restore");
  EXPECT_TRUE(answer.first && answer.more);
}

// Holes 1 and 17: what starts beside containers that are still to be restored is told of the volumes, which are filled before it runs.
TEST(DecideCreate, WhatStartsBesideARestoreFindsTheVolumesFilled) {
  kube::Pod pod;
  pod.containers.emplace_back().name = "main";
  for (const char* name : {"setup", "left-out"}) pod.init_containers.emplace_back().name = name;
  pod.init_containers.back().restart_always = true;
  pod.volumes.emplace_back().name = "data";
  pod.volumes.back().type = "emptyDir";
  RestoreState state;
  state.pod_uid = "u1";
  state.volumes = {"data"};
  state.phase = RestoreState::Phase::kReady;
  const Layout layout;
  for (const char* name : {"left-out", "debugger"}) {
    runtime::CreateQuestion question;
    question.container = name;
    question.container_id = "c1";
    state.containers = {{"main", {}}};
    runtime::CreateAnswer answer = *DecideCreate(state, pod, question, false, layout).answer;
    EXPECT_EQ(answer.action, "cold");
    EXPECT_TRUE(answer.first && answer.more) << name;
    EXPECT_EQ(answer.dir, layout.RestoreFolder("u1")) << name;
    ASSERT_EQ(answer.volumes.size(), 1U) << name;
    EXPECT_EQ(answer.volumes[0].path, layout.EmptyDir("u1", "data"));
    EXPECT_EQ(runtime::CreateAnswer::FromJson(answer.ToJson())->dir, answer.dir);
    state.containers["main"].state = ContainerRestore::kRestored;  // nothing is to be filled any more
    answer = *DecideCreate(state, pod, question, false, layout).answer;
    EXPECT_EQ(answer.dir, "") << name;
    EXPECT_TRUE(runtime::CreateAnswer::FromJson(answer.ToJson()).ok());
  }
  runtime::CreateQuestion setup;
  setup.container = "setup";
  state.containers = {{"main", {}}};
  const runtime::CreateAnswer skipped = *DecideCreate(state, pod, setup, false, layout).answer;
  EXPECT_EQ(skipped.action, "skip");
  EXPECT_EQ(skipped.dir, "") << "nothing of the pod runs in it: a try that fails may still fill them anew";
}

TEST(DecideCreate, EachContainerIsToldWhetherOthersAreStillToCome) {
  kube::Pod pod;
  for (const char* name : {"one", "two", "three"}) pod.containers.emplace_back().name = name;
  RestoreState state;
  state.phase = RestoreState::Phase::kReady;
  state.containers = {{"one", {}}, {"two", {}}, {"three", {}}};
  Layout layout;
  auto create = [&](const std::string& name) {
    runtime::CreateQuestion question;
    question.container = name;
    question.container_id = name + "-id";
    runtime::CreateAnswer answer = *DecideCreate(state, pod, question, false, layout).answer;
    state.containers[name].state = ContainerRestore::kRestored;
    return answer;
  };
  runtime::CreateAnswer one = create("one");
  EXPECT_TRUE(one.first && one.more);
  state.containers["two"].state = ContainerRestore::kCold;
  runtime::CreateAnswer three = create("three");
  EXPECT_FALSE(three.first || three.more);
}

}  // namespace
}  // namespace holdfast::agent
