// The restorer's answers to holdfast-runc, its reports, and what it removes.
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>

#include <cstdio>
#include <filesystem>

#include "agent/boot.h"
#include "agent/restorer.h"
#include "base/fault_point.h"
#include "base/file.h"
#include "base/log.h"

namespace holdfast::agent {

using Phase = RestoreState::Phase;

namespace {

runtime::CreateAnswer Say(const std::string& action, const std::string& reason) {
  runtime::CreateAnswer answer;
  answer.action = action;
  answer.reason = reason;
  return answer;
}

// What would be restored in it would end with it a moment later, and nobody could go on from it any more.
bool IsOver(const kube::Pod& pod) { return pod.meta.terminating() || pod.phase == "Succeeded" || pod.phase == "Failed"; }

std::string Ago(const std::string& then, WallTime now) {
  std::optional<WallTime> at = ParseTime(then);
  if (!at || *at > now) return "";
  return ", " + std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now - *at).count()) + " s ago";
}

}  // namespace

runtime::CreateAnswer Restorer::Create(const runtime::CreateQuestion& question, std::stop_token stop) {
  const MonoTime until = clock_.Mono() + options_.answer_within;
  if (!IsSafeName(question.pod_uid) || !IsSafeName(question.container) || !IsSafeName(question.container_id)) {
    return Say("refuse", "the question names no container");
  }
  // The kubelet may know the pod before this node's watch does; and a new process before its first list.
  Result<kube::Pod> pod = Status(Code::kUnavailable, "not asked");
  bool asked_live = false;
  while (true) {
    pod = cluster_.CachedPod(question.ns, question.pod);
    if (pod.ok() && pod->meta.uid == question.pod_uid) break;
    if (!asked_live || clock_.Mono() >= until) pod = cluster_.GetPod(question.ns, question.pod);
    asked_live = true;
    if (pod.ok() && pod->meta.uid == question.pod_uid) break;
    if (clock_.Mono() >= until || !clock_.Sleep(std::chrono::milliseconds(100), stop)) {
      return Say("refuse", "pod " + question.ns + "/" + question.pod + " with uid " + question.pod_uid + " is not known to holdfast-agent");
    }
  }
  if (!AsksForRestore(*pod)) return Say("cold", "no restore was asked for");
  if (IsOver(*pod)) return Say("refuse", "the pod is being deleted, or has ended");
  RecordPtr record = For(*pod);
  options_.enqueue(pod->meta.Key());

  std::vector<std::string> image;
  if (question.container != runtime::kWaitContainer) {
    Result<std::vector<std::string>> digests = node_.ImageDigests(question.container_id);
    if (digests.ok()) image = std::move(*digests);
    if (!digests.ok()) {
      LogInfo("a container's image is not compared with its checkpoint's",
              {{"pod", pod->meta.Key()}, {"container", question.container}, {"why", digests.status().message()}});
    }
  }

  CreateDecision decision;
  RestoreState before;
  {
    std::unique_lock lock(record->mutex);
    auto at = record->state.containers.find(question.container);
    const bool previous_restored = at != record->state.containers.end() && at->second.state == ContainerRestore::kTrying &&
                                   at->second.id != question.container_id &&
                                   Noted(record->state, question.container, runtime::kRestoredFile);
    // May be called more often than it says yes, but decides once: a decision counts a try.
    auto known = [&] {
      if (decision.answer) return true;
      before = record->state;
      decision = DecideCreate(record->state, *pod, question, previous_restored, layout_, image);
      return decision.answer.has_value();
    };
    if (!clock_.WaitUntil(lock, record->changed, until, stop, known)) {
      return Say("refuse", "the checkpoint " + record->state.checkpoint + " is not here yet");
    }
    if (decision.answer->action == "restore" && !record->state.started) {
      record->state = before;
      lock.unlock();
      Status said = SayStarted(*record);
      if (!said.ok()) return Say("refuse", "that its restore begins cannot be written into status.restores: " + said.message());
      // Until that stood there, who drains or deletes the pod could take it for one of which nothing runs, and let it go.
      Result<kube::Pod> now = cluster_.GetPod(question.ns, question.pod);
      if (now.status().code() == Code::kNotFound || (now.ok() && (now->meta.uid != question.pod_uid || IsOver(*now))))
        return Say("refuse", "the pod was deleted before anything of it was restored");
      lock.lock();
      decision = {};
      if (!known()) return Say("refuse", "the checkpoint " + record->state.checkpoint + " is not here any more");
    }
    Status saved = record->state.Save(layout_);
    if (!saved.ok()) {
      record->state = before;  // a try that is not written down must not begin: it could be made twice
      return Say("refuse", "the agent cannot write down the restore: " + saved.message());
    }
  }
  if (!decision.event.empty()) cluster_.PodEvent(true, pod->meta.ns, pod->meta.name, pod->meta.uid, "RestartedCold", decision.event);
  options_.enqueue(pod->meta.Key());
  LogInfo("create", {{"pod", pod->meta.Key()},
                     {"container", question.container},
                     {"action", decision.answer->action},
                     {"reason", decision.answer->reason},
                     {"checkpoint", pod->meta.Annotation(api::kRestore)}});
  HF_FAULT_POINT("agent.before_restore_answer");
  return *decision.answer;
}

// Whether holdfast-runc left this note of the current try of a container; it may have had nobody to tell. kTryingFile: it came so far that
// something may have run. kRestoredFile: it succeeded.
bool Restorer::Noted(const RestoreState& state, const std::string& container, const char* note) const {
  const Result<std::string> id = ReadFile(layout_.RestoreFolder(state.pod_uid) + "/" + container + "/" + note, 256);
  return id.ok() && *id == state.containers.at(container).id;
}

// Whether something of the pod may have run from the checkpoint, by holdfast-runc's notes: then nobody else goes on from it.
bool Restorer::MayHaveRun(const RestoreState& state) const {
  return std::any_of(state.containers.begin(), state.containers.end(), [&](const auto& one) {
    const auto& [name, c] = one;
    if (c.ran || c.state == ContainerRestore::kRestored) return true;
    return c.state == ContainerRestore::kTrying && Noted(state, name, runtime::kTryingFile);
  });
}

// Outcomes that were told to an agent that was not there. False while a try goes on.
Result<bool> Restorer::FindLostOutcomes(Record& record) {
  std::lock_guard lock(record.mutex);
  bool trying = false, found = false;
  for (auto& [name, c] : record.state.containers) {
    if (c.state != ContainerRestore::kTrying) continue;
    if (!Noted(record.state, name, runtime::kRestoredFile)) {
      trying = true;
      continue;
    }
    c.state = ContainerRestore::kRestored;
    found = true;
    LogInfo("found a restored container", {{"pod", record.state.ns + "/" + record.state.pod}, {"container", name}, {"id", c.id}});
  }
  if (found) HF_RETURN_IF_ERROR(record.state.Save(layout_));
  return !trying;
}

runtime::CreateAnswer Restorer::Outcome(const runtime::RestoreOutcome& outcome) {
  RecordPtr record = Find(outcome.pod_uid);
  if (record == nullptr) return Say(outcome.ok ? "restore" : "refuse", "no restore of this pod is known");
  runtime::CreateAnswer answer;
  std::string key;
  {
    std::lock_guard lock(record->mutex);
    answer = DecideOutcome(record->state, outcome);
    key = record->state.ns + "/" + record->state.pod;
    Status saved = record->state.Save(layout_);
    if (!saved.ok()) LogError("cannot write down a restore's outcome", {{"pod", key}, {"error", saved.message()}});
    if (!outcome.ok) {
      cluster_.PodEvent(true, record->state.ns, record->state.pod, outcome.pod_uid, "RestoreFailed",
                        "container " + outcome.container + ": " + answer.reason);
    }
  }
  if (outcome.ok)
    metrics_.Restored("Restored", outcome.seconds);
  else
    metrics_.Restored(answer.action == "cold" ? "ColdStart" : "Failed", outcome.seconds);
  LogInfo("restored", {{"pod", key},
                       {"container", outcome.container},
                       {"ok", outcome.ok},
                       {"seconds", outcome.seconds},
                       {"answer", answer.action},
                       {"message", outcome.message}});
  options_.enqueue(key);
  return answer;
}

// The images will not come. What happens then is what the pod's policy says: a cold start, no start at all, or the same once more.
Result<std::optional<Duration>> Restorer::GiveUp(Record& record, const std::string& why) {
  std::lock_guard lock(record.mutex);
  RestoreState& s = record.state;
  const api::OnFailure on_failure = s.options.on_failure;
  LogWarning("a restore failed",
             {{"pod", s.ns + "/" + s.pod}, {"checkpoint", s.checkpoint}, {"reason", why}, {"on_failure", api::OnFailureName(on_failure)}});
  if (on_failure == api::OnFailure::kRetry) {
    s.phase = Phase::kWaiting;
    s.fetch_failures = 0;
    HF_RETURN_IF_ERROR(s.Save(layout_));
    Tell(record, "waiting", why + "; trying again");
    if (record.told_why != why) {
      record.told_why = why;
      cluster_.PodEvent(true, s.ns, s.pod, s.pod_uid, "RestoreFailed", why + "; it is tried again" + MustNotStartCold(s.options));
    }
    return std::optional(options_.retry_pause);
  }
  const bool cold = on_failure == api::OnFailure::kColdStart;
  s.phase = cold ? Phase::kCold : Phase::kFailed;
  s.why = why;
  Status saved = s.Save(layout_);
  if (!saved.ok()) LogError("cannot write a restore state", {{"pod", s.pod}, {"error", saved.message()}});
  // A pod that must not start cold stays where it is: an init container that fails would have a Job make another one.
  Tell(record, cold ? "cold" : "waiting", why + (cold ? "" : MustNotStartCold(s.options)));
  record.changed.notify_all();
  metrics_.Restored(cold ? "ColdStart" : "Failed", 0);
  return std::optional(Duration(0));
}

// Before anything of it runs: should pod, agent or node be gone after that, nobody else goes on from what may have run on.
Status Restorer::SayStarted(Record& record) {
  api::Restore restore;
  std::string ns, checkpoint, uid;
  {
    std::lock_guard lock(record.mutex);
    restore.pod_name = record.state.pod;
    restore.pod_uid = record.state.pod_uid;
    ns = record.state.ns;
    checkpoint = record.state.checkpoint;
    uid = record.state.checkpoint_uid;
  }
  restore.node = options_.node_name;
  restore.at = FormatTime(clock_.Wall());
  restore.outcome = "Started";
  Status said = cluster_.AppendRestore(ns, checkpoint, uid, restore);
  if (said.code() == Code::kInvalidArgument) {
    LogError("the CRD of Checkpoints is of an older version: apply that of this one (crds/)", {{"error", said.message()}});
    said = Status::Ok();
  }
  HF_RETURN_IF_ERROR(said);
  std::lock_guard lock(record.mutex);
  record.state.started = true;
  return record.state.Save(layout_);
}

// Of a pod that is gone before all of its containers were settled: whether another one may go on from the checkpoint, and what of it had
// started cold, which nobody has been told yet.
Status Restorer::ReportEnd(const RestoreState& s) {
  if (s.reported) return Status::Ok();
  if (s.started) {
    api::Restore restore;
    restore.pod_name = s.pod;
    restore.pod_uid = s.pod_uid;
    restore.node = options_.node_name;
    restore.at = FormatTime(clock_.Wall());
    restore.outcome = "Failed";
    restore.ran = MayHaveRun(s);
    restore.reason = restore.ran ? "the pod ended before all of it was restored" : "the pod ended before any of it was restored";
    // Who is to go on trying does: it is no verdict on the checkpoint.
    if (s.options.on_failure != api::OnFailure::kRetry) restore.attempts = s.FailedAttempts();
    if (restore.attempts > 0) restore.reason += "; " + s.LastFailure().substr(0, 4000);
    Status appended = cluster_.AppendRestore(s.ns, s.checkpoint, s.checkpoint_uid, restore);
    if (!appended.ok() && appended.code() != Code::kNotFound && appended.code() != Code::kConflict) return appended;
  }
  if (const std::string why = s.WhyNotRestored(); !why.empty() && !s.failed())
    cluster_.PodEvent(true, s.ns, s.pod, s.pod_uid, "ColdStart", "not restored from checkpoint " + s.checkpoint + ": " + why);
  return Status::Ok();
}

// Once, when every container was restored or started cold: on the pod as an event, on the Checkpoint in status.restores.
Status Restorer::Report(Record& record) {
  RestoreState s;
  {
    std::lock_guard lock(record.mutex);
    s = record.state;
  }
  api::Restore restore;
  restore.pod_name = s.pod;
  restore.pod_uid = s.pod_uid;
  restore.node = options_.node_name;
  restore.at = FormatTime(clock_.Wall());
  restore.outcome = s.restored() ? "Restored" : s.failed() ? "Failed" : "ColdStart";
  restore.seconds = s.seconds();
  for (const auto& [name, c] : s.containers) restore.ran = restore.ran || c.ran;
  restore.reason = s.WhyNotRestored().substr(0, 4000);  // the CRD takes 4096
  if (s.failed()) restore.attempts = s.FailedAttempts();
  if (!s.checkpoint_uid.empty()) {
    Status appended = cluster_.AppendRestore(s.ns, s.checkpoint, s.checkpoint_uid, restore);
    if (!appended.ok() && appended.code() != Code::kNotFound && appended.code() != Code::kConflict) return appended;
  }
  if (s.restored()) {
    char frozen[64];
    std::snprintf(frozen, sizeof frozen, ", frozen for %.2f s, restored in %.2f s", static_cast<double>(s.frozen_ms) / 1e3, s.seconds());
    cluster_.PodEvent(false, s.ns, s.pod, s.pod_uid, "Restored",
                      "from checkpoint " + s.checkpoint + " taken on node " + s.from_node + Ago(s.taken_at, clock_.Wall()) + frozen);
  } else if (s.failed()) {
    cluster_.PodEvent(
        true, s.ns, s.pod, s.pod_uid, "RestoreFailed",
        "not restored from checkpoint " + s.checkpoint + ": " + restore.reason + MustNotStartCold(s.options) +
            (restore.ran ? ". Its processes ran for a moment, so it cannot be tried again: delete the pod to start anew"
                         : ". Delete the pod to try once more; set restore.onFailure: ColdStart in its RestorePolicy first to do "
                           "without its state"));
  } else {
    cluster_.PodEvent(true, s.ns, s.pod, s.pod_uid, "ColdStart", "not restored from checkpoint " + s.checkpoint + ": " + restore.reason);
  }
  std::lock_guard lock(record.mutex);
  record.state.reported = true;
  return record.state.Save(layout_);
}

// For holdfast-wait in the pod. Losing one only delays what is shown.
void Restorer::Tell(Record& record, const std::string& state, const std::string& message, int64_t bytes, int64_t total) {
  runtime::WaitState wait;
  wait.state = state;
  wait.message = message;
  wait.bytes = bytes;
  wait.total = total;
  const std::string text = DumpJson(wait.ToJson());
  if (text == record.wait_state) return;
  const std::string folder = layout_.WaitFolder(record.state.pod_uid);
  Status written = MakeDirs(folder, 0755);
  if (written.ok()) written = WriteFileAtomically(folder + "/state", text, 0644);
  if (written.ok()) {
    record.wait_state = text;
  } else {
    LogWarning("cannot tell a pod how its restore goes", {{"pod", record.state.pod}, {"error", written.message()}});
  }
}

Status Restorer::ForgetPods(const std::string& key, const std::string& but_uid) {
  std::vector<std::string> gone, tries, restored;
  std::vector<RestoreState> unsaid;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [uid, record] : records_) {
      if (uid == but_uid || record->state.ns + "/" + record->state.pod != key) continue;
      std::lock_guard of_record(record->mutex);
      unsaid.push_back(record->state);
    }
  }
  for (const RestoreState& state : unsaid) HF_RETURN_IF_ERROR(ReportEnd(state));
  {
    std::lock_guard lock(mutex_);
    for (auto at = records_.begin(); at != records_.end();) {
      const RecordPtr record = at->second;    // outlives its own lock
      const RestoreState& s = record->state;  // names never change
      if (s.ns + "/" + s.pod == key && at->first != but_uid) {
        gone.push_back(at->first);
        std::lock_guard of_record(record->mutex);
        for (const auto& [name, c] : s.containers) {
          if (!c.id.empty()) (c.state == ContainerRestore::kRestored ? restored : tries).push_back(c.id);
        }
        at = records_.erase(at);
      } else {
        ++at;
      }
    }
  }
  // containerd does not know of a container whose `create` was killed, or was called off by a kubelet that died, so nobody else removes it.
  // A restored one that still runs has its grace (its pod may have been deleted by force).
  for (const std::string& id : restored) {
    Result<ContainerState> state = node_.StateOf(id);
    if (state.ok() && *state == ContainerState::kStopped) tries.push_back(id);
  }
  for (const std::string& id : tries) {
    Status removed = node_.RemoveContainer(id);
    if (!removed.ok()) LogWarning("cannot remove what a pod left", {{"pod", key}, {"error", removed.message()}});
  }
  for (const std::string& uid : gone) {
    unlink(layout_.RestoreFile(uid).c_str());
    for (const Status& removed : {layout_.RemoveRestore(uid), RemoveAll(layout_.WaitFolder(uid))}) {
      if (!removed.ok()) LogWarning("cannot remove what a pod left", {{"pod", key}, {"error", removed.message()}});
    }
  }
  return Status::Ok();
}

// The dump of this very checkpoint may still lie on this node. Its files are linked, and checked against what was committed.
// What was dumped into memory is restored from there.
Status Restorer::TakeFromLanding(const std::string& checkpoint_uid, const std::string& pod_uid) {
  const std::string folder = layout_.RestoreFolder(pod_uid);
  std::error_code error;
  if (std::filesystem::is_symlink(folder, error)) HF_RETURN_IF_ERROR(layout_.RemoveRestore(pod_uid));  // an earlier try's
  HF_ASSIGN_OR_RETURN(JournalEntry entry, journal_.Read(checkpoint_uid));
  if (entry.step != Step::kCommitted) return Status(Code::kFailedPrecondition, "its dump is not committed");
  if (NodeRestarted(entry.boot_id, options_.boot_id))
    return Status(Code::kFailedPrecondition, "the node was restarted since");  // nothing there was synced
  if (Exists(journal_.SentLog(checkpoint_uid))) return Status(Code::kNotFound, "the landing folder is not whole any more");
  HF_ASSIGN_OR_RETURN(std::string text, journal_.ReadManifest(checkpoint_uid));
  HF_ASSIGN_OR_RETURN(storage::Manifest manifest, storage::Manifest::Parse(text));
  HF_RETURN_IF_ERROR(layout_.RemoveRestore(pod_uid));
  const std::string landing = layout_.Landing(checkpoint_uid, entry.place);
  const bool in_memory = entry.place == Place::kMemory;
  const std::string dir = in_memory ? layout_.RestoreMemory(pod_uid) : folder;
  for (const storage::FileEntry& file : manifest.files) {
    const std::string to = dir + "/" + file.path;
    HF_RETURN_IF_ERROR(MakeDirs(to.substr(0, to.rfind('/'))));
    struct stat info;
    if (link((landing + "/" + file.path).c_str(), to.c_str()) != 0 || lstat(to.c_str(), &info) != 0 ||
        static_cast<uint64_t>(info.st_size) != file.size) {
      Status removed = layout_.RemoveRestore(pod_uid);
      return removed.ok() ? Status(Code::kNotFound, "the landing folder is not whole any more") : removed;
    }
  }
  if (in_memory && symlink(dir.c_str(), folder.c_str()) != 0) return Status(Code::kInternal, "cannot make the link " + folder);
  return Status::Ok();
}

}  // namespace holdfast::agent
