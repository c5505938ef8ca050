// The world around the agent, in memory.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <functional>
#include <map>
#include <mutex>

#include "agent/cluster.h"
#include "agent/layout.h"
#include "agent/node.h"
#include "base/file.h"
#include "storage/store.h"

namespace holdfast::agent {

class TempDir {
 public:
  TempDir() {
    std::string pattern = testing::TempDir() + "agent-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() { EXPECT_TRUE(RemoveAll(path_).ok()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class FakeNode final : public Node {
 public:
  // What `holdfast-runc dump` does; by default it succeeds at once. Leaves the containers frozen when the request says final.
  std::function<void(const std::string& landing)> on_dump;
  std::function<void()> on_look;  // at the dump, whether it runs: what holdfast-runc has done meanwhile
  std::map<std::string, ContainerState> containers;
  std::vector<std::string> thawed;
  Result<uint64_t> estimate = uint64_t{1} << 20;
  bool dump_running = false, dump_starts = true, thaw_fails = false;
  int dumps = 0, kills = 0;
  std::string output;

  Result<uint64_t> Estimate(const std::vector<std::string>& ids, const std::vector<std::string>&) override {
    EXPECT_FALSE(ids.empty());
    return estimate;
  }
  Status StartDump(const std::string&, const std::string& landing) override {
    if (!dump_starts) return Status(Code::kNotFound, "no holdfast-runc");
    ++dumps;
    if (on_dump) on_dump(landing);
    return Status::Ok();
  }
  bool DumpRunning(const std::string&, const std::string&) override {
    if (on_look) on_look();
    return dump_running;
  }
  Status KillDump(const std::string&) override {
    ++kills;
    dump_running = false;
    return Status::Ok();
  }
  Status Resume(const std::string& id) override {
    if (thaw_fails) return Status(Code::kUnavailable, "the freezer is stuck");
    thawed.push_back(id);
    auto at = containers.find(id);
    if (at != containers.end() && at->second == ContainerState::kPaused) at->second = ContainerState::kRunning;
    return Status::Ok();
  }
  Status RemoveContainer(const std::string& id) override {
    containers.erase(id);
    return Status::Ok();
  }
  Result<ContainerState> StateOf(const std::string& id) override {
    auto at = containers.find(id);
    return at == containers.end() ? ContainerState::kGone : at->second;
  }
  std::vector<NodeContainer> on_node;
  std::vector<std::string> killed;
  bool end_fails = false;
  Result<std::vector<NodeContainer>> Containers() override { return on_node; }
  Status End(const std::vector<std::string>& ids) override {
    if (end_fails) return Status(Code::kUnavailable, "the freezer is stuck");
    for (const std::string& id : ids) {
      killed.push_back(id);
      std::erase_if(on_node, [&](const NodeContainer& container) { return container.id == id; });
    }
    return Status::Ok();
  }
  Result<std::vector<std::string>> image_digests = std::vector<std::string>{};
  Result<std::vector<std::string>> ImageDigests(const std::string&) override { return image_digests; }
  std::string DumpOutput(const std::string&) override { return output; }
  Json platform = {{"arch", "amd64"}, {"kernel", "6.18"}, {"cpuFeatures", "avx avx2"}, {"criu", "4.2"}};
  Json Platform() override { return platform; }
};

class FakeKubelet final : public Kubelet {
 public:
  std::function<Result<std::string>(const std::string& container)> on_checkpoint;
  std::vector<std::string> asked;
  Result<std::string> Checkpoint(const std::string&, const std::string&, const std::string& container, Duration, std::stop_token) override {
    asked.push_back(container);
    if (!on_checkpoint) return Status(Code::kUnavailable, "no kubelet");
    return on_checkpoint(container);
  }
};

class FakeStore final : public storage::Store {
 public:
  storage::SessionState state = storage::SessionState::kUnknown;
  bool reachable = true, full = false, commit_lost = false, deleted = false;
  Status commit_error;  // what Commit answers, before it does anything
  int opens = 0, commits = 0, aborts = 0;
  std::function<void()> on_commit;
  storage::Manifest manifest;

  class FakeSession final : public storage::Session {
   public:
    explicit FakeSession(FakeStore& store) : store_(store) {}
    Result<std::vector<bool>> Missing(std::span<const storage::SegmentId> ids) override { return std::vector<bool>(ids.size(), true); }
    Status Put(const storage::SegmentId&, storage::Codec, uint32_t, std::span<const std::byte>) override { return Status::Ok(); }
    Result<storage::CommitResult> Commit(const storage::Manifest& manifest) override {
      if (!store_.reachable) return Status(Code::kUnavailable, "no answer");
      if (store_.state == storage::SessionState::kAborted) return Status(Code::kFailedPrecondition, "aborted");
      if (!store_.commit_error.ok()) return store_.commit_error;
      if (store_.on_commit) store_.on_commit();
      if (store_.state == storage::SessionState::kCommitted) {
        EXPECT_EQ(store_.manifest.Serialize(), manifest.Serialize()) << "a repeated commit must ask for the same";
      }
      store_.state = storage::SessionState::kCommitted;
      store_.manifest = manifest;
      ++store_.commits;
      if (store_.commit_lost) {
        store_.reachable = false;
        return Status(Code::kUnavailable, "the answer was lost");
      }
      return storage::CommitResult{manifest.checkpoint_uid, "blake3:00", 42};
    }
    Status Abort() override { return store_.Abort("", ""); }
    const std::array<uint8_t, 32>& hash_key() const override { return key_; }

   private:
    FakeStore& store_;
    std::array<uint8_t, 32> key_{};
  };

  Result<std::unique_ptr<storage::Session>> OpenSession(const std::string&, const std::string&) override {
    ++opens;
    if (!reachable) return Status(Code::kUnavailable, "no answer");
    if (full) return Status(Code::kResourceExhausted, "the store is full: 10 of 10 GiB");
    if (state == storage::SessionState::kUnknown) state = storage::SessionState::kOpen;
    return std::unique_ptr<storage::Session>(new FakeSession(*this));
  }
  Result<storage::SessionState> StateOf(const std::string&) override {
    if (!reachable) return Status(Code::kUnavailable, "no answer");
    return state;
  }
  Result<storage::Manifest> GetManifest(const std::string&) override { return manifest; }
  Result<std::string> GetSegment(const std::string&, const storage::SegmentRef&) override { return Status(Code::kNotFound, "none"); }
  Status Abort(const std::string&, const std::string&) override {
    if (!reachable) return Status(Code::kUnavailable, "no answer");
    if (state == storage::SessionState::kCommitted) return Status(Code::kFailedPrecondition, "committed");
    state = storage::SessionState::kAborted;
    ++aborts;
    return Status::Ok();
  }
  Status Delete(const std::string&) override {
    if (!reachable) return Status(Code::kUnavailable, "no answer");
    deleted = true;
    return Status::Ok();
  }
};

// One Checkpoint and some pods. Patches are applied, as the API server would.
class FakeCluster final : public Cluster {
 public:
  Json checkpoint;  // null: there is none
  std::map<std::string, Json> pods;
  std::vector<Json> others;  // Checkpoints of this node
  bool reachable = true, synced = true;
  std::function<Status(const Json& patch)> on_patch;
  std::vector<std::string> phases;  // as they were patched
  struct Event {
    bool warning;
    std::string about, reason, note;
  };
  std::vector<Event> events;
  std::vector<api::Restore> restores;

  Result<api::Checkpoint> CachedCheckpoint(const std::string& uid) override {
    std::lock_guard lock(mutex_);
    if (!synced) return Status(Code::kUnavailable, "not synced");
    if (checkpoint.is_null() || GetString(checkpoint, {"metadata", "uid"}) != uid) return Status(Code::kNotFound, "none");
    return api::Checkpoint::FromJson(checkpoint);
  }
  Result<kube::Pod> CachedPod(const std::string& ns, const std::string& name) override {
    if (!synced) return Status(Code::kUnavailable, "not synced");
    return FindPod(ns, name);
  }
  std::vector<api::Checkpoint> CachedCheckpoints() override {
    std::lock_guard lock(mutex_);
    std::vector<api::Checkpoint> all;
    if (!checkpoint.is_null()) all.push_back(api::Checkpoint::FromJson(checkpoint));
    for (const Json& other : others) all.push_back(api::Checkpoint::FromJson(other));
    return all;
  }
  Status Probe() override { return reachable ? Status::Ok() : Status(Code::kUnavailable, "no API server"); }
  Result<std::vector<kube::Pod>> ListPods() override {
    if (!reachable) return Status(Code::kUnavailable, "no API server");
    std::vector<kube::Pod> all;
    for (const auto& [key, pod] : pods) all.push_back(kube::Pod::FromJson(pod));
    return all;
  }
  Result<std::vector<api::Checkpoint>> ListCheckpoints() override {
    if (!reachable) return Status(Code::kUnavailable, "no API server");
    return CachedCheckpoints();
  }
  Result<api::Checkpoint> GetCheckpoint(const std::string&, const std::string& name) override {
    std::lock_guard lock(mutex_);
    if (!reachable) return Status(Code::kUnavailable, "no API server");
    if (checkpoint.is_null() || GetString(checkpoint, {"metadata", "name"}) != name) return Status(Code::kNotFound, "none");
    return api::Checkpoint::FromJson(checkpoint);
  }
  Result<kube::Pod> GetPod(const std::string& ns, const std::string& name) override {
    if (!reachable) return Status(Code::kUnavailable, "no API server");
    return FindPod(ns, name);
  }
  Status PatchStatus(const std::string&, const std::string&, const std::string& uid, const Json& patch) override {
    std::lock_guard lock(mutex_);
    if (!reachable) return Status(Code::kUnavailable, "no API server");
    if (checkpoint.is_null()) return Status(Code::kNotFound, "none");
    if (GetString(checkpoint, {"metadata", "uid"}) != uid) return Status(Code::kConflict, "another uid");
    if (on_patch) {
      Status refused = on_patch(patch);
      if (!refused.ok()) return refused;
    }
    checkpoint.merge_patch(patch);
    if (std::string phase = GetString(patch, {"status", "phase"}); !phase.empty()) phases.push_back(phase);
    return Status::Ok();
  }
  Result<bool> Claim(const std::string&, const std::string&, const std::string& uid, const api::Claim& claim) override {
    std::lock_guard lock(mutex_);
    if (!reachable) return Status(Code::kUnavailable, "no API server");
    if (checkpoint.is_null() || GetString(checkpoint, {"metadata", "uid"}) != uid) return Status(Code::kNotFound, "none");
    api::Checkpoint cp = api::Checkpoint::FromJson(checkpoint);
    if (cp.status.claim) return cp.status.claim->pod_uid == claim.pod_uid;
    checkpoint["status"]["claim"] = api::ToJson(claim);
    return true;
  }
  std::function<void(const api::Restore&)> on_restore;  // it is written
  Status AppendRestore(const std::string&, const std::string&, const std::string&, const api::Restore& restore) override {
    if (!reachable) return Status(Code::kUnavailable, "no API server");
    if (!restores.empty() && restores.back().outcome == "Started" && restores.back().pod_uid == restore.pod_uid) restores.pop_back();
    restores.push_back(restore);
    if (on_restore) on_restore(restore);
    return Status::Ok();
  }
  std::vector<std::pair<std::string, std::optional<kube::Condition>>> told;  // by pod
  Status TellCondition(const kube::Pod& pod, const std::string& type, const std::optional<kube::Condition>& condition) override {
    if (!reachable) return Status(Code::kUnavailable, "no API server");
    Json& conditions = pods.at(pod.meta.Key())["status"]["conditions"];
    Json kept = Json::array();
    for (const Json& one : conditions) {
      if (one["type"] != type) kept.push_back(one);
    }
    if (condition) kept.push_back(kube::ToJson(*condition));
    conditions = kept;
    told.emplace_back(pod.meta.name, condition);
    return Status::Ok();
  }
  void PodEvent(bool warning, const std::string&, const std::string& name, const std::string&, const std::string& reason,
                const std::string& note) override {
    std::lock_guard lock(mutex_);
    events.push_back({warning, "pod/" + name, reason, note});
  }
  void CheckpointEvent(bool warning, const std::string&, const std::string& name, const std::string&, const std::string& reason,
                       const std::string& note) override {
    std::lock_guard lock(mutex_);
    events.push_back({warning, "checkpoint/" + name, reason, note});
  }
  bool HasEvent(const std::string& about, const std::string& reason) const {
    for (const Event& event : events) {
      if (event.about == about && event.reason == reason) return true;
    }
    return false;
  }
  int64_t CountEvents(const std::string& reason) const {
    return std::count_if(events.begin(), events.end(), [&](const Event& event) { return event.reason == reason; });
  }
  api::Checkpoint Seen() const { return api::Checkpoint::FromJson(checkpoint); }

 private:
  Result<kube::Pod> FindPod(const std::string& ns, const std::string& name) {
    auto at = pods.find(ns + "/" + name);
    if (at == pods.end()) return Status(Code::kNotFound, "no pod " + name);
    return kube::Pod::FromJson(at->second);
  }
  std::mutex mutex_;
};

inline Json PodJson(const std::string& name, const std::string& uid, const std::string& runtime_class = "holdfast") {
  Json pod = Json::parse(R"({"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"default"},
    "spec":{"nodeName":"node1","containers":[{"name":"main","image":"counter:1"}],"volumes":[{"name":"scratch","emptyDir":{}}]},
    "status":{"phase":"Running","containerStatuses":[{"name":"main","containerID":"containerd://c1","image":"counter:1",
      "imageID":"docker.io/counter@sha256:abc","ready":true,"state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}}}]}})");
  pod["metadata"]["name"] = name;
  pod["metadata"]["uid"] = uid;
  if (!runtime_class.empty()) pod["spec"]["runtimeClassName"] = runtime_class;
  return pod;
}

inline Json CheckpointJson(bool final) {
  Json cp = Json::parse(R"({"apiVersion":"holdfast.dev/v1alpha1","kind":"Checkpoint",
    "metadata":{"name":"ck","namespace":"default","uid":"ck-uid","creationTimestamp":"2020-01-01T00:00:00Z"},
    "spec":{"podRef":{"name":"web-0","uid":"pod-uid"},"deadline":"100s"},
    "status":{"phase":"Assigned","nodeName":"node1","podUID":"pod-uid"}})");
  cp["spec"]["final"] = final;
  return cp;
}

}  // namespace holdfast::agent
