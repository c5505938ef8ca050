// Brings claimed checkpoints to this node for its pods, and answers holdfast-runc's questions about them.
//
// A pod's annotation only says where to look: what counts is that the Checkpoint's status.claim names this pod's uid, read live. Run is
// called for one pod at a time (by key), Create and Outcome from any thread; they never wait longer than `answer_within`.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "agent/cluster.h"
#include "agent/disk_room.h"
#include "agent/journal.h"
#include "agent/metrics.h"
#include "agent/node.h"
#include "agent/restore_state.h"
#include "agent/stores.h"
#include "storage/store.h"

namespace holdfast::agent {

struct RestorerOptions {
  std::string node_name;
  std::string boot_id;                          // ExecutorOptions
  Duration patience = std::chrono::minutes(1);  // with a store or an API server that does not answer; then the pod says what it waits for
  Duration claim_within = std::chrono::seconds(60);  // a claim that is not this pod's by then never will be
  Duration answer_within = std::chrono::seconds(8);  // below holdfast-runc's own limit of 10 s
  Duration again = std::chrono::milliseconds(500);
  Duration retry_pause = std::chrono::seconds(10);  // before what failed for good is tried all the same (restore.onFailure: Retry)
  std::function<Status(storage::Store&, const std::string&, const std::string&, const storage::IngestOptions&)> fetch;
  // The same from this node, whole and verified (cache.h); kNotFound: it has to be fetched. Unset: nothing is kept here.
  std::function<Status(const std::string& manifest, const std::string& dir, const storage::IngestOptions&)> kept;
  DiskRoom* disk = nullptr;                                 // on which it is fetched; null: there is room
  std::function<void(const std::string& pod_key)> enqueue;  // asks for a Run soon
};

class Restorer {
 public:
  // `clock`: the API server's (kube/server_time.h); controllers compare what is written by it with their own times.
  Restorer(RestorerOptions options, Layout layout, Journal& journal, Node& node, Stores& stores, Cluster& cluster, Metrics& metrics,
           Clock& clock);

  // Once, before anything else: reads the states that an earlier process left. Returns the keys of their pods.
  std::vector<std::string> Recover();
  // `key` is namespace/name. Nothing: done until the pod changes.
  Result<std::optional<Duration>> Run(const std::string& key, std::stop_token stop);
  runtime::CreateAnswer Create(const runtime::CreateQuestion& question, std::stop_token stop);
  runtime::CreateAnswer Outcome(const runtime::RestoreOutcome& outcome);

 private:
  struct Record {
    std::mutex mutex;
    std::condition_variable_any changed;
    RestoreState state;
    std::string wait_state;        // as last written
    std::string told_why;          // why it is tried again, as last told in an event
    std::optional<MonoTime> seen;  // by this process: wall clocks are set
    bool told_waits = false;
  };
  using RecordPtr = std::shared_ptr<Record>;

  RecordPtr Find(const std::string& pod_uid);
  RecordPtr For(const kube::Pod& pod);
  Result<std::optional<Duration>> Prepare(Record& record, const kube::Pod& pod, std::stop_token stop);
  Result<std::optional<Duration>> Bring(Record& record, const kube::Pod& pod, const api::Checkpoint& checkpoint, std::stop_token stop);
  Result<std::optional<Duration>> WaitToFetch(Record& record, const api::Checkpoint& checkpoint, const std::string& why);
  void WaitOn(Record& record, const std::string& why);
  void FetchAfterRestart(RestoreState& state);
  Status TakeFromLanding(const std::string& checkpoint_uid, const std::string& pod_uid);
  Status ReadLayout(RestoreState& state, const api::Checkpoint& checkpoint);
  Result<std::optional<Duration>> GiveUp(Record& record, const std::string& why);
  bool Noted(const RestoreState& state, const std::string& container, const char* note) const;
  bool MayHaveRun(const RestoreState& state) const;
  Result<bool> FindLostOutcomes(Record& record);
  Status SayStarted(Record& record);
  Status Report(Record& record);
  Status Close(Record& record);
  Status ReportEnd(const RestoreState& state);
  void Tell(Record& record, const std::string& state, const std::string& message, int64_t bytes = 0, int64_t total = 0);  // record locked
  Status ForgetPods(const std::string& key, const std::string& but_uid);

  const RestorerOptions options_;
  const Layout layout_;
  Journal& journal_;
  Node& node_;
  Stores& stores_;
  Cluster& cluster_;
  Metrics& metrics_;
  Clock& clock_;
  std::mutex mutex_;
  std::map<std::string, RecordPtr> records_;  // by pod uid
};

}  // namespace holdfast::agent
