// A claimed pod on node1, its checkpoint, and everything around the restorer, in virtual time.
#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <thread>

#include "agent/restorer.h"
#include "fakes.h"

namespace holdfast::agent {

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

}  // namespace holdfast::agent
