#include "agent/restorer.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "agent/boot.h"
#include "agent/platform.h"
#include "api/fit.h"
#include "api/security.h"
#include "base/fault_point.h"
#include "base/file.h"
#include "base/log.h"

namespace holdfast::agent {

using std::chrono::milliseconds;
using Phase = RestoreState::Phase;

namespace {

constexpr int kFetchAttempts = 3;  // of damaged or missing content; a store that does not answer is waited for

// The kubelet takes about a second from the end of the init container to the next container's create, which itself waits for the images
// (RestorerOptions::answer_within): so the init container ends when no more than this is left to fetch.
constexpr double kLastPartSeconds = 2;

double SecondsLeft(const storage::Progress& progress, Duration so_far) {
  if (progress.bytes == 0 || progress.total < progress.bytes) return kLastPartSeconds + 1;
  const double left = static_cast<double>(progress.total - progress.bytes) / static_cast<double>(progress.bytes);
  return left * std::chrono::duration<double>(so_far).count();
}

bool AnyPending(const RestoreState& state) {
  return std::any_of(state.containers.begin(), state.containers.end(),
                     [](const auto& c) { return c.second.state == ContainerRestore::kPending; });
}

bool HasEnded(const kube::Pod& pod) { return pod.phase == "Succeeded" || pod.phase == "Failed"; }

std::optional<Duration> Later(Duration duration) { return duration; }
std::optional<Duration> Done() { return std::nullopt; }

}  // namespace

Restorer::Restorer(RestorerOptions options, Layout layout, Journal& journal, Node& node, Stores& stores, Cluster& cluster, Metrics& metrics,
                   Clock& clock)
    : options_(std::move(options)),
      layout_(std::move(layout)),
      journal_(journal),
      node_(node),
      stores_(stores),
      cluster_(cluster),
      metrics_(metrics),
      clock_(clock) {}

std::vector<std::string> Restorer::Recover() {
  std::vector<std::string> keys;
  Result<std::vector<std::string>> names = ListDir(layout_.state + "/restore");
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>{}) {
    const bool state_file = name.ends_with(".json");
    const std::string uid = state_file ? name.substr(0, name.size() - 5) : name;
    if (!state_file) {
      if (Exists(layout_.RestoreFile(uid))) continue;
      Status removed = layout_.RemoveRestore(uid);
      if (!removed.ok()) LogWarning("cannot remove an old restore folder", {{"pod_uid", uid}, {"error", removed.message()}});
      continue;
    }
    Result<RestoreState> state = RestoreState::Load(layout_, uid);
    if (!state.ok()) {
      LogError("a restore state cannot be read", {{"file", name}, {"error", state.status().message()}});
      if (!IsSafeName(uid) || Exists(layout_.KubeletPod(uid))) continue;
      Status removed = layout_.RemoveRestore(uid);
      if (removed.ok()) removed = RemoveAll(layout_.RestoreFile(uid));
      if (!removed.ok()) LogWarning("cannot remove what a pod that is gone left", {{"pod_uid", uid}, {"error", removed.message()}});
      continue;
    }
    auto record = std::make_shared<Record>();
    record->state = std::move(*state);
    FetchAfterRestart(record->state);
    keys.push_back(record->state.ns + "/" + record->state.pod);
    std::lock_guard lock(mutex_);
    records_[uid] = record;
  }
  for (const std::string& uid : ListDir(layout_.Memory() + "/restore").value_or({})) {
    if (Exists(layout_.RestoreFile(uid))) continue;
    Status removed = layout_.RemoveRestore(uid);
    if (!removed.ok()) LogWarning("cannot remove an old restore folder", {{"pod_uid", uid}, {"error", removed.message()}});
  }
  names = ListDir(layout_.run + "/wait");
  for (const std::string& uid : names.ok() ? *names : std::vector<std::string>{}) {
    // A pod that no agent has seen yet may be waiting in it already: the kubelet makes it. What the pod has mounted must stay the same.
    if (Find(uid) != nullptr || Exists(layout_.KubeletPod(uid))) continue;
    Status removed = RemoveAll(layout_.WaitFolder(uid));
    if (!removed.ok()) LogWarning("cannot remove an old wait folder", {{"pod_uid", uid}, {"error", removed.message()}});
  }
  return keys;
}

// What lay in memory is gone when the node was restarted, and what lay on its disk was not synced: it is fetched again, which keeps of the
// latter what is still as it was.
void Restorer::FetchAfterRestart(RestoreState& state) {
  const std::string folder = layout_.RestoreFolder(state.pod_uid);
  std::error_code error;
  const bool gone = std::filesystem::is_symlink(folder, error) && !Exists(folder);
  if (state.phase != Phase::kReady || !(gone || NodeRestarted(state.boot_id, options_.boot_id))) return;
  for (auto& [name, c] : state.containers) {
    if (c.state != ContainerRestore::kTrying) continue;
    if (gone || Noted(state, name, runtime::kTryingFile)) {
      EndTryOfAnotherBoot(state, c);
    } else {
      c.state = ContainerRestore::kPending;
    }
  }
  if (AnyPending(state)) state.phase = Phase::kWaiting;
  Status saved = state.Save(layout_);
  if (!saved.ok()) LogWarning("cannot write a restore state", {{"pod", state.pod}, {"error", saved.message()}});
}

Restorer::RecordPtr Restorer::Find(const std::string& pod_uid) {
  std::lock_guard lock(mutex_);
  auto at = records_.find(pod_uid);
  return at == records_.end() ? nullptr : at->second;
}

Restorer::RecordPtr Restorer::For(const kube::Pod& pod) {
  RecordPtr record;
  {
    std::lock_guard lock(mutex_);
    RecordPtr& slot = records_[pod.meta.uid];
    if (slot != nullptr) return slot;
    slot = std::make_shared<Record>();
    record = slot;
    RestoreState& state = record->state;
    state.pod_uid = pod.meta.uid;
    state.ns = pod.meta.ns;
    state.pod = pod.meta.name;
    state.checkpoint = pod.meta.Annotation(api::kRestore);
    Result<Json> options = ParseJson(pod.meta.Annotation(api::kRestoreOptions));
    if (options.ok()) state.options = api::RestoreOptions::FromJson(*options);
    if (WasLetGoCold(pod)) {
      state.phase = Phase::kCold;
      state.why = "no checkpoint was given to this pod";
      state.reported = true;  // by the controller, which let it go
    }
  }
  std::lock_guard lock(record->mutex);
  Status saved = record->state.Save(layout_);
  if (!saved.ok()) LogError("cannot write a restore state", {{"pod", pod.meta.Key()}, {"error", saved.message()}});
  if (record->state.phase == Phase::kCold) {
    Tell(*record, "cold", record->state.why);
    return record;
  }
  Tell(*record, "waiting", "checkpoint " + record->state.checkpoint);
  LogInfo("a pod is to be restored here", {{"pod", pod.meta.Key()}, {"pod_uid", pod.meta.uid}, {"checkpoint", record->state.checkpoint}});
  return record;
}

Result<std::optional<Duration>> Restorer::Run(const std::string& key, std::stop_token stop) {
  const kube::ObjectKey name = kube::ObjectKey::Parse(key);
  Result<kube::Pod> pod = cluster_.CachedPod(name.ns, name.name);
  if (pod.status().code() == Code::kNotFound) {
    HF_RETURN_IF_ERROR(ForgetPods(key, ""));
    return Done();
  }
  if (!pod.ok()) return pod.status();
  HF_RETURN_IF_ERROR(ForgetPods(key, pod->meta.uid));
  if (pod->node_name != options_.node_name) return Done();
  if (HasEnded(*pod)) {
    if (RecordPtr record = Find(pod->meta.uid)) HF_RETURN_IF_ERROR(Close(*record));
    return Done();
  }
  if (!AsksForRestore(*pod) && !WasLetGoCold(*pod)) return Done();
  RecordPtr record = For(*pod);
  Phase phase;
  {
    std::lock_guard lock(record->mutex);
    phase = record->state.phase;
    // Made anew with its sandbox or its node, for a new holdfast-wait.
    const std::string folder = layout_.WaitFolder(pod->meta.uid);
    if (Exists(folder) && !Exists(folder + "/state")) record->wait_state.clear();
  }
  if (phase == Phase::kWaiting || phase == Phase::kFetching) return Prepare(*record, *pod, stop);
  HF_ASSIGN_OR_RETURN(const bool known, FindLostOutcomes(*record));
  bool settled = false, reported = false;
  {
    std::lock_guard lock(record->mutex);
    settled = record->state.settled();
    reported = record->state.reported;
    if (record->wait_state.empty()) {  // this process has not written it yet
      if (phase == Phase::kReady) Tell(*record, "ready", "");
      if (phase == Phase::kCold) Tell(*record, "cold", record->state.why);
      if (phase == Phase::kFailed) Tell(*record, "waiting", record->state.why + MustNotStartCold(record->state.options));
    }
  }
  if (!settled) return known ? Done() : Later(options_.again);
  if (!reported) HF_RETURN_IF_ERROR(Report(*record));
  HF_RETURN_IF_ERROR(layout_.RemoveRestore(pod->meta.uid));
  // holdfast-wait may still have to read that it need not wait any longer. The API may still say what ran before the node was restarted.
  HF_ASSIGN_OR_RETURN(const std::vector<NodeContainer> containers, node_.Containers());
  const bool waited = std::any_of(containers.begin(), containers.end(), [&](const NodeContainer& c) {
    return c.pod_uid == pod->meta.uid && c.container != runtime::kWaitContainer;
  });
  if (!waited) return Done();
  HF_RETURN_IF_ERROR(RemoveAll(layout_.WaitFolder(pod->meta.uid)));
  return Done();
}

// Of a pod that has ended. It may stay for days, as a Job's does, and nothing is started in it any more: whether another one may go on from
// the checkpoint is said now, and its images go.
Status Restorer::Close(Record& record) {
  HF_RETURN_IF_ERROR(FindLostOutcomes(record).status());
  RestoreState s;
  {
    std::lock_guard lock(record.mutex);
    s = record.state;
  }
  if (!s.reported && s.settled()) HF_RETURN_IF_ERROR(Report(record));
  if (!s.reported && !s.settled()) {
    HF_RETURN_IF_ERROR(ReportEnd(s));
    std::lock_guard lock(record.mutex);
    record.state.reported = true;
    HF_RETURN_IF_ERROR(record.state.Save(layout_));
  }
  HF_RETURN_IF_ERROR(layout_.RemoveRestore(s.pod_uid));
  return RemoveAll(layout_.WaitFolder(s.pod_uid));
}

// From "seen" to "its images are here", a step at a time.
Result<std::optional<Duration>> Restorer::Prepare(Record& record, const kube::Pod& pod, std::stop_token stop) {
  if (!record.seen) record.seen = clock_.Mono();
  const Duration waited = clock_.Mono() - *record.seen;
  const std::string name = pod.meta.Annotation(api::kRestore);
  Result<api::Checkpoint> cp = cluster_.GetCheckpoint(pod.meta.ns, name);
  if (cp.status().code() == Code::kNotFound) return GiveUp(record, "checkpoint " + name + " does not exist");
  if (!cp.ok()) {
    WaitOn(record, "checkpoint " + name + " cannot be read from the API server: " + cp.status().message());
    return Later(options_.again);
  }
  if (!cp->status.claim || cp->status.claim->pod_uid != pod.meta.uid) {
    if (waited < options_.claim_within) {
      std::lock_guard lock(record.mutex);
      Tell(record, "waiting", "checkpoint " + name + " is not given to this pod yet");
      return Later(options_.again);
    }
    return GiveUp(record, "checkpoint " + name + " was not given to this pod" +
                              (cp->status.claim ? " but to " + cp->status.claim->pod_name : std::string()) + " (status.claim)");
  }
  if (cp->status.phase == api::Phase::kReady) return Bring(record, pod, *cp, stop);
  if (cp->status.phase == api::Phase::kFailed || cp->status.phase == api::Phase::kDeleting) {
    const api::Condition* ready = cp->Ready();
    return GiveUp(record, "checkpoint " + name + " is " + std::string(api::PhaseName(cp->status.phase)) +
                              (ready != nullptr && !ready->message.empty() ? ": " + ready->message : std::string()));
  }
  std::lock_guard lock(record.mutex);
  Tell(record, "waiting", "checkpoint " + name + " is " + std::string(api::PhaseName(cp->status.phase)));
  return Later(options_.again);
}

Result<std::optional<Duration>> Restorer::Bring(Record& record, const kube::Pod& pod, const api::Checkpoint& cp, std::stop_token stop) {
  const std::string dir = layout_.RestoreFolder(pod.meta.uid);
  if (!IsSafeName(cp.meta.uid) || !IsSafeName(cp.status.manifest_id)) {
    return GiveUp(record, "checkpoint " + cp.meta.name + " names no manifest");
  }
  // The controller has looked too; but the image of a pod, and its resources, can be changed after its claim.
  auto refused = api::RefusedBySecurity(cp, pod);
  if (!refused) refused = api::RefusedByFit(cp, pod);
  if (refused) return GiveUp(record, "checkpoint " + cp.meta.name + " cannot be restored: " + *refused);
  if (const std::string unfit = Unfit(cp, node_.Platform()); !unfit.empty()) {
    return GiveUp(record, "checkpoint " + cp.meta.name + " cannot be restored here: " + unfit);
  }
  {
    std::lock_guard lock(record.mutex);
    record.state.checkpoint_uid = cp.meta.uid;
    record.state.phase = Phase::kFetching;
    HF_RETURN_IF_ERROR(record.state.Save(layout_));
    Tell(record, "fetching", "");
  }
  const MonoTime began = clock_.Mono();
  Status here = TakeFromLanding(cp.meta.uid, pod.meta.uid);
  if (!here.ok()) {
    storage::IngestOptions fetch;
    fetch.stop = stop;
    MonoTime told = began;
    std::mutex told_mutex;
    fetch.progress = [&](const storage::Progress& progress) {
      {
        std::lock_guard lock(told_mutex);
        if (clock_.Mono() - told < milliseconds(200)) return;
        told = clock_.Mono();
      }
      std::lock_guard lock(record.mutex);
      const bool last_part = SecondsLeft(progress, clock_.Mono() - began) <= kLastPartSeconds;
      Tell(record, last_part ? "ready" : "fetching", "", static_cast<int64_t>(progress.bytes), static_cast<int64_t>(progress.total));
    };
    if (options_.kept) here = options_.kept(cp.status.manifest_id, dir, fetch);
    if (!here.ok() && !stop.stop_requested()) {
      // Of the same node others may end, and give room back.
      const auto bytes = static_cast<uint64_t>(std::max<int64_t>(cp.status.memory_bytes, 0) + std::max<int64_t>(cp.status.files_bytes, 0));
      const Status room = options_.disk == nullptr ? Status::Ok() : options_.disk->Reserve(dir, bytes);
      if (!room.ok()) {
        return WaitToFetch(record, cp, "there is no room for it: " + room.message());
      }
      const std::string store = cp.store();
      here = stores_.Has(store) ? options_.fetch(stores_.Of(store), cp.status.manifest_id, dir, fetch) : Stores::Missing(store);
    }
  }
  if (options_.disk != nullptr) options_.disk->Release(dir);
  if (stop.stop_requested()) return Status(Code::kCancelled, "stopping while a checkpoint is fetched");
  HF_FAULT_POINT("agent.fetched");
  if (!here.ok()) {
    LogWarning("cannot fetch a checkpoint", {{"pod", pod.meta.Key()}, {"checkpoint", cp.meta.name}, {"error", here.message()}});
    const bool may_pass =
        here.code() == Code::kUnavailable || here.code() == Code::kDeadlineExceeded || here.code() == Code::kUnauthenticated;
    if (!may_pass) {
      int failures = 0;
      {
        std::lock_guard lock(record.mutex);
        failures = ++record.state.fetch_failures;
        HF_RETURN_IF_ERROR(record.state.Save(layout_));
      }
      if (failures >= kFetchAttempts) return GiveUp(record, "checkpoint " + cp.meta.name + " could not be fetched: " + here.message());
      return Later(options_.again);
    }
    return WaitToFetch(record, cp, here.message());
  }
  metrics_.Fetched(std::chrono::duration<double>(clock_.Mono() - began).count(),
                   static_cast<double>(cp.status.memory_bytes + cp.status.files_bytes));
  std::unique_lock lock(record.mutex);
  Status read = ReadLayout(record.state, cp);
  if (!read.ok()) {
    lock.unlock();
    return GiveUp(record, "checkpoint " + cp.meta.name + " cannot be restored: " + read.message());
  }
  record.state.phase = Phase::kReady;
  record.state.boot_id = options_.boot_id;
  HF_RETURN_IF_ERROR(record.state.Save(layout_));
  Tell(record, "ready", "");
  record.changed.notify_all();
  LogInfo("a checkpoint is here", {{"pod", pod.meta.Key()}, {"checkpoint", cp.meta.name}});
  return Done();
}

// A deletion waits for the pod, so the pod does not wait on for what cannot be fetched.
Result<std::optional<Duration>> Restorer::WaitToFetch(Record& record, const api::Checkpoint& cp, const std::string& why) {
  if (cp.meta.terminating()) return GiveUp(record, "checkpoint " + cp.meta.name + " is being deleted, and cannot be fetched: " + why);
  WaitOn(record, why);
  return Later(options_.again);
}

// For as long as it takes: what is stored is not given up because nobody can be asked for it now.
void Restorer::WaitOn(Record& record, const std::string& why) {
  std::lock_guard lock(record.mutex);
  const RestoreState& s = record.state;
  Tell(record, "fetching", why);
  if (record.told_waits || clock_.Mono() - *record.seen < options_.patience) return;
  record.told_waits = true;
  const bool starts_cold = s.options.on_failure == api::OnFailure::kColdStart;  // else it takes a pod that asks for nothing
  cluster_.PodEvent(true, s.ns, s.pod, s.pod_uid, "WaitsForState",
                    "waits to go on from checkpoint " + s.checkpoint + ": " + why + ". To start without its state: kubectl -n " + s.ns +
                        " delete checkpoint" + (starts_cold ? " " + s.checkpoint : "/" + s.checkpoint + " pod/" + s.pod));
}

// What the fetched files say about how they are to be restored.
Status Restorer::ReadLayout(RestoreState& state, const api::Checkpoint& cp) {
  const std::string dir = layout_.RestoreFolder(state.pod_uid);
  if (!Exists(dir + "/result.json")) return Status(Code::kDataLoss, "result.json is missing");
  HF_ASSIGN_OR_RETURN(std::string text, ReadFile(dir + "/result.json", 1 << 20));
  HF_ASSIGN_OR_RETURN(Json json, ParseJson(text));
  HF_ASSIGN_OR_RETURN(runtime::DumpResult result, runtime::DumpResult::FromJson(json));
  state.frozen_ms = result.frozen_ms;
  state.from_node = cp.status.node_name;
  state.taken_at = cp.status.completed_at;
  const std::map<std::string, RestoreContainer> before = std::exchange(state.containers, {});  // fetched once more: some may have run
  std::string why = "it holds no container that can be restored";
  for (const api::CheckpointContainer& c : cp.status.containers) {
    if (!c.restorable || !IsSafeName(c.name)) {
      if (!c.reason.empty()) why = "container " + c.name + ": " + c.reason;
      continue;
    }
    if (!Exists(dir + "/" + c.name + "/images/inventory.img"))
      return Status(Code::kDataLoss, "the images of container " + c.name + " are missing");
    const auto known = before.find(c.name);
    state.containers[c.name] = known == before.end() ? RestoreContainer() : known->second;
    state.containers[c.name].image_digest = c.image_digest;
  }
  if (state.containers.empty()) return Status(Code::kUnsupported, why);
  if (Result<std::string> asked = ReadFile(dir + "/request.json", 1 << 20); asked.ok()) {
    Result<Json> request_json = ParseJson(*asked);
    Result<runtime::DumpRequest> request =
        request_json.ok() ? runtime::DumpRequest::FromJson(*request_json) : Result<runtime::DumpRequest>(request_json.status());
    if (!request.ok()) return request.status();
    state.volumes.clear();
    for (const runtime::DumpVolume& volume : request->volumes) state.volumes.push_back(volume.name);
  }
  return Status::Ok();
}

}  // namespace holdfast::agent
