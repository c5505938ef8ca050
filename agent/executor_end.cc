// The executor's last part: reports, kept-frozen pods, undoing, clean-up.
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>

#include "agent/caveats.h"
#include "agent/executor.h"
#include "agent/kubelet_archives.h"
#include "agent/platform.h"
#include "base/fault_point.h"
#include "base/file.h"
#include "base/log.h"

namespace holdfast::agent {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr Duration kKeptRetry = std::chrono::seconds(5);
// After the deadline of a checkpoint that the kubelet did not answer about: so long it may still write an archive.
constexpr int64_t kArchivePatienceMs = 15'000;

int64_t PagesOf(const std::string& images) {
  int64_t bytes = 0;
  Result<std::vector<std::string>> names = ListDir(images);
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>{}) {
    struct stat info;
    if (name.starts_with("pages-") && lstat((images + "/" + name).c_str(), &info) == 0) bytes += info.st_size;
  }
  return bytes / kPageBytes;
}

std::string Seconds(int64_t ms) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f s", static_cast<double>(ms) / 1e3);
  return text;
}

bool NoSuchCheckpoint(const Status& status) { return status.code() == Code::kNotFound || status.code() == Code::kConflict; }

}  // namespace

Result<Executor::Pause> Executor::ReportReady(JournalEntry& entry) {
  HF_FAULT_POINT("agent.before_ready");
  Result<api::Checkpoint> cp = cluster_.CachedCheckpoint(entry.uid);
  if (cp.status().code() == Code::kNotFound) cp = cluster_.GetCheckpoint(entry.ns, entry.name);
  if (cp.status().code() == Code::kNotFound || (cp.ok() && cp->meta.uid != entry.uid)) return CheckpointDeleted(entry);
  if (!cp.ok()) return cp.status();
  if (cp->status.phase == api::Phase::kFailed) return GivenUp(entry, *cp);
  const runtime::DumpResult result = ResultOf(entry);
  const int64_t stored = static_cast<int64_t>(entry.commit.new_bytes);
  Json containers = Json::array();
  for (const JournalContainer& c : entry.Kept()) {
    api::CheckpointContainer out;
    out.name = c.name;
    out.image = c.image;
    out.image_digest = c.image_digest;
    out.pages = PagesOf(LandingOf(entry) + "/" + c.name + "/images");
    out.restorable = !entry.stock;
    if (entry.stock) out.reason = "taken under plain runc: what it changed in its root filesystem is only in rootfs-diff.tar";
    containers.push_back(api::ToJson(out));
  }
  Json patch = api::PhasePatch(*cp, api::Phase::kReady, api::reason::kCompleted,
                               "frozen for " + Seconds(result.frozen_ms) + ", stored in " + Seconds(entry.commit.store_ms), clock_.Wall());
  Json& status = patch["status"];
  SetStarted(patch, *cp, entry);
  status["completedAt"] = FormatTime(clock_.Wall());
  status["manifest"] = {{"store", entry.store}, {"id", entry.commit.id}, {"digest", entry.commit.digest}};
  const Json least = patch;
  status["size"] = api::SizeJson(result.memory_bytes, result.files_bytes, stored);
  status["timings"] = api::TimingsJson(result.frozen_ms, result.dump_ms, entry.commit.store_ms,
                                       entry.in_cut ? std::optional(result.barrier_ms) : std::nullopt);
  status["summary"] = api::SummaryJson(result.memory_bytes + result.files_bytes, stored);
  status["progress"] = api::ProgressJson(result.memory_bytes + result.files_bytes, result.memory_bytes + result.files_bytes);
  status["platform"] = PlatformOf(node_, layout_, entry);
  status["containers"] = containers;
  if (const Result<kube::Pod> pod = cluster_.CachedPod(entry.ns, entry.pod); pod.ok() && pod->meta.uid == entry.pod_uid) {
    const std::vector<Caveat> caveats = CaveatsOf(*pod, entry.containers, std::chrono::milliseconds(result.frozen_ms));
    api::Checkpoint ready = api::Checkpoint::FromJson(patch);
    ready.meta.generation = cp->meta.generation;
    if (!caveats.empty()) status["conditions"] = api::ToJson(WithCaveats(ready, caveats, clock_.Wall()));
  }
  Status patched = cluster_.PatchStatus(entry.ns, entry.name, entry.uid, patch);
  if (patched.code() == Code::kInvalidArgument) {
    // A durable checkpoint must not be lost to a field that this API server does not take.
    LogError("the API server refuses the whole status; reporting the least", {{"uid", entry.uid}, {"error", patched.message()}});
    patched = cluster_.PatchStatus(entry.ns, entry.name, entry.uid, least);
  }
  if (NoSuchCheckpoint(patched)) return CheckpointDeleted(entry);
  if (patched.code() == Code::kInvalidArgument) {
    Result<api::Checkpoint> live = cluster_.GetCheckpoint(entry.ns, entry.name);
    if (live.ok() && live->status.phase == api::Phase::kFailed) return GivenUp(entry, *live);
  }
  HF_RETURN_IF_ERROR(patched);
  entry.reported = true;
  HF_RETURN_IF_ERROR(journal_.Write(entry));
  metrics_.Checkpointed(api::reason::kCompleted);
  cluster_.PodEvent(false, entry.ns, entry.pod, entry.pod_uid, "Checkpointed",
                    "checkpoint " + entry.name + " is ready: frozen for " + Seconds(result.frozen_ms));
  LogInfo("checkpoint ready", {{"checkpoint", entry.ns + "/" + entry.name},
                               {"uid", entry.uid},
                               {"frozen_ms", result.frozen_ms},
                               {"dump_ms", result.dump_ms},
                               {"landing", PlaceName(entry.place)},
                               {"store_ms", entry.commit.store_ms},
                               {"new_bytes", stored}});
  return Pause();
}

// The controller has declared it failed, because it heard nothing from here for too long, or because this node was out of service; that
// stands, and nobody restores from a failed one. The claim makes sure of it before a frozen pod goes on.
Result<Executor::Pause> Executor::GivenUp(JournalEntry& entry, const api::Checkpoint& seen) {
  const api::Condition* ready = seen.Ready();
  const std::string reason = ready != nullptr && !ready->reason.empty() ? ready->reason : api::reason::kDeadline;
  const std::string why = "it was declared failed before it could be reported" + (ready != nullptr ? ": " + ready->message : std::string());
  return entry.final ? TryReclaim(entry, reason, why) : CheckpointDeleted(entry);
}

// Committed, never reported as Ready, so never claimed; and nobody can claim it any more, because the object is gone, or Failed. Its
// manifest goes too.
Result<Executor::Pause> Executor::CheckpointDeleted(JournalEntry& entry) {
  HF_RETURN_IF_ERROR(Forget(entry));
  return Fail(entry, api::reason::kDumpFailed, "the Checkpoint was deleted or given up before it was reported");
}

// Ready. A pod that was not frozen is done; a frozen one waits for its end, or for being reclaimed.
Result<Executor::Pause> Executor::StayFrozen(JournalEntry& entry) {
  if (!entry.final) {
    HF_RETURN_IF_ERROR(Enter(entry, Step::kThawed));
    return Pause();
  }
  Result<api::Checkpoint> cp = cluster_.CachedCheckpoint(entry.uid);
  if (cp.ok() && cp->status.claim && cp->status.claim->pod_uid == entry.pod_uid) {
    HF_RETURN_IF_ERROR(Thaw(layout_, node_, entry));
    entry.reclaimed = true;
    HF_RETURN_IF_ERROR(Enter(entry, Step::kThawed));
    cluster_.PodEvent(false, entry.ns, entry.pod, entry.pod_uid, "Thawed",
                      "the pod was not evicted after its checkpoint " + entry.name + ", so it goes on here");
    return Pause();
  }
  std::vector<MendedFile> mended;  // holdfast-runc ends the pod by its Intents
  HF_RETURN_IF_ERROR(MendIntentsOf(layout_, entry, &mended));
  TellMended(mended);
  const Pause later(options_.kept_frozen_every);
  if (cp.ok() && cp->status.claim && !entry.claimed) {
    entry.claimed = true;  // by another pod: should the object vanish, this still forbids to thaw
    HF_RETURN_IF_ERROR(journal_.Write(entry));
  }
  if (cp.status().code() == Code::kNotFound && !entry.claimed) {
    Result<api::Checkpoint> live = cluster_.GetCheckpoint(entry.ns, entry.name);
    if (live.status().code() == Code::kNotFound || (live.ok() && live->meta.uid != entry.uid)) {
      HF_RETURN_IF_ERROR(Thaw(layout_, node_, entry));
      HF_RETURN_IF_ERROR(Enter(entry, Step::kThawed));
      cluster_.PodEvent(true, entry.ns, entry.pod, entry.pod_uid, "Thawed",
                        "checkpoint " + entry.name + " was deleted while the pod was kept frozen for it, so the pod goes on here");
      return Pause();
    }
  }
  for (const JournalContainer& c : entry.containers) {
    HF_ASSIGN_OR_RETURN(ContainerState state, node_.StateOf(c.id));
    if (state == ContainerState::kRunning || state == ContainerState::kPaused) return later;
  }
  // The containers are gone. While the kubelet may create them again, the pod's file must refuse it.
  Result<kube::Pod> pod = cluster_.CachedPod(entry.ns, entry.pod);
  if (pod.status().code() == Code::kNotFound || (pod.ok() && pod->meta.uid != entry.pod_uid)) pod = cluster_.GetPod(entry.ns, entry.pod);
  const bool gone = pod.status().code() == Code::kNotFound || (pod.ok() && pod->meta.uid != entry.pod_uid);
  const bool ended = pod.ok() && (pod->meta.terminating() || pod->phase == "Succeeded" || pod->phase == "Failed");
  if (!gone && !ended) return later;
  HF_RETURN_IF_ERROR(RemoveIntents(layout_, entry));
  HF_RETURN_IF_ERROR(Enter(entry, Step::kThawed));
  return Pause();
}

// Whether its dump is complete, and nothing of its pod is left that could go on.
bool Executor::IsAllThereIs(const JournalEntry& entry) {
  if (!entry.final || entry.reclaimed || entry.step < Step::kDumped || entry.step > Step::kCommitAsked) return false;
  if (Cancelled(entry) || !LostWithTheNode(entry).empty()) return false;
  return std::all_of(entry.containers.begin(), entry.containers.end(), [this](const JournalContainer& c) {
    const Result<ContainerState> state = node_.StateOf(c.id);
    return state.ok() && (*state == ContainerState::kGone || *state == ContainerState::kStopped);
  });
}

// Whatever ended it meanwhile (kubectl delete, a probe, an eviction that was let go): what was dumped is kept, and stored without a
// deadline.
Result<Executor::Pause> Executor::KeepAllThereIs(JournalEntry& entry) {
  const std::string why = "its processes have ended, so what was dumped of them is kept until it is stored: " + entry.failure_message;
  entry.failure_reason.clear();
  entry.failure_message.clear();
  const bool first = !std::exchange(entry.ended, true);
  HF_RETURN_IF_ERROR(journal_.Write(entry));
  LogWarning("kept", {{"checkpoint", entry.ns + "/" + entry.name}, {"uid", entry.uid}, {"why", why}});
  if (first) cluster_.PodEvent(true, entry.ns, entry.pod, entry.pod_uid, "StillStoring", why);
  PatchPhase(entry, api::Phase::kStoring, why);
  return Pause(kKeptRetry);
}

Result<Executor::Pause> Executor::Undo(JournalEntry& entry) {
  if (!entry.stock) {
    if (node_.DumpRunning(entry.uid, entry.pod_uid)) HF_RETURN_IF_ERROR(node_.KillDump(entry.uid));
    // Looked at after the thaw: who runs on then is told to end by signals that reach it.
    HF_RETURN_IF_ERROR(ThawContainers(layout_, node_, entry));
    if (IsAllThereIs(entry)) return KeepAllThereIs(entry);
    HF_RETURN_IF_ERROR(RemoveIntents(layout_, entry));
  }
  DumpIsOver(entry);
  HF_RETURN_IF_ERROR(Enter(entry, Step::kThawed));
  return Pause();
}

Result<Executor::Pause> Executor::ReportFailed(JournalEntry& entry) {
  Result<api::Checkpoint> cp = cluster_.CachedCheckpoint(entry.uid);
  if (!cp.ok()) cp = cluster_.GetCheckpoint(entry.ns, entry.name);
  if (!cp.ok() && cp.status().code() != Code::kNotFound) return cp.status();
  if (cp.ok()) {
    Json patch = api::PhasePatch(*cp, api::Phase::kFailed, entry.failure_reason, entry.failure_message, clock_.Wall());
    SetStarted(patch, *cp, entry);
    patch["status"]["completedAt"] = FormatTime(clock_.Wall());
    Status patched = cluster_.PatchStatus(entry.ns, entry.name, entry.uid, patch);
    if (!patched.ok() && !NoSuchCheckpoint(patched)) return patched;
    cluster_.CheckpointEvent(true, entry.ns, entry.name, entry.uid, entry.failure_reason, entry.failure_message);
  }
  entry.reported = true;
  HF_RETURN_IF_ERROR(journal_.Write(entry));
  cluster_.PodEvent(
      true, entry.ns, entry.pod, entry.pod_uid, entry.failure_reason,
      (entry.on_stop ? "stopped, and its state is not kept: " : "not checkpointed, the pod goes on: ") + entry.failure_message);
  metrics_.Checkpointed(entry.failure_reason);
  return Pause();
}

Result<Executor::Pause> Executor::Finish(JournalEntry& entry) {
  if (entry.failed()) {
    // What the session holds is garbage already; this only lets the store know sooner.
    Result<storage::SessionState> state = StoreOf(entry).StateOf(entry.uid);
    if (state.ok() && *state == storage::SessionState::kOpen) {
      Status aborted = StoreOf(entry).Abort(entry.uid, entry.ns);
      if (!aborted.ok()) LogWarning("cannot abort a session", {{"uid", entry.uid}, {"error", aborted.message()}});
    }
  }
  if (entry.direct()) node_.DumpRunning(entry.uid, entry.pod_uid);  // an ended child of ours that nobody asks for would stay a zombie
  const bool restorable = !entry.failed() && !entry.stock && !entry.claimed && !entry.reclaimed;
  const std::string landing = LandingOf(entry);
  if (options_.keep && restorable && Exists(landing) && !Exists(journal_.SentLog(entry.uid))) {
    Result<std::string> manifest = journal_.ReadManifest(entry.uid);
    if (manifest.ok()) options_.keep(landing, *manifest, entry.store);
  }
  HF_RETURN_IF_ERROR(layout_.RemoveLanding(entry.uid));
  if (entry.unheard) {
    const std::optional<std::string> other = CheckpointOf(entry.pod_uid);
    if (other && *other != entry.uid) return Pause(std::chrono::seconds(1));  // the archives may be its
    HF_ASSIGN_OR_RETURN(int removed, RemoveKubeletArchives(layout_, entry, NowMs(), AheadMs()));
    const int64_t last_ms = entry.deadline_unix_ms + std::chrono::duration_cast<std::chrono::milliseconds>(options_.dump_grace).count();
    if (removed == 0 && NowMs() < last_ms + kArchivePatienceMs) {
      ReleasePod(entry.pod_uid, entry.uid);
      return Pause(std::chrono::seconds(1));
    }
  }
  for (const std::string& file : {layout_.DumpLock(entry.uid), layout_.DumpLog(entry.uid)}) std::remove(file.c_str());
  HF_RETURN_IF_ERROR(journal_.Remove(entry.uid));
  entry.step = Step::kFinished;
  ReleasePod(entry.pod_uid, entry.uid);
  return Pause();
}

}  // namespace holdfast::agent
