// An executor on a node in memory, with one Checkpoint assigned to it: a final one of the running pod default/web-0.
#pragma once

#include <gmock/gmock.h>

#include "agent/executor.h"
#include "fakes.h"
#include "tests/pump.h"

namespace holdfast::agent {

class ExecutorTest : public ::testing::Test {
 protected:
  ExecutorTest() {
    layout.run = dir.path() + "/run";
    layout.state = dir.path() + "/state";
    layout.kubelet = dir.path() + "/kubelet";
    EXPECT_TRUE(layout.Make().ok());
    cluster.pods["default/web-0"] = PodJson("web-0", "pod-uid");
    cluster.checkpoint = CheckpointJson(true);
    cluster.checkpoint["metadata"]["creationTimestamp"] = FormatTime(clock.Wall());
    node.containers["c1"] = ContainerState::kRunning;
    node.on_dump = [this](const std::string& landing) { Dump(landing, true); };
    kubelet.on_checkpoint = [this](const std::string&) -> Result<std::string> {
      Dump(LandingNow(), true);
      const std::string archive = dir.path() + "/archive.tar";
      EXPECT_TRUE(WriteFileAtomically(archive, "stub").ok());
      return archive;
    };
    Restart();
  }

  void Restart() {
    ExecutorOptions options;
    options.node_name = "node1";
    options.admit = [this](int64_t term) { return term < leader_term ? Status(Code::kFailedPrecondition, "over") : Status::Ok(); };
    options.still_idle = [this](const kube::Pod& pod) {
      ++asked_whether_idle;
      return pod.meta.uid == "pod-uid" ? still_idle : Status(Code::kNotFound, "another pod");
    };
    options.free_part = [this] { return free_part; };
    disk = std::make_unique<DiskRoom>([this](const std::string&) -> Result<DiskSpace> { return disk_space; },
                                      DiskRoom::Landing{layout.state + "/landing", landing_limit});
    options.disk = disk.get();
    memory = std::make_unique<LandingMemory>(landing_budget, layout, [this]() -> Result<MemoryRoom> { return room; });
    options.memory = memory.get();
    options.boot_id = boot_id;
    options.ahead_of_node = [this] { return ahead_of_node; };
    options.keep = [this](const std::string& landing, const std::string& manifest, const std::string& in) {
      kept.push_back(landing);
      EXPECT_EQ(in, manifest == store.manifest.Serialize() ? "default" : "holdfast-store-1");
      EXPECT_EQ(manifest, (in == "default" ? store : second).manifest.Serialize());
    };
    options.ingest = [this](const std::string& landing, storage::Session&, const storage::IngestOptions& o) { return Ingest(landing, o); };
    executor = std::make_unique<Executor>(options, layout, journal, node, kubelet, two_stores ? both : stores, cluster, metrics, clock);
  }

  // Where the Intents say that it is.
  std::string LandingNow() const {
    const Place place = Exists(layout.Landing("ck-uid", Place::kMemory)) ? Place::kMemory : Place::kDisk;
    return layout.Landing("ck-uid", place);
  }

  void Dump(const std::string& landing, bool ok, bool no_space = false) {
    runtime::DumpResult result;
    result.ok = ok;
    result.no_space = no_space;
    result.reason = ok ? "Completed" : "DumpFailed";
    result.message = ok ? "" : "CRIU: io_uring";
    result.frozen_ms = 810;
    result.memory_bytes = memory_bytes;
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

  // What an earlier agent left in the journal of a final checkpoint of web-0, with a minute to go.
  JournalEntry Entry(Step step, const std::string& uid = "ck-uid") const {
    JournalEntry entry;
    entry.uid = uid;
    entry.ns = "default";
    entry.name = "ck";
    entry.pod = "web-0";
    entry.pod_uid = "pod-uid";
    entry.final = true;
    entry.step = step;
    entry.deadline_unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(clock.Wall().time_since_epoch()).count() + 60000;
    entry.dump_by_unix_ms = entry.deadline_unix_ms;
    entry.containers = {{"main", "c1", "counter:1", ""}};
    return entry;
  }

  Step StepNow() { return journal.Read("ck-uid")->step; }
  std::string Reason() { return cluster.Seen().Ready() == nullptr ? "" : cluster.Seen().Ready()->reason; }
  std::string Message() { return cluster.Seen().Ready() == nullptr ? "" : cluster.Seen().Ready()->message; }
  bool Frozen() { return node.containers["c1"] == ContainerState::kPaused; }
  void ExpectNothingLeft() {
    using ::testing::IsEmpty;
    EXPECT_THAT(*ListDir(layout.Containers()), IsEmpty());
    EXPECT_THAT(*ListDir(layout.Pods()), IsEmpty());
    EXPECT_THAT(*ListDir(layout.state + "/landing"), IsEmpty());
    EXPECT_THAT(ListDir(layout.Memory() + "/landing").value_or({}), IsEmpty());
    EXPECT_THAT(*ListDir(layout.JournalFolder()), IsEmpty());
  }

  int64_t leader_term = 0;
  Status still_idle;
  int asked_whether_idle = 0;
  int64_t memory_bytes = 1 << 20;  // of what is dumped
  double free_part = 0.5;          // of the disk
  uint64_t landing_budget = 0;     // of memory
  MemoryRoom room = {.size_bytes = 1 << 30, .free_bytes = 1 << 30, .node_bytes = uint64_t{16} << 30, .available_bytes = uint64_t{8} << 30};
  std::string boot_id = "boot-1";
  DiskSpace disk_space = {.size_bytes = uint64_t{1} << 40, .free_bytes = uint64_t{1} << 39};
  uint64_t landing_limit = 0;  // before Restart
  bool disk_full = false;      // it takes no more of the journal
  std::unique_ptr<DiskRoom> disk;
  std::unique_ptr<LandingMemory> memory;
  std::vector<std::string> kept;  // landing folders that a cache might have taken over
  TempDir dir;
  Duration ahead_of_node{0};  // the API server's clock, which is `clock`
  FakeClock clock;
  Layout layout;
  Journal journal{dir.path() + "/state/journal", [this](const std::string& path, const std::string& text) {
                    return disk_full ? Status(Code::kResourceExhausted, "no space left on device") : WriteFileDurably(path, text);
                  }};
  FakeNode node;
  FakeKubelet kubelet;
  FakeStore store, second;
  std::map<std::string, uint64_t> store_room;  // of those that say
  Stores::Room room_of = [this](const std::string& name, MonoTime, std::stop_token) -> Result<uint64_t> {
    const auto said = store_room.find(name);
    return said == store_room.end() ? Result<uint64_t>(Status(Code::kUnavailable, "it does not say")) : said->second;
  };
  Stores stores{{{"default", &store}}, nullptr, clock, room_of};
  Stores both{{{"default", &store}, {"holdfast-store-1", &second}}, nullptr, clock, room_of};
  bool two_stores = false;  // before Restart
  FakeCluster cluster;
  Metrics metrics;
  std::function<Result<std::vector<storage::FileEntry>>(const storage::IngestOptions&)> on_ingest;
  std::unique_ptr<Executor> executor;
  Status last;
};

}  // namespace holdfast::agent
