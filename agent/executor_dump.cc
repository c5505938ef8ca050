// The executor's first half: from the intent to a complete landing folder.
#include <unistd.h>

#include "agent/archive.h"
#include "agent/executor.h"
#include "agent/preflight.h"
#include "base/fault_point.h"
#include "base/file.h"
#include "base/log.h"

namespace holdfast::agent {

using std::chrono::milliseconds;

namespace {

constexpr Duration kLookForResult = milliseconds(100), kAnswerPatience = std::chrono::seconds(5);
constexpr Duration kNothingFrozen = std::chrono::seconds(3);  // this long without a paused container: no dump is running behind our back

}  // namespace

Result<Executor::Pause> Executor::StartDump(JournalEntry& entry, std::stop_token stop) {
  // Nothing is frozen for a store that could not take it.
  Status store = store_.OpenSession(entry.uid, entry.ns).status();
  if (store.code() == Code::kResourceExhausted) return Fail(entry, api::reason::kStoreFull, store.message());
  if (Expired(entry)) {
    return store.ok() ? Fail(entry, api::reason::kDeadline, "the deadline passed before the dump began")
                      : Fail(entry, api::reason::kStoreUnavailable,
                             "the store did not answer until the deadline, nothing was frozen: " + store.message());
  }
  if (!store.ok()) {
    PatchPhase(entry, api::Phase::kAssigned, "waiting for the store: " + store.message());
    return Pause(std::chrono::seconds(1));
  }
  HF_RETURN_IF_ERROR(RemoveAll(layout_.Landing(entry.uid)));
  if (entry.stock) {
    HF_RETURN_IF_ERROR(MakeDirs(layout_.Landing(entry.uid)));
  } else {
    HF_RETURN_IF_ERROR(WriteIntents(layout_, entry));
  }
  HF_FAULT_POINT("agent.intent_written");
  HF_RETURN_IF_ERROR(Enter(entry, Step::kDumping));
  if (!entry.final) {
    PatchPhase(entry, api::Phase::kFreezing, "asking the kubelet for a checkpoint");
    return DumpThroughKubelet(entry, stop);
  }
  Status started = node_.StartDump(entry.uid, layout_.Landing(entry.uid));
  if (!started.ok()) return Fail(entry, api::reason::kDumpFailed, "cannot start the dump: " + started.message());
  HF_FAULT_POINT("agent.frozen");
  PatchPhase(entry, api::Phase::kDumping, "the pod is frozen and being dumped");  // while CRIU works
  return Pause();
}

// Blocks until the dump is over, one way or the other.
Result<Executor::Pause> Executor::WaitForDump(JournalEntry& entry, std::stop_token stop) {
  const std::string landing = layout_.Landing(entry.uid);
  const int64_t give_up_ms = entry.deadline_unix_ms + std::chrono::duration_cast<milliseconds>(options_.dump_grace).count();
  MonoTime last_paused = clock_.Mono();
  while (!Exists(landing + "/result.json")) {
    const bool running = node_.DumpRunning(entry.uid, entry.pod_uid);
    if (Exists(landing + "/result.json")) break;  // it ended between the two looks
    if (!running) {
      if (entry.final) return DumpLost(entry);
      // Through the kubelet, and the call was lost with the agent's last process: holdfast-runc may still be at it.
      for (const JournalContainer& c : entry.containers) {
        Result<ContainerState> state = node_.StateOf(c.id);
        if (state.ok() && *state == ContainerState::kPaused) last_paused = clock_.Mono();
      }
      if (entry.stock || clock_.Mono() - last_paused >= kNothingFrozen) return DumpLost(entry);
    }
    if (NowMs() >= give_up_ms) {
      Status killed = node_.KillDump(entry.uid);
      if (!killed.ok()) LogError("cannot kill a dump past its deadline", {{"uid", entry.uid}, {"error", killed.message()}});
      return Fail(entry, api::reason::kDeadline, "the dump was not complete by the deadline and was stopped");
    }
    if (!clock_.Sleep(options_.poll, stop)) return Status(Code::kCancelled, "stopping while a dump runs");
  }
  return TakeDumpResult(entry);
}

// No result and no dump: the agent, the dump or the node stopped in the middle. Once more, then no more.
Result<Executor::Pause> Executor::DumpLost(JournalEntry& entry) {
  const std::string said = node_.DumpOutput(entry.uid);
  if (entry.attempts >= 2 || Expired(entry)) {
    return Fail(entry, api::reason::kDumpFailed,
                said.empty() ? "the agent stopped during the dump" : "the dump ended without a result: " + said);
  }
  if (!entry.stock) HF_RETURN_IF_ERROR(Thaw(layout_, node_, entry));
  entry.attempts += 1;
  return Enter(entry, Step::kIntent).ok() ? Result<Pause>(Pause()) : Result<Pause>(Status(Code::kUnavailable, "cannot write the journal"));
}

Result<Executor::Pause> Executor::TakeDumpResult(JournalEntry& entry) {
  const runtime::DumpResult result = ResultOf(entry);
  if (!result.ok) {
    return Fail(entry, result.reason.empty() ? api::reason::kDumpFailed : result.reason, result.message);
  }
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
  std::jthread watching([&](std::stop_token over) {
    while (!Exists(layout_.Landing(entry.uid) + "/result.json")) {
      if (!clock_.Sleep(kLookForResult, over)) return;
    }
    if (clock_.Sleep(kAnswerPatience, over)) enough.request_stop();
  });
  const Duration left = milliseconds(std::max<int64_t>(entry.deadline_unix_ms - NowMs(), 1000));
  return kubelet_.Checkpoint(entry.ns, entry.pod, container, left + options_.dump_grace, enough.get_token());
}

Result<Executor::Pause> Executor::DumpThroughKubelet(JournalEntry& entry, std::stop_token stop) {
  const std::string landing = layout_.Landing(entry.uid);
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
  const std::string landing = layout_.Landing(entry.uid);
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
