// What the executor does where its journal fails it: a disk that takes no more steps, an entry that cannot be read.
#include <algorithm>
#include <cstdio>
#include <optional>

#include "agent/executor.h"
#include "base/file.h"
#include "base/log.h"

namespace holdfast::agent {
namespace {

constexpr Duration kUntilKnown = std::chrono::milliseconds(500);

}  // namespace

// A failure that cannot be written down. Its pod does not wait for the disk: once the dump is gone, an agent that reads the journal as it
// stands can neither store it nor take it for whole, so the pod may go on first. Past the commit point whoever calls Fail has the store's
// or the claim's word, which is there to be read again. An error, always: it is written when it can be.
Status Executor::ThawUnwritten(JournalEntry& entry, const Status& why) {
  LogError("the journal cannot be written; a pod is thawed without it",
           {{"checkpoint", entry.ns + "/" + entry.name}, {"uid", entry.uid}, {"error", why.message()}});
  if (node_.DumpRunning(entry.uid, entry.pod_uid)) HF_RETURN_IF_ERROR(node_.KillDump(entry.uid));
  const std::string result = LandingOf(entry) + "/result.json";
  if (entry.step < Step::kCommitAsked && std::remove(result.c_str()) != 0 && Exists(result)) {
    return Status(Code::kInternal, "the pod stays frozen, since its dump could still be stored: cannot remove " + result);
  }
  if (!entry.stock) HF_RETURN_IF_ERROR(Thaw(layout_, node_, entry));
  DumpIsOver(entry);
  {
    std::lock_guard lock(mutex_);
    if (!unwritten_.emplace(entry.uid, std::pair(entry.failure_reason, entry.failure_message)).second) return why;
  }
  if (Result<api::Checkpoint> cp = cluster_.CachedCheckpoint(entry.uid); cp.ok() && !cp->done()) {
    Json patch = api::PhasePatch(*cp, api::Phase::kFailed, entry.failure_reason, entry.failure_message, clock_.Wall());
    Status patched = cluster_.PatchStatus(entry.ns, entry.name, entry.uid, patch);
    if (!patched.ok()) LogWarning("cannot report a failure", {{"uid", entry.uid}, {"error", patched.message()}});
  }
  cluster_.PodEvent(true, entry.ns, entry.pod, entry.pod_uid, entry.failure_reason,
                    (entry.on_stop ? "stopped, and its state is not kept: " : "not checkpointed, the pod goes on: ") +
                        entry.failure_message + "; and the agent cannot write its journal: " + why.message());
  return why;
}

// A step that could not be written down, past the deadline. What counts is the last one that was.
Result<std::optional<Duration>> Executor::GiveUpUnwritten(const std::string& uid, const Status& why) {
  Result<JournalEntry> entry = journal_.Read(uid);
  if (!entry.ok() || entry->failed() || entry->step >= Step::kCommitAsked) return why;
  HF_ASSIGN_OR_RETURN(Pause pause, Fail(*entry, api::reason::kNodeFull, why.message()));
  return pause ? pause : Pause(Duration(0));
}

bool Executor::FailedUnwritten(const std::string& uid) const {
  std::lock_guard lock(mutex_);
  return unwritten_.contains(uid);
}

// What the node's own files say of a checkpoint: its pod, and the containers that are or may be frozen for it.
Result<JournalEntry> Executor::EntryOfIntents(const std::string& uid) const {
  JournalEntry entry;
  entry.uid = uid;
  entry.boot_id = options_.boot_id;
  entry.attempts = 2;
  for (const auto& [id, intent] : IntentsOf(layout_, uid)) {
    entry.pod_uid = intent.pod_uid;
    entry.final = intent.final;
    entry.place = intent.landing == layout_.Landing(uid, Place::kMemory) ? Place::kMemory : Place::kDisk;
    entry.containers.push_back({intent.container, id, "", ""});
  }
  if (entry.containers.empty()) return Status(Code::kNotFound, "no intent is of it");
  return entry;
}

void Executor::TellDamaged(const JournalEntry& entry, const Status& why) {
  const std::string told = "the agent's journal of checkpoint " + entry.name + " on node " + options_.node_name +
                           " was damaged, and was written anew from what else is known: " + why.message() +
                           " (what is left of it: " + layout_.JournalFolder() + "/" + entry.uid + ".damaged on the node; look at its disk)";
  cluster_.PodEvent(true, entry.ns, entry.pod, entry.pod_uid, "JournalDamaged", told);
  cluster_.CheckpointEvent(true, entry.ns, entry.name, entry.uid, "JournalDamaged", told);
}

// Intents, and words that pods are held, which cannot be read any more.
bool Executor::TendDamagedFiles(bool alone) {
  std::lock_guard lock(mending_);
  std::optional<Result<std::vector<kube::Pod>>> pods;  // once, however many files there are, and only if somebody asks
  auto runs_on = [&](const std::string& pod_uid) {
    if (!pods) pods = cluster_.ListPods();
    return pods->ok() && std::any_of((*pods)->begin(), (*pods)->end(),
                                     [&](const kube::Pod& pod) { return pod.meta.uid == pod_uid && !pod.meta.terminating(); });
  };
  const DamagedFiles found = MendFiles(layout_, node_, journal_, alone, runs_on);
  TellMended(found.mended);
  return !found.left;
}

void Executor::TellMended(const std::vector<MendedFile>& mended) {
  for (const MendedFile& file : mended) {
    const NodeContainer& c = file.container;
    const std::string told = "a file about " + (c.id.empty() ? "pod " + c.pod_uid : "container " + c.id) + " on node " +
                             options_.node_name + " was damaged: " + file.outcome +
                             (file.kept.empty() ? "" : " (what is left of it: " + file.kept + " on the node; look at its disk)");
    LogError(told, {{"pod", c.ns + "/" + c.pod}, {"pod_uid", c.pod_uid}});
    metrics_.JournalDamaged();
    if (!c.pod.empty()) cluster_.PodEvent(true, c.ns, c.pod, c.pod_uid, "IntentDamaged", told);
  }
}

Result<Executor::Pause> Executor::ForgetDamaged(const std::string& uid) {
  HF_RETURN_IF_ERROR(layout_.RemoveLanding(uid));
  HF_RETURN_IF_ERROR(journal_.Remove(uid));
  return Pause();
}

// Its Checkpoint is gone. A pod that is not being ended has no successor, and goes on. One that is may have one, which had claimed it
// before (claim/step.h gives no final one away sooner): it waits, frozen, for its end.
Result<Executor::Pause> Executor::MendGone(const JournalEntry& known) {
  bool runs_on = !known.final;
  if (known.final) {
    HF_ASSIGN_OR_RETURN(std::vector<kube::Pod> pods, cluster_.ListPods());
    runs_on = std::any_of(pods.begin(), pods.end(),
                          [&](const kube::Pod& pod) { return pod.meta.uid == known.pod_uid && !pod.meta.terminating(); });
  }
  if (runs_on) {
    HF_RETURN_IF_ERROR(Thaw(layout_, node_, known));
    LogWarning("thawed a pod whose Checkpoint is gone", {{"uid", known.uid}, {"pod_uid", known.pod_uid}});
  } else {
    for (const JournalContainer& c : known.containers) {
      HF_ASSIGN_OR_RETURN(ContainerState state, node_.StateOf(c.id));
      if (state == ContainerState::kRunning || state == ContainerState::kPaused) return Pause(options_.kept_frozen_every);
    }
    HF_RETURN_IF_ERROR(RemoveIntents(layout_, known));
  }
  ReleasePod(known.pod_uid, known.uid);
  return ForgetDamaged(known.uid);
}

// Which step was the last is lost with the entry, so the most that can have happened is what counts: the store may have committed. What
// then decides is the Checkpoint: it is Ready, and the pod waits as it would have; it is gone, and nobody can go on from it; or the old pod
// wins its claim, and goes on itself. Without an API server the pod stays as it is, as past any commit.
Result<Executor::Pause> Executor::Mend(const std::string& uid, const Status& why) {
  Result<api::Checkpoint> cp = cluster_.CachedCheckpoint(uid);
  if (!cp.ok() && cp.status().code() != Code::kNotFound) return Pause(kUntilKnown);  // the first list is on its way
  if (cp.ok()) cp = cluster_.GetCheckpoint(cp->meta.ns, cp->meta.name);
  if (!cp.ok() && cp.status().code() != Code::kNotFound) return cp.status();
  const bool exists = cp.ok() && cp->meta.uid == uid;
  if (exists && cp->spec.final) {  // so that Intents of its pod that cannot be read either are known for its own
    JournalEntry held;
    held.uid = uid;
    held.pod_uid = cp->status.pod_uid.empty() ? cp->spec.pod_uid : cp->status.pod_uid;
    HF_RETURN_IF_ERROR(HoldPod(layout_, held));
    (void)TendDamagedFiles(/*alone=*/false);  // what is left is looked at again
  }
  Result<JournalEntry> known = EntryOfIntents(uid);
  Status kept = journal_.KeepDamaged(uid);
  if (!kept.ok()) LogWarning("a damaged journal entry is not kept for people", {{"uid", uid}, {"error", kept.message()}});
  if (!exists) return known.ok() ? MendGone(*known) : ForgetDamaged(uid);
  JournalEntry entry = known.value_or(JournalEntry{});
  entry.uid = uid;
  entry.ns = cp->meta.ns;
  entry.name = cp->meta.name;
  entry.pod = cp->spec.pod_name;
  entry.pod_uid = cp->status.pod_uid.empty() ? cp->spec.pod_uid : cp->status.pod_uid;
  entry.final = cp->spec.final;
  entry.in_cut = !cp->spec.cut.none();
  entry.on_stop = cp->spec.trigger == api::Trigger::kStop;
  entry.started_at = cp->status.started_at;
  entry.deadline_unix_ms = NowMs();
  entry.dump_by_unix_ms = NodeMs();
  entry.step = Step::kCommitAsked;
  ClaimPod(entry.pod_uid, uid);
  if (cp->status.phase == api::Phase::kReady) {
    entry.store = cp->store();
    entry.commit.id = cp->status.manifest_id;
    entry.commit.digest = cp->status.manifest_digest;
    entry.claimed = cp->status.claim && cp->status.claim->pod_uid != entry.pod_uid;
    entry.reported = true;
    HF_RETURN_IF_ERROR(Enter(entry, Step::kCommitted));
    TellDamaged(entry, why);
    return Pause();
  }
  const std::string message = "the agent's journal of it was damaged: " + why.message();
  Result<Pause> undone =
      entry.final ? TryReclaim(entry, api::reason::kDumpFailed, message) : Fail(entry, api::reason::kDumpFailed, message);
  if (undone.ok() && !*undone) TellDamaged(entry, why);
  return undone;
}

}  // namespace holdfast::agent
