// Carries one Checkpoint through: intent, dump, store, commit, report, clean-up. Each step is in the journal before it is taken, so Run can
// be called again at any time, also by another process, and goes on or undoes. An entry that cannot be read is written anew, from the
// intents on the node and the Checkpoint itself. One call for a uid at a time; different uids in parallel.
//
// The commit point: until the store is asked to commit, a checkpoint may fail and thaw on its own. From then on only when the store says
// that its session is aborted, or when this agent has won status.claim for the old pod; reaching neither, the pod stays frozen.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>

#include "agent/cluster.h"
#include "agent/damaged_files.h"
#include "agent/disk_room.h"
#include "agent/freezer.h"
#include "agent/journal.h"
#include "agent/landing_memory.h"
#include "agent/layout.h"
#include "agent/metrics.h"
#include "agent/node.h"
#include "agent/stores.h"
#include "storage/store.h"

namespace holdfast::agent {

struct ExecutorOptions {
  std::string node_name;
  Duration poll = std::chrono::milliseconds(5);  // of a running dump
  Duration progress_every = std::chrono::seconds(1);
  Duration kept_frozen_every = std::chrono::seconds(1);
  Duration barrier_every = std::chrono::milliseconds(20);  // a look while the pod stands at its group's barrier
  Duration dump_grace = std::chrono::seconds(10);          // after the deadline, for holdfast-runc to kill CRIU and thaw by itself
  // Whether the controller's term of leadership still stands (base/fence.h): an assignment of an older one is left alone until the leader
  // of today renews it. Unset: every one does.
  std::function<Status(int64_t term)> admit;
  // Of a pod that is to be checkpointed because it is idle (trigger Idle): is it still? Else why not. Unset: it is.
  std::function<Status(const kube::Pod& pod)> still_idle;
  DiskRoom* disk = nullptr;             // where other dumps land; null: there is room
  LandingMemory* memory = nullptr;      // where dumps land that fit; null: all land on disk
  std::string boot_id;                  // of the node, which is another one after a restart; empty: not known
  uint64_t keep_whole_bytes = 1 << 30;  // of a checkpoint: the files of longer ones are punched while they are stored
  // How far the Executor's clock, which is the API server's (kube/server_time.h), is ahead of the node's own, by which holdfast-runc and
  // files go. Unset: they are one.
  std::function<Duration()> ahead_of_node;
  std::function<double()> free_part;  // of the disk with the landing folders, 0 to 1; unset: there is room
  // May take over a landing folder that is not needed any more, whole, with what was committed, and where (cache.h). Unset: it is removed.
  std::function<void(const std::string& landing, const std::string& manifest, const std::string& store)> keep;
  std::function<Result<std::vector<storage::FileEntry>>(const std::string&, storage::Session&, const storage::IngestOptions&)> ingest;
};

class Executor {
 public:
  // `clock`: its wall time is what Checkpoints have, and what their deadlines are compared with.
  Executor(ExecutorOptions options, Layout layout, Journal& journal, Node& node, Kubelet& kubelet, Stores& stores, Cluster& cluster,
           Metrics& metrics, Clock& clock);

  // Once, before Run: thaws what no journal entry claims. Returns the uids that Run must be called for; kDamagedFiles may be one.
  static constexpr char kDamagedFiles[] = "damaged-files";
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
  std::string WorkloadOf(const JournalEntry& entry);
  Result<Pause> StartDump(JournalEntry& entry, std::stop_token stop);
  Status SayDumping(const JournalEntry& entry);
  void TellCaveats(const JournalEntry& entry, uint64_t estimate_bytes);
  Result<std::string> AskKubelet(const JournalEntry& entry, const std::string& container, std::stop_token stop);
  Result<Pause> DumpThroughKubelet(JournalEntry& entry, std::stop_token stop);
  Result<Pause> WaitForDump(JournalEntry& entry, std::stop_token stop);
  Status TendBarrier(const JournalEntry& entry);
  Result<Pause> TakeDumpResult(JournalEntry& entry);
  Result<Pause> AfterDump(JournalEntry& entry);
  Status TakeStockArchive(const JournalEntry& entry, const std::vector<std::string>& archives, int64_t started_unix_ms);
  Result<Pause> DumpLost(JournalEntry& entry);
  Result<Pause> DumpAgain(JournalEntry& entry);
  Status ChoosePlace(JournalEntry& entry, uint64_t* estimate_bytes);
  Status FindRoomInStore(JournalEntry& entry, uint64_t estimate_bytes, std::stop_token stop);
  Status TakeInWhatRunsNow(JournalEntry& entry);
  void DumpIsOver(const JournalEntry& entry);
  // store
  Result<Pause> StoreIt(JournalEntry& entry, std::stop_token stop);
  Result<Pause> AskForCommit(JournalEntry& entry, std::stop_token stop);
  Result<Pause> CommitRefused(JournalEntry& entry, const Status& why);
  Result<Pause> TryReclaim(JournalEntry& entry, const std::string& reason, const std::string& why);
  storage::Store& StoreOf(const JournalEntry& entry) const { return stores_.Of(entry.store); }
  std::unique_ptr<storage::Store> Within(const JournalEntry& entry, std::stop_token stop);
  Status Forget(const JournalEntry& entry);
  std::optional<api::Checkpoint> LastOf(const JournalEntry& entry);
  std::string ParentOf(const JournalEntry& entry);
  std::string SentLogOf(const JournalEntry& entry);
  std::string LostWithTheNode(const JournalEntry& entry) const;
  storage::Manifest MakeManifest(const JournalEntry& entry, std::vector<storage::FileEntry> files);
  // end
  Result<Pause> ReportReady(JournalEntry& entry);
  Result<Pause> StayFrozen(JournalEntry& entry);
  Result<Pause> GivenUp(JournalEntry& entry, const api::Checkpoint& seen);
  Result<Pause> CheckpointDeleted(JournalEntry& entry);
  bool IsAllThereIs(const JournalEntry& entry);
  Result<Pause> KeepAllThereIs(JournalEntry& entry);
  Result<Pause> Undo(JournalEntry& entry);
  Result<Pause> ReportFailed(JournalEntry& entry);
  Result<Pause> Finish(JournalEntry& entry);

  Status Enter(JournalEntry& entry, Step step);  // writes the journal
  Result<Pause> Fail(JournalEntry& entry, const std::string& reason, const std::string& message);
  // executor_mend.cc: without the journal
  Status ThawUnwritten(JournalEntry& entry, const Status& why);
  Result<std::optional<Duration>> GiveUpUnwritten(const std::string& uid, const Status& why);
  bool FailedUnwritten(const std::string& uid) const;
  Result<Pause> Mend(const std::string& uid, const Status& why);
  Result<Pause> MendGone(const JournalEntry& known);
  Result<Pause> ForgetDamaged(const std::string& uid);
  Result<JournalEntry> EntryOfIntents(const std::string& uid) const;
  void TellDamaged(const JournalEntry& entry, const Status& why);
  bool TendDamagedFiles(bool alone);  // true: all is known
  void TellMended(const std::vector<MendedFile>& mended);
  void PatchPhase(const JournalEntry& entry, api::Phase phase, const std::string& message);  // best effort
  bool Expired(const JournalEntry& entry) const;
  // By the controller's clock, once it has said so.
  static void SetStarted(Json& patch, const api::Checkpoint& seen, const JournalEntry& entry) {
    patch["status"]["startedAt"] = seen.status.started_at.empty() ? entry.started_at : seen.status.started_at.str();
  }
  int64_t NowMs() const;
  int64_t NodeMs() const;                     // by the node's own clock
  int64_t AheadMs() const;                    // NowMs over NodeMs
  bool Cancelled(const JournalEntry& entry);  // its Checkpoint was deleted
  runtime::DumpResult ResultOf(const JournalEntry& entry) const;
  std::string LandingOf(const JournalEntry& entry) const { return layout_.Landing(entry.uid, entry.place); }
  bool ClaimPod(const std::string& pod_uid, const std::string& uid);
  void ReleasePod(const std::string& pod_uid, const std::string& uid);

  const ExecutorOptions options_;
  const Layout layout_;
  Journal& journal_;
  Node& node_;
  Kubelet& kubelet_;
  Stores& stores_;
  Cluster& cluster_;
  Metrics& metrics_;
  Clock& clock_;
  std::mutex mending_;  // one looks at damaged files at a time
  mutable std::mutex mutex_;
  std::map<std::string, std::pair<std::string, std::string>> unwritten_;  // reason and message of failures that the disk did not take
  std::map<std::string, std::string> pods_;  // pod uid → uid of the checkpoint that works on it, until it is finished
};

}  // namespace holdfast::agent
