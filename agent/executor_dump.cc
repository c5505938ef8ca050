// The executor's first half: from the intent to a complete landing folder.
#include <unistd.h>

#include <algorithm>

#include "agent/archive.h"
#include "agent/carry_over.h"
#include "agent/caveats.h"
#include "agent/executor.h"
#include "agent/preflight.h"
#include "agent/store_room.h"
#include "base/fault_point.h"
#include "base/file.h"
#include "base/log.h"
#include "base/thread.h"

namespace holdfast::agent {

using std::chrono::milliseconds;

namespace {

constexpr int kMostDumps = 3;
constexpr Duration kLookForResult = milliseconds(100), kAnswerPatience = std::chrono::seconds(5);
constexpr Duration kUntilHeard = std::chrono::seconds(1);
constexpr Duration kNothingFrozen = std::chrono::seconds(3);  // this long without a paused container: no dump is running behind our back

}  // namespace

// What its checkpoints are kept together by: the owner, with all of its pods.
std::string Executor::WorkloadOf(const JournalEntry& entry) {
  Result<api::Checkpoint> cp = cluster_.CachedCheckpoint(entry.uid);
  if (!cp.ok() || cp->status.owner.name.empty()) return "Pod/" + entry.pod;
  return cp->status.owner.kind.str() + "/" + cp->status.owner.name.str();
}

Result<Executor::Pause> Executor::StartDump(JournalEntry& entry, std::stop_token stop) {
  // Nothing is frozen for a store that could not take it.
  Result<std::string> placed = stores_.Open(entry.uid, entry.ns, WorkloadOf(entry), stop);
  const Status& store = placed.status();
  if (store.code() == Code::kResourceExhausted) return Fail(entry, api::reason::kStoreFull, store.message());
  if (Expired(entry)) {
    return store.ok() ? Fail(entry, api::reason::kDeadline, "the deadline passed before the dump began")
                      : Fail(entry, api::reason::kStoreUnavailable,
                             "the store did not answer until the deadline, nothing was frozen: " + store.message());
  }
  // Its signal is held back: it does not wait for a store.
  if (!store.ok() && entry.on_stop) {
    return Fail(entry, api::reason::kStoreUnavailable, "the store did not answer, nothing was frozen: " + store.message());
  }
  if (!store.ok()) {
    PatchPhase(entry, api::Phase::kAssigned, "waiting for the store: " + store.message());
    return Pause(std::chrono::seconds(1));
  }
  entry.store = *placed;
  HF_RETURN_IF_ERROR(layout_.RemoveLanding(entry.uid));
  HF_RETURN_IF_ERROR(journal_.RemoveSentLog(entry.uid));
  HF_RETURN_IF_ERROR(TakeInWhatRunsNow(entry));
  uint64_t estimate_bytes = 0;
  if (Status room = ChoosePlace(entry, &estimate_bytes); !room.ok()) {
    if (room.code() != Code::kUnavailable || entry.on_stop) {
      return Fail(entry, api::reason::kNodeFull, "there is no room for its dump, nothing was frozen: " + room.message());
    }
    PatchPhase(entry, api::Phase::kAssigned, "waiting for room on the node: " + room.message());
    return Pause(std::chrono::seconds(1));
  }
  if (Status room = FindRoomInStore(entry, estimate_bytes, stop); !room.ok()) {
    DumpIsOver(entry);
    if (room.code() == Code::kResourceExhausted || entry.on_stop)
      return Fail(entry, api::reason::kStoreFull, "nothing was frozen: " + room.message());
    PatchPhase(entry, api::Phase::kAssigned, "waiting for the store: " + room.message());
    return Pause(std::chrono::seconds(1));
  }
  if (entry.direct() && entry.final && !entry.in_cut) {
    if (Status said = SayDumping(entry); !said.ok()) {
      DumpIsOver(entry);
      if (said.code() == Code::kFailedPrecondition) return Fail(entry, api::reason::kDeadline, said.message());
      if (entry.on_stop) return Fail(entry, api::reason::kDumpFailed, "nothing was frozen: " + said.message());
      return Pause(kUntilHeard);
    }
  }
  if (!entry.on_stop) TellCaveats(entry, estimate_bytes);
  if (entry.stock) {
    HF_RETURN_IF_ERROR(MakeDirs(LandingOf(entry)));
  } else {
    HF_RETURN_IF_ERROR(WriteIntents(layout_, entry));
    if (entry.on_stop && AnySignalled(layout_, entry)) {
      HF_RETURN_IF_ERROR(RemoveIntents(layout_, entry));
      return Fail(entry, api::reason::kPodGone, "the pod was told to quit before its dump could begin");
    }
  }
  HF_FAULT_POINT("agent.intent_written");
  HF_RETURN_IF_ERROR(Enter(entry, Step::kDumping));
  if (!entry.direct()) {
    PatchPhase(entry, api::Phase::kFreezing, "asking the kubelet for a checkpoint");
    return DumpThroughKubelet(entry, stop);
  }
  Status started = node_.StartDump(entry.uid, LandingOf(entry));
  if (!started.ok()) return Fail(entry, api::reason::kDumpFailed, "cannot start the dump: " + started.message());
  HF_FAULT_POINT("agent.frozen");
  if (entry.in_cut || entry.final) return Pause();
  PatchPhase(entry, api::Phase::kDumping, "the pod is frozen and being dumped");  // while CRIU works
  return Pause();
}

// Before anything is frozen: the API server takes no such word of a Checkpoint that was given up meanwhile, whose pod may be on its way out
// already. kFailedPrecondition: that is so.
Status Executor::SayDumping(const JournalEntry& entry) {
  Status given_up(Code::kFailedPrecondition, "it was given up before its pod was frozen");
  auto gone = [&](const Result<api::Checkpoint>& cp) {
    if (!cp.ok()) return cp.status().code() == Code::kNotFound;
    return cp->meta.uid != entry.uid || cp->meta.terminating() || cp->done();
  };
  Result<api::Checkpoint> cp = cluster_.CachedCheckpoint(entry.uid);
  if (!cp.ok()) cp = cluster_.GetCheckpoint(entry.ns, entry.name);
  if (gone(cp)) return given_up;
  if (!cp.ok()) return cp.status();
  Json patch = api::PhasePatch(*cp, api::Phase::kDumping, api::reason::kInProgress, "the pod is frozen and being dumped", clock_.Wall());
  SetStarted(patch, *cp, entry);
  Status said = cluster_.PatchStatus(entry.ns, entry.name, entry.uid, patch);
  if (said.code() == Code::kNotFound || said.code() == Code::kConflict) return given_up;
  if (said.code() != Code::kInvalidArgument) return said;
  cp = cluster_.GetCheckpoint(entry.ns, entry.name);
  if (gone(cp)) return given_up;
  if (!cp.ok()) return cp.status();
  LogError("the API server refuses a word of progress", {{"uid", entry.uid}, {"error", said.message()}});
  return Status::Ok();
}

// Before the pod is frozen. Once of a workload: what the last checkpoint of it says is not told again.
void Executor::TellCaveats(const JournalEntry& entry, uint64_t estimate_bytes) {
  const Result<kube::Pod> pod = cluster_.CachedPod(entry.ns, entry.pod);
  if (!pod.ok() || pod->meta.uid != entry.pod_uid) return;
  const std::optional<api::Checkpoint> last = LastOf(entry);
  const api::Checkpoint* before = last ? &*last : nullptr;
  for (const Caveat& caveat : CaveatsOf(*pod, entry.containers, EstimateFreeze(estimate_bytes, entry.place, before))) {
    if (!ToldBefore(before, caveat)) cluster_.PodEvent(true, entry.ns, entry.pod, entry.pod_uid, caveat.reason, caveat.message);
  }
}

// Some of its containers had not run yet when it was looked at; from here on none is created in it.
Status Executor::TakeInWhatRunsNow(JournalEntry& entry) {
  if (entry.waiting.empty()) return Status::Ok();
  HF_RETURN_IF_ERROR(HoldPod(layout_, entry));
  HF_ASSIGN_OR_RETURN(const std::vector<NodeContainer> all, node_.Containers());
  std::erase_if(entry.waiting, [&](JournalContainer& c) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const NodeContainer& n) {
      if (n.pod_uid != entry.pod_uid || n.container != c.name) return false;
      const Result<ContainerState> state = node_.StateOf(n.id);
      return state.ok() && *state == ContainerState::kRunning;
    });
    if (found == all.end()) return false;
    c.id = found->id;
    entry.containers.push_back(std::move(c));
    return true;
  });
  return Status::Ok();
}

// Memory when what the dump may take fits there; a second try goes to disk. Until it is written down, with the next step, a new agent
// chooses anew, and removes what it finds in either place. An error: there is no room in either (DiskRoom::Reserve).
Status Executor::ChoosePlace(JournalEntry& entry, uint64_t* estimate_bytes) {
  entry.place = Place::kDisk;
  entry.reserved_bytes = 0;
  DumpIsOver(entry);
  const bool memory = options_.memory != nullptr && options_.memory->enabled() && !entry.stock && entry.attempts == 1;
  if (!memory && options_.disk == nullptr) return Status::Ok();
  std::vector<std::string> ids, folders;
  for (const JournalContainer& c : entry.containers) ids.push_back(c.id);
  for (const std::string& volume : entry.volumes) folders.push_back(layout_.EmptyDir(entry.pod_uid, volume));
  Result<uint64_t> bytes = node_.Estimate(ids, folders);
  if (!bytes.ok()) LogInfo("lands on disk: how much it will be is not known", {{"uid", entry.uid}, {"why", bytes.status().message()}});
  *estimate_bytes = bytes.value_or(0);
  if (memory && bytes.ok() && options_.memory->Reserve(entry.uid, *bytes, &entry.reserved_bytes)) {
    entry.place = Place::kMemory;
    return Status::Ok();
  }
  if (options_.disk == nullptr) return Status::Ok();
  HF_RETURN_IF_ERROR(options_.disk->Reserve(LandingOf(entry), bytes.value_or(0)));
  entry.reserved_bytes = bytes.value_or(0);
  return Status::Ok();
}

// In the store that has its session, or in another one. kResourceExhausted: none has so much.
Status Executor::FindRoomInStore(JournalEntry& entry, uint64_t estimate_bytes, std::stop_token stop) {
  const std::optional<api::Checkpoint> last = LastOf(entry);
  const uint64_t takes = WillTake(estimate_bytes, entry.final, last ? &*last : nullptr);
  if (stores_.HasRoom(entry.store, takes, stop).ok()) return Status::Ok();
  Result<std::string> another = stores_.Open(entry.uid, entry.ns, WorkloadOf(entry), stop, takes);
  if (another.ok()) entry.store = *another;
  return another.status();
}

// What it has written is there for all to see; what it has not, it will not write.
void Executor::DumpIsOver(const JournalEntry& entry) {
  if (options_.memory != nullptr) options_.memory->Release(entry.uid);
  if (options_.disk != nullptr) options_.disk->Release(layout_.Landing(entry.uid, Place::kDisk));
}

// Blocks until the dump is over, one way or the other.
Result<Executor::Pause> Executor::WaitForDump(JournalEntry& entry, std::stop_token stop) {
  const std::string landing = LandingOf(entry);
  // By both clocks: the node's own may be set back meanwhile.
  const int64_t grace_ms = std::chrono::duration_cast<milliseconds>(options_.dump_grace).count();
  MonoTime last_paused = clock_.Mono(), tend_barrier = last_paused;
  while (!Exists(landing + "/result.json")) {
    const bool running = node_.DumpRunning(entry.uid, entry.pod_uid);
    if (Exists(landing + "/result.json")) break;  // it ended between the two looks
    if (!running) {
      if (entry.direct()) return DumpLost(entry);
      // Through the kubelet, and the call was lost with the agent's last process: holdfast-runc may still be at it.
      for (const JournalContainer& c : entry.containers) {
        Result<ContainerState> state = node_.StateOf(c.id);
        if (state.ok() && *state == ContainerState::kPaused) last_paused = clock_.Mono();
      }
      if (entry.stock || clock_.Mono() - last_paused >= kNothingFrozen) return DumpLost(entry);
    }
    if (NodeMs() >= entry.dump_by_unix_ms + grace_ms || NowMs() >= entry.deadline_unix_ms + grace_ms) {
      Status killed = node_.KillDump(entry.uid);
      if (!killed.ok()) LogError("cannot kill a dump past its deadline", {{"uid", entry.uid}, {"error", killed.message()}});
      return Fail(entry, api::reason::kDeadline, "the dump was not complete by the deadline and was stopped");
    }
    if (entry.in_cut && clock_.Mono() >= tend_barrier) {
      Status stands = TendBarrier(entry);
      if (!stands.ok()) return Fail(entry, api::reason::kGroupMemberFailed, stands.message());
      tend_barrier = clock_.Mono() + options_.barrier_every;
    }
    if (!clock_.Sleep(options_.poll, stop)) return Status(Code::kCancelled, "stopping while a dump runs");
  }
  return TakeDumpResult(entry);
}

// Says that the pod stands still, or is dumped and does so still, and passes the controller's word on. An error: the cut has failed, and
// the pod is to be thawed. Without an API server there is neither; then holdfast-runc thaws the pod by itself (kBarrierLimit, kHoldLimit).
Status Executor::TendBarrier(const JournalEntry& entry) {
  const std::string landing = LandingOf(entry) + "/";
  Result<api::Checkpoint> cp = cluster_.CachedCheckpoint(entry.uid);
  const bool deleted = cp.status().code() == Code::kNotFound || (cp.ok() && cp->meta.terminating());
  const bool frozen = Exists(landing + runtime::kFrozenFile) && !Exists(landing + runtime::kGoFile);
  const bool dumped = Exists(landing + runtime::kDumpedFile) && !Exists(landing + runtime::kThawFile);
  // Once it was told to go on, and is not dumped yet, CRIU may be at work, and is not killed for this.
  if (frozen || dumped || (cp.ok() && cp->status.all_frozen_at.empty())) {
    if (deleted)
      return Status(Code::kCancelled,
                    std::string("the Checkpoint was deleted before all members of its group were ") + (dumped ? "dumped" : "frozen"));
    if (cp.ok() && cp->status.phase == api::Phase::kFailed)
      return Status(Code::kCancelled, cp->Ready() != nullptr ? cp->Ready()->message : "it failed");
  }
  if (!(frozen || dumped) || !cp.ok()) return Status::Ok();
  if (!(dumped ? cp->status.all_dumped_at : cp->status.all_frozen_at).empty()) {
    Status told = WriteFileAtomically(landing + (dumped ? runtime::kThawFile : runtime::kGoFile), "{}");
    if (!told.ok()) return told.With("the word that all members are as far");
    if (frozen) PatchPhase(entry, api::Phase::kDumping, "all members of its group are frozen; it is being dumped");
    return Status::Ok();
  }
  if (!(dumped ? cp->status.dumped_at : cp->status.frozen_at).empty()) return Status::Ok();
  if (frozen) HF_FAULT_POINT("agent.at_barrier");
  if (dumped) HF_FAULT_POINT("agent.dumped_at_barrier");
  Json patch = api::PhasePatch(
      *cp, dumped ? api::Phase::kDumping : api::Phase::kFreezing, api::reason::kInProgress,
      dumped ? "dumped, and stands still until the rest of its group is" : "frozen, and waits for the rest of its group", clock_.Wall());
  SetStarted(patch, *cp, entry);
  patch["status"]["barrier"][dumped ? "dumpedAt" : "frozenAt"] = FormatTime(clock_.Wall());
  Status patched = cluster_.PatchStatus(entry.ns, entry.name, entry.uid, patch);
  if (!patched.ok())
    LogWarning("cannot report a pod at its group's barrier", {{"checkpoint", entry.ns + "/" + entry.name}, {"error", patched.message()}});
  return Status::Ok();
}

// No result and no dump: the agent, the dump or the node stopped in the middle. Once more, then no more.
Result<Executor::Pause> Executor::DumpLost(JournalEntry& entry) {
  const std::string said = node_.DumpOutput(entry.uid);
  // What was frozen with the others is thawed now: a second freeze would be of another moment.
  if (entry.attempts >= 2 || entry.in_cut || Expired(entry)) {
    return Fail(entry, api::reason::kDumpFailed,
                said.empty() ? "the agent stopped during the dump" : "the dump ended without a result: " + said);
  }
  return DumpAgain(entry);
}

Result<Executor::Pause> Executor::DumpAgain(JournalEntry& entry) {
  if (!entry.stock) HF_RETURN_IF_ERROR(Thaw(layout_, node_, entry));
  entry.attempts += 1;
  return Enter(entry, Step::kIntent).ok() ? Result<Pause>(Pause()) : Result<Pause>(Status(Code::kUnavailable, "cannot write the journal"));
}

Result<Executor::Pause> Executor::TakeDumpResult(JournalEntry& entry) {
  const runtime::DumpResult result = ResultOf(entry);
  DumpIsOver(entry);
  // It took more than was estimated. What waits for its signal has got it by now, and what was frozen with others goes on with them.
  if (result.no_space && entry.place == Place::kMemory && !entry.on_stop && !entry.in_cut && !Expired(entry) &&
      !AnySignalled(layout_, entry)) {
    LogWarning("a dump found no room in memory; it is made once more, on disk", {{"uid", entry.uid}, {"reserved", entry.reserved_bytes}});
    return DumpAgain(entry);
  }
  if (!result.ok) {
    return Fail(entry, result.reason.empty() ? api::reason::kDumpFailed : result.reason, result.message);
  }
  Status carried = CarryOver(layout_, entry);
  if (carried.code() == Code::kFailedPrecondition && entry.attempts < kMostDumps) return DumpAgain(entry);
  if (!carried.ok()) return Fail(entry, api::reason::kDumpFailed, carried.message());
  metrics_.Landed(entry.place);
  metrics_.Dumped(static_cast<double>(result.frozen_ms) / 1e3, static_cast<double>(result.dump_ms) / 1e3,
                  static_cast<double>(result.memory_bytes + result.files_bytes));
  HF_FAULT_POINT("agent.dumped");
  HF_RETURN_IF_ERROR(Enter(entry, Step::kDumped));
  return Pause();
}

Result<Executor::Pause> Executor::AfterDump(JournalEntry& entry) {
  if (!entry.final) {
    if (!entry.stock) HF_RETURN_IF_ERROR(Thaw(layout_, node_, entry));  // holdfast-runc did; this also takes the intents away
    // The kubelet's URL names a pod, not its uid: what was dumped may be its successor.
    Result<kube::Pod> pod = cluster_.GetPod(entry.ns, entry.pod);
    if (!pod.ok() && pod.status().code() != Code::kNotFound) return pod.status();
    if (pod.ok()) {
      std::string replaced = Replaced(entry, *pod);
      if (!replaced.empty()) return Fail(entry, api::reason::kPodReplaced, replaced);
    }
  }
  HF_RETURN_IF_ERROR(Enter(entry, Step::kStoring));
  return Pause();
}

// The path of the kubelet's archive. Once holdfast-runc has said what it did, an answer that does not come is not waited for.
Result<std::string> Executor::AskKubelet(const JournalEntry& entry, const std::string& container, std::stop_token stop) {
  std::stop_source enough;
  std::stop_callback forward(stop, [&enough] { enough.request_stop(); });
  Thread watching([&](std::stop_token over) {
    while (!Exists(LandingOf(entry) + "/result.json")) {
      if (!clock_.Sleep(kLookForResult, over)) return;
    }
    if (clock_.Sleep(kAnswerPatience, over)) enough.request_stop();
  });
  const Duration left = milliseconds(std::max<int64_t>(entry.deadline_unix_ms - NowMs(), 1000));
  return kubelet_.Checkpoint(entry.ns, entry.pod, container, left + options_.dump_grace, enough.get_token());
}

Result<Executor::Pause> Executor::DumpThroughKubelet(JournalEntry& entry, std::stop_token stop) {
  const std::string landing = LandingOf(entry);
  const int64_t started_unix_ms = NowMs();
  std::vector<std::string> archives;
  entry.unheard = true;
  HF_RETURN_IF_ERROR(journal_.Write(entry));
  auto take_away = [&](bool heard) {
    for (const std::string& path : archives) unlink(path.c_str());
    entry.unheard = !heard;
  };
  for (const JournalContainer& c : entry.containers) {
    Result<std::string> archive = AskKubelet(entry, c.name, stop);
    if (stop.stop_requested()) return Status(Code::kCancelled, "stopping while the kubelet makes a checkpoint");
    if (!archive.ok()) {
      const Code code = archive.status().code();
      take_away(code != Code::kUnavailable && code != Code::kDeadlineExceeded && code != Code::kCancelled);
      // holdfast-runc says better what failed than the kubelet, which only passes an exit status on.
      if (!entry.stock && Exists(landing + "/result.json")) return TakeDumpResult(entry);
      return Fail(entry, code == Code::kUnsupported ? api::reason::kUnsupported : api::reason::kDumpFailed,
                  "container " + c.name + ": " + archive.status().message());
    }
    archives.push_back(*archive);
    // The first call makes holdfast-runc dump the whole pod; more calls would only make containerd walk root filesystems.
    if (!entry.stock && Exists(landing + "/result.json")) break;
  }
  if (entry.stock) {
    Status taken = TakeStockArchive(entry, archives, started_unix_ms);
    take_away(true);
    if (!taken.ok()) return Fail(entry, api::reason::kDumpFailed, "the kubelet's archive: " + taken.message());
  } else {
    take_away(true);
    if (!Exists(landing + "/result.json")) {
      return Fail(
          entry, api::reason::kDumpFailed,
          "the kubelet made an archive, but holdfast-runc was not asked for the dump: is the node's runtime entry \"holdfast\" in effect?");
    }
  }
  return TakeDumpResult(entry);
}

Status Executor::TakeStockArchive(const JournalEntry& entry, const std::vector<std::string>& archives, int64_t started_unix_ms) {
  const std::string landing = LandingOf(entry);
  runtime::DumpResult result;
  for (size_t i = 0; i < archives.size(); ++i) {
    HF_ASSIGN_OR_RETURN(ArchiveSizes sizes, ExtractKubeletArchive(archives[i], landing + "/" + entry.containers[i].name));
    result.memory_bytes += sizes.memory_bytes;
    result.files_bytes += sizes.files_bytes;
  }
  result.ok = true;
  result.reason = api::reason::kCompleted;
  result.frozen_at_unix_ms = started_unix_ms;
  result.dump_ms = NowMs() - started_unix_ms;  // containerd does not tell CRIU's part of it
  result.frozen_ms = result.dump_ms;
  return WriteFileDurably(landing + "/result.json", DumpJson(result.ToJson()));
}

}  // namespace holdfast::agent
