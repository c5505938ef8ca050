#include "agent/executor.h"

#include <algorithm>

#include "agent/preflight.h"
#include "api/idle.h"
#include "base/fault_point.h"
#include "base/file.h"
#include "base/log.h"

namespace holdfast::agent {

using std::chrono::milliseconds;

namespace {

constexpr int64_t kLeastGrace = 5, kMostGrace = 3600;  // s
constexpr Duration kUntilRenewed = milliseconds(500), kDamagedAgain = std::chrono::seconds(2);
constexpr size_t kMaxMessage = 4000;  // of a person's patience, and of the journal; the API takes more

}  // namespace

Executor::Executor(ExecutorOptions options, Layout layout, Journal& journal, Node& node, Kubelet& kubelet, Stores& stores, Cluster& cluster,
                   Metrics& metrics, Clock& clock)
    : options_(std::move(options)),
      layout_(std::move(layout)),
      journal_(journal),
      node_(node),
      kubelet_(kubelet),
      stores_(stores),
      cluster_(cluster),
      metrics_(metrics),
      clock_(clock) {}

Result<std::vector<std::string>> Executor::Recover() {
  if (Status room = journal_.SetRoomAside(); !room.ok())
    LogWarning("the journal has less room of its own than it should", {{"error", room.message()}});
  std::vector<std::string> damaged, uids;
  HF_ASSIGN_OR_RETURN(std::vector<JournalEntry> entries, journal_.List(&damaged));
  for (JournalEntry& entry : entries) {
    uids.push_back(entry.uid);
    ClaimPod(entry.pod_uid, entry.uid);
    // Where an earlier version had it, it is gone with the node's restart.
    if (entry.final && entry.step >= Step::kDumping && entry.step < Step::kThawed && !entry.failed())
      HF_RETURN_IF_ERROR(HoldPod(layout_, entry));
    if (options_.memory != nullptr && entry.place == Place::kMemory && entry.step <= Step::kDumping && !entry.failed()) {
      options_.memory->Hold(entry.uid, entry.reserved_bytes);
    }
    if (options_.disk != nullptr && entry.place == Place::kDisk && entry.step == Step::kDumping && !entry.failed()) {
      options_.disk->Hold(LandingOf(entry), entry.reserved_bytes);
    }
    LogInfo("resuming a checkpoint", {{"checkpoint", entry.ns + "/" + entry.name}, {"uid", entry.uid}, {"step", StepName(entry.step)}});
  }
  // What a damaged one had frozen stays frozen until Run has found out whether somebody else may go on from it: two copies could run.
  for (const std::string& name : damaged) {
    uids.push_back(name.substr(0, name.rfind('.')));
    metrics_.JournalDamaged();
    LogError("a journal entry cannot be read; it is written anew from what is known of it",
             {{"file", layout_.JournalFolder() + "/" + name}});
  }
  const bool all_known = TendDamagedFiles(/*alone=*/true);
  for (const std::string& name : damaged) {
    if (Result<JournalEntry> entry = EntryOfIntents(name.substr(0, name.rfind('.'))); entry.ok()) ClaimPod(entry->pod_uid, entry->uid);
  }
  ThawOrphans(layout_, node_, uids);
  if (!all_known) uids.emplace_back(kDamagedFiles);
  return uids;
}

Result<std::optional<Duration>> Executor::Run(const std::string& uid, std::stop_token stop) {
  if (uid == kDamagedFiles) return TendDamagedFiles(/*alone=*/false) ? std::nullopt : Pause(kDamagedAgain);
  Result<JournalEntry> found = journal_.Read(uid);
  if (found.status().code() == Code::kNotFound) {
    HF_ASSIGN_OR_RETURN(std::optional<Duration> wait, Begin(uid, stop));
    if (wait) return wait;
    found = journal_.Read(uid);
    if (found.status().code() == Code::kNotFound) return std::optional<Duration>();
  }
  if (!found.ok()) {  // it cannot be read
    HF_ASSIGN_OR_RETURN(Pause pause, Mend(uid, found.status()));
    if (pause) return pause;
    found = journal_.Read(uid);
    if (found.status().code() == Code::kNotFound) return std::optional<Duration>();
  }
  if (!found.ok()) return found.status();
  JournalEntry entry = std::move(*found);
  while (entry.step != Step::kFinished) {
    if (stop.stop_requested()) return Status(Code::kCancelled, "stopping; the journal goes on from " + std::string(StepName(entry.step)));
    Result<Pause> pause = Advance(entry, stop);
    if (!pause.ok() && !journal_.writable() && Expired(entry)) return GiveUpUnwritten(uid, pause.status());
    if (!pause.ok()) return pause.status();
    if (*pause) return *pause;
  }
  return std::optional<Duration>();
}

Result<std::optional<Duration>> Executor::Begin(const std::string& uid, std::stop_token) {
  Result<api::Checkpoint> seen = cluster_.CachedCheckpoint(uid);
  if (seen.status().code() == Code::kNotFound) return std::optional<Duration>();
  if (!seen.ok()) return seen.status();
  if (seen->done()) return std::optional<Duration>();
  // The cache may lag behind our own report of a checkpoint that has just ended: what is decided here needs the truth.
  Result<api::Checkpoint> live = cluster_.GetCheckpoint(seen->meta.ns, seen->meta.name);
  if (live.status().code() == Code::kNotFound) return std::optional<Duration>();
  if (!live.ok()) return live.status();
  const api::Checkpoint& cp = *live;
  if (cp.meta.uid != uid || cp.status.node_name != options_.node_name || cp.meta.terminating() || cp.done() ||
      cp.status.phase == api::Phase::kPending) {
    return std::optional<Duration>();
  }
  if (cp.status.phase != api::Phase::kAssigned) {
    return Refuse(cp, api::reason::kDumpFailed, "the agent's journal of this checkpoint is gone; create another Checkpoint");
  }
  if (options_.admit) {
    Status admitted = options_.admit(cp.status.term);
    if (admitted.code() == Code::kFailedPrecondition) {
      LogWarning("an assignment waits for the leader of today", {{"checkpoint", cp.meta.Key()}, {"why", admitted.message()}});
      return std::optional<Duration>(kUntilRenewed);
    }
    HF_RETURN_IF_ERROR(admitted);
  }
  const WallTime now = clock_.Wall(), deadline = cp.DeadlineAt().value_or(now + cp.spec.deadline);
  Result<kube::Pod> pod = cluster_.GetPod(cp.meta.ns, cp.spec.pod_name);
  if (!pod.ok() && pod.status().code() != Code::kNotFound) return pod.status();
  Preflight check = Check(cp, pod.ok() ? &*pod : nullptr, options_.node_name);
  if (check.reason.empty() && cp.spec.trigger == api::Trigger::kIdle && options_.still_idle) {
    if (Status idle = options_.still_idle(*pod); !idle.ok()) return Refuse(cp, api::reason::kNotIdle, idle.message());
  }
  if (check.reason.empty() && !ClaimPod(pod->meta.uid, uid)) {
    check.reason = api::reason::kWaiting;
    check.message = "another checkpoint of this pod is being made";
  }
  if (check.reason == api::reason::kWaiting) {
    const WallTime created = ParseTime(cp.meta.creation_timestamp).value_or(now);
    if (now > cp.DeadlineAt().value_or(created + cp.spec.deadline)) return Refuse(cp, api::reason::kDeadline, check.message);
    return std::optional<Duration>(milliseconds(500));
  }
  if (!check.reason.empty()) return Refuse(cp, check.reason, check.message);

  JournalEntry entry;
  entry.uid = uid;
  entry.ns = cp.meta.ns;
  entry.name = cp.meta.name;
  entry.pod = cp.spec.pod_name;
  entry.pod_uid = pod->meta.uid;
  entry.final = cp.spec.final;
  entry.in_cut = !cp.spec.cut.none();
  entry.stock = check.stock;
  entry.boot_id = options_.boot_id;
  entry.started_at = FormatTime(now);
  entry.on_stop = cp.spec.trigger == api::Trigger::kStop;
  entry.deadline_unix_ms = std::chrono::duration_cast<milliseconds>(deadline.time_since_epoch()).count();
  entry.dump_by_unix_ms = entry.deadline_unix_ms - AheadMs();
  if (entry.on_stop) {
    const int64_t grace_ms = std::clamp<int64_t>(pod->termination_grace_seconds, kLeastGrace, kMostGrace) * 1000;
    entry.dump_by_unix_ms = std::min(entry.dump_by_unix_ms, NodeMs() + grace_ms);
  }
  entry.containers = check.containers;
  entry.waiting = check.waiting;
  entry.volumes = check.volumes;
  Status written = journal_.Write(entry);
  if (!written.ok()) {
    ReleasePod(entry.pod_uid, uid);
    return written;
  }
  return std::optional<Duration>();
}

Result<Executor::Pause> Executor::Refuse(const api::Checkpoint& cp, const std::string& reason, const std::string& message) {
  Json patch = api::PhasePatch(cp, api::Phase::kFailed, reason, message, clock_.Wall());
  patch["metadata"]["resourceVersion"] = cp.meta.resource_version;  // refused because of what was read: changed since, it is read again
  Status patched = cluster_.PatchStatus(cp.meta.ns, cp.meta.name, cp.meta.uid, patch);
  if (!patched.ok() && patched.code() != Code::kNotFound) return patched;
  const std::string pod_uid = cp.status.pod_uid.empty() ? cp.spec.pod_uid : cp.status.pod_uid;
  cluster_.PodEvent(true, cp.meta.ns, cp.spec.pod_name, pod_uid, reason, "not checkpointed: " + message);
  cluster_.CheckpointEvent(true, cp.meta.ns, cp.meta.name, cp.meta.uid, reason, message);
  metrics_.Checkpointed(reason);
  LogWarning("checkpoint refused", {{"checkpoint", cp.meta.Key()}, {"uid", cp.meta.uid}, {"reason", reason}, {"message", message}});
  return Pause();
}

Result<Executor::Pause> Executor::Advance(JournalEntry& entry, std::stop_token stop) {
  if (entry.failed() && entry.step < Step::kThawed) return Undo(entry);
  if (!entry.failed() && FailedUnwritten(entry.uid)) return Fail(entry, api::reason::kNodeFull, "the node's disk was full");
  switch (entry.step) {
    case Step::kIntent:
      return StartDump(entry, stop);
    case Step::kDumping:
      return WaitForDump(entry, stop);
    case Step::kDumped:
      return AfterDump(entry);
    case Step::kStoring:
      return StoreIt(entry, stop);
    case Step::kCommitAsked:
      return AskForCommit(entry, stop);
    case Step::kCommitted:
      return entry.reported ? StayFrozen(entry) : ReportReady(entry);
    case Step::kThawed:
      return entry.failed() && !entry.reported ? ReportFailed(entry) : Finish(entry);
    case Step::kFinished:
      break;
  }
  return Pause();
}

Status Executor::Enter(JournalEntry& entry, Step step) {
  const Step before = entry.step;
  entry.step = step;
  Status written = journal_.Write(entry);
  if (!written.ok()) {
    entry.step = before;
    return written;
  }
  LogInfo("checkpoint", {{"checkpoint", entry.ns + "/" + entry.name}, {"uid", entry.uid}, {"step", StepName(step)}});
  return Status::Ok();
}

Result<Executor::Pause> Executor::Fail(JournalEntry& entry, const std::string& reason, const std::string& message) {
  entry.failure_reason = reason;
  entry.failure_message = message.substr(0, kMaxMessage);
  {
    std::lock_guard lock(mutex_);
    if (auto first = unwritten_.find(entry.uid); first != unwritten_.end())
      std::tie(entry.failure_reason, entry.failure_message) = first->second;
  }
  if (Status written = journal_.Write(entry); !written.ok()) return ThawUnwritten(entry, written);
  {
    std::lock_guard lock(mutex_);
    unwritten_.erase(entry.uid);
  }
  LogWarning("checkpoint failed",
             {{"checkpoint", entry.ns + "/" + entry.name}, {"uid", entry.uid}, {"reason", reason}, {"message", message}});
  return Pause();
}

void Executor::PatchPhase(const JournalEntry& entry, api::Phase phase, const std::string& message) {
  Result<api::Checkpoint> cp = cluster_.CachedCheckpoint(entry.uid);
  if (!cp.ok()) return;
  Json patch = api::PhasePatch(*cp, phase, entry.ended ? api::reason::kStillStoring : api::reason::kInProgress, message, clock_.Wall());
  SetStarted(patch, *cp, entry);
  Status patched = cluster_.PatchStatus(entry.ns, entry.name, entry.uid, patch);
  if (!patched.ok()) LogWarning("cannot report progress", {{"checkpoint", entry.ns + "/" + entry.name}, {"error", patched.message()}});
}

int64_t Executor::NowMs() const { return std::chrono::duration_cast<milliseconds>(clock_.Wall().time_since_epoch()).count(); }

int64_t Executor::AheadMs() const {
  return options_.ahead_of_node ? std::chrono::duration_cast<milliseconds>(options_.ahead_of_node()).count() : 0;
}

int64_t Executor::NodeMs() const { return NowMs() - AheadMs(); }

bool Executor::Expired(const JournalEntry& entry) const { return !entry.ended && NowMs() >= entry.deadline_unix_ms; }

bool Executor::Cancelled(const JournalEntry& entry) {
  Result<api::Checkpoint> cp = cluster_.CachedCheckpoint(entry.uid);
  return cp.ok() ? cp->meta.terminating() : cp.status().code() == Code::kNotFound;
}

runtime::DumpResult Executor::ResultOf(const JournalEntry& entry) const {
  Result<std::string> text = ReadFile(LandingOf(entry) + "/result.json", 1 << 20);
  Result<Json> json = text.ok() ? ParseJson(*text) : Result<Json>(text.status());
  Result<runtime::DumpResult> result = json.ok() ? runtime::DumpResult::FromJson(*json) : Result<runtime::DumpResult>(json.status());
  if (result.ok()) return *result;
  if (entry.step >= Step::kCommitAsked) {  // the node was restarted: what was committed says it too
    Result<std::string> committed = journal_.ReadManifest(entry.uid);
    Result<storage::Manifest> manifest =
        committed.ok() ? storage::Manifest::Parse(*committed) : Result<storage::Manifest>(committed.status());
    result = manifest.ok() ? runtime::DumpResult::FromJson(GetObject(manifest->info, {"result"})) : result;
    if (result.ok()) return *result;
  }
  runtime::DumpResult failed;
  failed.reason = api::reason::kDumpFailed;
  failed.message = "result.json cannot be read: " + result.status().message();
  return failed;
}

bool Executor::ClaimPod(const std::string& pod_uid, const std::string& uid) {
  std::lock_guard lock(mutex_);
  return pods_.emplace(pod_uid, uid).first->second == uid;
}

void Executor::ReleasePod(const std::string& pod_uid, const std::string& uid) {
  std::lock_guard lock(mutex_);
  auto at = pods_.find(pod_uid);
  if (at != pods_.end() && at->second == uid) pods_.erase(at);
}

std::optional<std::string> Executor::CheckpointOf(const std::string& pod_uid) const {
  std::lock_guard lock(mutex_);
  auto at = pods_.find(pod_uid);
  return at == pods_.end() ? std::nullopt : std::optional<std::string>(at->second);
}

}  // namespace holdfast::agent
