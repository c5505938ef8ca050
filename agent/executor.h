// Carries one Checkpoint through: intent, dump, store, commit, report, clean-up. Each step is in the journal before it is taken, so Run can
// be called again at any time, also by another process, and goes on or undoes. One call for a uid at a time; different uids in parallel.
//
// The commit point: until the store is asked to commit, a checkpoint may fail and thaw on its own. From then on only when the store says
// that its session is aborted, or when this agent has won status.claim for the old pod; reaching neither, the pod stays frozen.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "agent/cluster.h"
#include "agent/freezer.h"
#include "agent/journal.h"
#include "agent/layout.h"
#include "agent/metrics.h"
#include "agent/node.h"
#include "storage/store.h"

namespace holdfast::agent {

struct ExecutorOptions {
  std::string node_name;
  std::string store_name;                        // status.manifest.store
  Duration poll = std::chrono::milliseconds(5);  // of a running dump
  Duration progress_every = std::chrono::seconds(1);
  Duration kept_frozen_every = std::chrono::seconds(1);
  Duration dump_grace = std::chrono::seconds(10);  // after the deadline, for holdfast-runc to kill CRIU and thaw by itself
  // Whether the controller's term of leadership still stands (base/fence.h): an assignment of an older one is left alone until the leader
  // of today renews it. Unset: every one does.
  std::function<Status(int64_t term)> admit;
  // The same store for one checkpoint's work, giving up at a deadline; unset: the store itself. Its own calls are short.
  std::function<std::unique_ptr<storage::Store>(MonoTime deadline, std::stop_token stop)> within;
  std::function<Result<std::vector<storage::FileEntry>>(const std::string&, storage::Session&, const storage::IngestOptions&)> ingest;
};

class Executor {
 public:
  Executor(ExecutorOptions options, Layout layout, Journal& journal, Node& node, Kubelet& kubelet, storage::Store& store, Cluster& cluster,
           Metrics& metrics, Clock& clock);

  // Once, before Run: thaws what no journal entry claims. Returns the uids that Run must be called for.
  Result<std::vector<std::string>> Recover();
  // Nothing: done. A duration: call again after it (or when something changed). An error: call again with backoff.
  Result<std::optional<Duration>> Run(const std::string& uid, std::stop_token stop);
  // The checkpoint that a pod is in, if any: its changes are that checkpoint's business.
  std::optional<std::string> CheckpointOf(const std::string& pod_uid) const;

 private:
  using Pause = std::optional<Duration>;  // nothing: take the next step at once

  Result<std::optional<Duration>> Begin(const std::string& uid, std::stop_token stop);
  Result<Pause> Refuse(const api::Checkpoint& checkpoint, const std::string& reason, const std::string& message);
  Result<Pause> Advance(JournalEntry& entry, std::stop_token stop);
  // dump
  Result<Pause> StartDump(JournalEntry& entry, std::stop_token stop);
  Result<std::string> AskKubelet(const JournalEntry& entry, const std::string& container, std::stop_token stop);
  Result<Pause> DumpThroughKubelet(JournalEntry& entry, std::stop_token stop);
  Result<Pause> WaitForDump(JournalEntry& entry, std::stop_token stop);
  Result<Pause> TakeDumpResult(JournalEntry& entry);
  Result<Pause> AfterDump(JournalEntry& entry);
  Status TakeStockArchive(const JournalEntry& entry, const std::vector<std::string>& archives, int64_t started_unix_ms);
  Result<Pause> DumpLost(JournalEntry& entry);
  // store
  Result<Pause> StoreIt(JournalEntry& entry, std::stop_token stop);
  Result<Pause> AskForCommit(JournalEntry& entry, std::stop_token stop);
  Result<Pause> CommitRefused(JournalEntry& entry, const Status& why);
  Result<Pause> TryReclaim(JournalEntry& entry, const std::string& reason, const std::string& why);
  std::unique_ptr<storage::Store> Within(const JournalEntry& entry, std::stop_token stop);
  storage::Manifest MakeManifest(const JournalEntry& entry, std::vector<storage::FileEntry> files);
  // end
  Result<Pause> ReportReady(JournalEntry& entry);
  Result<Pause> StayFrozen(JournalEntry& entry);
  Result<Pause> GivenUp(JournalEntry& entry, const api::Checkpoint& seen);
  Result<Pause> CheckpointDeleted(JournalEntry& entry);
  Result<Pause> Undo(JournalEntry& entry);
  Result<Pause> ReportFailed(JournalEntry& entry);
  Result<Pause> Finish(JournalEntry& entry);

  Status Enter(JournalEntry& entry, Step step);  // writes the journal
  Result<Pause> Fail(JournalEntry& entry, const std::string& reason, const std::string& message);
  void PatchPhase(const JournalEntry& entry, api::Phase phase, const std::string& message);  // best effort
  bool Expired(const JournalEntry& entry) const;
  int64_t NowMs() const;
  bool Cancelled(const JournalEntry& entry);  // its Checkpoint was deleted
  runtime::DumpResult ResultOf(const JournalEntry& entry) const;
  bool ClaimPod(const std::string& pod_uid, const std::string& uid);
  void ReleasePod(const std::string& pod_uid, const std::string& uid);

  const ExecutorOptions options_;
  const Layout layout_;
  Journal& journal_;
  Node& node_;
  Kubelet& kubelet_;
  storage::Store& store_;
  Cluster& cluster_;
  Metrics& metrics_;
  Clock& clock_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> pods_;  // pod uid → uid of the checkpoint that works on it, until it is finished
};

}  // namespace holdfast::agent
