// From "a pod with a claim is here" to what holdfast-runc is told, and what is reported.
#include "agent/restorer.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

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
    options.fetch = [this](storage::Store&, const std::string& manifest, const std::string& to,
                           const storage::IngestOptions& asked) -> Status {
      ++fetches;
      EXPECT_EQ(manifest, "ck-uid");
      if (!fetch_error.ok()) return fetch_error;
      if (on_fetch) on_fetch(asked);
      WriteImages(to);
      return Status::Ok();
    };
    options.enqueue = [](const std::string&) {};
    restorer = std::make_unique<Restorer>(options, layout, journal, node, store, cluster, metrics, clock);
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
    return restorer->Outcome(outcome);
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
  FakeCluster cluster;
  Metrics metrics;
  Status fetch_error;
  int fetches = 0;
  std::function<void(const storage::IngestOptions&)> on_fetch;
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

TEST_F(RestorerTest, AStoreThatDoesNotAnswerIsAskedUntilTheDeadline) {
  fetch_error = Status(Code::kUnavailable, "no store");
  Drive(1000);
  EXPECT_GT(fetches, 100);
  EXPECT_EQ(Create("main", "n1").action, "cold");
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

TEST_F(RestorerTest, ALostOutcomeIsFoundByTheNextAgentAndReported) {
  Drive();
  Create("main", "n1");
  Drive();
  EXPECT_THAT(cluster.restores, IsEmpty());  // not yet: holdfast-runc is at work
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
  cluster.pods["default/web-1"]["status"] = PodJson("x", "x")["status"];
  Drive();
  EXPECT_EQ(WaitStateNow(), "none");
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
  JournalEntry entry;
  entry.uid = "ck-uid";
  entry.ns = "default";
  entry.name = "ck";
  entry.pod = "web-0";
  entry.pod_uid = "pod-uid";
  entry.step = Step::kCommitted;
  ASSERT_TRUE(journal.Write(entry).ok());
  WriteImages(layout.Landing("ck-uid"));
  storage::Manifest manifest;
  manifest.ns = "default";
  manifest.checkpoint = "ck";
  manifest.checkpoint_uid = "ck-uid";
  manifest.created = "2026-01-01T00:00:00Z";
  for (const char* path : {"main/images/inventory.img", "request.json", "result.json"}) {
    storage::FileEntry file;
    file.path = path;
    file.size = ReadFile(layout.Landing("ck-uid") + "/" + path)->size();
    storage::SegmentRef segment;
    segment.size = static_cast<uint32_t>(file.size);
    file.segments = {segment};
    manifest.files.push_back(file);
  }
  ASSERT_TRUE(journal.WriteManifest("ck-uid", manifest.Serialize()).ok());
  Drive();
  EXPECT_EQ(fetches, 0);
  EXPECT_EQ(Create("main", "n1").action, "restore");
}

TEST_F(RestorerTest, ALandingFolderThatIsNotWholeIsNotTaken) {
  JournalEntry entry;
  entry.uid = "ck-uid";
  entry.ns = "default";
  entry.name = "ck";
  entry.pod = "web-0";
  entry.pod_uid = "pod-uid";
  entry.step = Step::kCommitted;
  ASSERT_TRUE(journal.Write(entry).ok());
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

}  // namespace
}  // namespace holdfast::agent
