#include "tests/sim/machine.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/time_format.h"

namespace holdfast::sim {
namespace {

using agent::ContainerState;
using std::chrono::milliseconds;

constexpr Duration kTick = milliseconds(100);
constexpr char kImage[] = "/images/pages-1.img";
constexpr char kVolumesInUse[] = "volumes-in-use";  // runtime/volumes.cc

int64_t Ms(WallTime at) { return std::chrono::duration_cast<milliseconds>(at.time_since_epoch()).count(); }

bool IsOver(const Json& pod) {
  const std::string phase = GetString(pod, {"status", "phase"});
  return phase == "Succeeded" || phase == "Failed";
}

// How far a container counts before it is done, as its pod's spec has it; 0: for ever.
int64_t WorkOf(const Json& pod, const std::string& container) {
  for (const Json& one : GetArray(pod, {"spec", "containers"})) {
    if (GetString(one, {"name"}) != container) continue;
    for (const Json& arg : GetArray(one, {"args"})) return std::stoll(arg.get<std::string>());
  }
  return 0;
}

}  // namespace

std::string SeatOf(const Json& pod) {
  const std::string name = GetString(pod, {"metadata", "name"});
  for (const Json& owner : GetArray(pod, {"metadata", "ownerReferences"})) {
    const std::string uid = GetString(owner, {"uid"});
    return GetString(owner, {"kind"}) == "StatefulSet" ? uid + "/" + name : uid;
  }
  return "pod " + name;
}

Machine::Machine(Turns& turns, ApiServer& server, Observer& observer, std::string name, std::string folder)
    : turns_(turns), server_(server), observer_(observer), name_(std::move(name)), folder_(std::move(folder)) {
  (void)layout().Make();
}

agent::Layout Machine::layout() const {
  const std::string root = folder_ + "/" + std::to_string(lives_);
  return {.run = root + "/run", .state = root + "/state", .kubelet = root + "/kubelet"};
}

void Machine::NewLife() {
  socket = nullptr;
  const std::string old = folder_ + "/" + std::to_string(lives_);
  ++lives_;
  std::filesystem::rename(old, folder_ + "/" + std::to_string(lives_));
}

std::string Machine::Here(const std::string& path) const {
  const size_t rest = path.find('/', folder_.size() + 1);
  return folder_ + "/" + std::to_string(lives_) + path.substr(rest);
}

bool Machine::AnyFrozen() const {
  return std::any_of(containers_.begin(), containers_.end(), [](const auto& c) { return c.second.state == ContainerState::kPaused; });
}

// --- what containers do ------------------------------------------------------------------------------------------------------------

void Machine::Freeze(Container& c) {
  if (c.state != ContainerState::kRunning) return;
  c.memory.count += (turns_.Mono() - c.since) / kTick;
  c.state = ContainerState::kPaused;
  observer_.Froze(name_, c);
}

void Machine::Thaw(Container& c) {
  if (c.state != ContainerState::kPaused) return;
  c.since = turns_.Mono();
  c.state = ContainerState::kRunning;
  observer_.Thawed(name_, c);
}

void Machine::Kill(Container& c, bool crashed) {
  if (c.state == ContainerState::kStopped) return;
  if (c.state == ContainerState::kRunning) c.memory.count += (turns_.Mono() - c.since) / kTick;
  c.state = ContainerState::kStopped;
  observer_.Ended(name_, c, crashed);
}

std::string Machine::CrashOne(Random& random) {
  std::vector<Container*> running;
  for (auto& [id, c] : containers_) {
    if (c.state == ContainerState::kRunning) running.push_back(&c);
  }
  if (running.empty()) return "";
  Container& c = *running[random.Below(running.size())];
  c.exit_code = 1;
  Kill(c, true);
  return c.pod + " " + c.name;
}

void Machine::LosePower() {
  up_ = false;
  ++boots_;
  socket = nullptr;
  kubelet_is_new_ = true;
  for (auto& [checkpoint, killed] : dumps_) *killed = true;
  dumps_.clear();
  for (auto& [id, c] : containers_) Kill(c, true);
  containers_.clear();
  std::filesystem::remove_all(layout().run);
  (void)layout().Make();
  DropUnsynced(layout().state + "/landing");
  for (const std::string& name : ListDir(layout().state + "/restore").value_or({})) {
    if (!name.ends_with(".json")) DropUnsynced(layout().state + "/restore/" + name);
  }
}

void Machine::DropUnsynced(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (entry.is_regular_file() && name != runtime::kTryingFile && name != kVolumesInUse) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    const uint64_t fate = turns_.random().Below(3);
    if (fate == 0) std::filesystem::remove(file);
    if (fate == 1) (void)WriteFileAtomically(file, "");
  }
}

// --- what the agent asks for -------------------------------------------------------------------------------------------------------

Result<uint64_t> Machine::Estimate(const std::vector<std::string>&, const std::vector<std::string>&) { return uint64_t{1} << 20; }

Status Machine::StartDump(const std::string& checkpoint_uid, const std::string& landing) {
  auto killed = std::make_shared<bool>(false);
  dumps_[checkpoint_uid] = killed;
  (void)turns_.Start([this, checkpoint_uid, landing, killed] { Dump(checkpoint_uid, landing, killed); });
  return Status::Ok();
}

// holdfast-runc dump.
void Machine::Dump(std::string checkpoint_uid, std::string landing, std::shared_ptr<bool> killed) {
  auto over = [&] {
    const auto own = dumps_.find(checkpoint_uid);
    if (own != dumps_.end() && own->second == killed) dumps_.erase(own);
  };
  turns_.Pause(turns_.random().Between(milliseconds(5), milliseconds(60)));
  if (*killed) return;
  Result<std::string> text = ReadFile(Here(landing) + "/request.json");
  Result<Json> json = text.ok() ? ParseJson(*text) : Result<Json>(text.status());
  Result<runtime::DumpRequest> request = json.ok() ? runtime::DumpRequest::FromJson(*json) : Result<runtime::DumpRequest>(json.status());
  if (!request.ok()) return over();
  runtime::DumpResult result;
  result.ok = true;
  result.frozen_at_unix_ms = Ms(clock_.Wall());
  const MonoTime frozen = turns_.Mono();
  for (const runtime::DumpContainer& one : request->containers) {
    const auto c = containers_.find(one.id);
    if (c == containers_.end() || c->second.state != ContainerState::kRunning) {
      result = {.ok = false, .reason = "PodGone", .message = "container " + one.name + " does not run"};
      break;
    }
    Freeze(c->second);
  }
  if (result.ok) {
    turns_.Pause(turns_.random().Between(milliseconds(100), milliseconds(1500)));
    if (*killed) return;  // what it froze stays frozen: whoever killed it sees to that
    if (turns_.random().Chance(failing_dumps)) result = {.ok = false, .reason = "DumpFailed", .message = "CRIU: no"};
    if (Ms(clock_.Wall()) >= request->deadline_unix_ms) result = {.ok = false, .reason = "Deadline", .message = "too late"};
  }
  const std::string dir = Here(landing);
  for (const runtime::DumpContainer& one : request->containers) {
    const auto found = containers_.find(one.id);
    if (found == containers_.end()) continue;
    Container& c = found->second;
    if (result.ok && c.state != ContainerState::kPaused) result = {.ok = false, .reason = "PodGone", .message = one.name + " has ended"};
    if (!result.ok || !request->final) Thaw(c);
    if (!result.ok) continue;
    const std::string images = dir + "/" + one.name + "/images";
    const Json image = {{"lineage", c.memory.lineage}, {"count", c.memory.count}};
    if (!MakeDirs(images).ok() || !WriteFileAtomically(dir + "/" + one.name + kImage, DumpJson(image)).ok() ||
        !WriteFileAtomically(images + "/inventory.img", "criu").ok()) {
      result = {.ok = false, .reason = "DumpFailed", .message = "the landing folder is gone"};
      Thaw(c);
    }
  }
  if (result.ok) result.reason = "Completed";
  result.frozen_ms = result.dump_ms = (turns_.Mono() - frozen) / milliseconds(1);
  result.memory_bytes = pod_bytes;
  over();
  (void)WriteFileAtomically(dir + "/result.json", DumpJson(result.ToJson()));
}

bool Machine::DumpRunning(const std::string& checkpoint_uid, const std::string&) { return dumps_.contains(checkpoint_uid); }

Status Machine::KillDump(const std::string& checkpoint_uid) {
  const auto found = dumps_.find(checkpoint_uid);
  if (found == dumps_.end()) return Status::Ok();
  *found->second = true;
  dumps_.erase(found);
  return Status::Ok();
}

Status Machine::Resume(const std::string& id) {
  const auto found = containers_.find(id);
  if (found != containers_.end()) Thaw(found->second);
  return Status::Ok();
}

Result<ContainerState> Machine::StateOf(const std::string& id) {
  const auto found = containers_.find(id);
  return found == containers_.end() ? ContainerState::kGone : found->second.state;
}

Result<std::vector<agent::NodeContainer>> Machine::Containers() {
  std::vector<agent::NodeContainer> all;
  for (const auto& [id, c] : containers_) all.push_back({c.id, c.pod_uid, c.ns, c.pod, c.name, true});
  return all;
}

Status Machine::End(const std::vector<std::string>& ids) {
  for (const std::string& id : ids) {
    const auto found = containers_.find(id);
    if (found != containers_.end()) Kill(found->second);
  }
  return Status::Ok();
}

Status Machine::RemoveContainer(const std::string& id) {
  const auto found = containers_.find(id);
  if (found == containers_.end()) return Status::Ok();
  Kill(found->second);
  containers_.erase(found);
  return Status::Ok();
}

Json Machine::Platform() { return {{"arch", "amd64"}, {"kernel", "6.18"}, {"cpuFeatures", "avx avx2"}, {"criu", "4.2"}}; }

// --- the kubelet -------------------------------------------------------------------------------------------------------------------

void Machine::LookAtPods() {
  if (!up_) return;
  if (std::exchange(kubelet_is_new_, false)) pods_.clear();
  std::set<std::string> there;
  const int boot = boots_;
  for (const ApiServer::Object& pod : server_.All("pods")) {
    if (GetString(*pod, {"spec", "nodeName"}) != name_) continue;
    there.insert(GetString(*pod, {"metadata", "uid"}));
    TendPod(*pod);
    if (boots_ != boot) return;
  }
  for (auto at = pods_.begin(); at != pods_.end();) {
    if (there.contains(at->first)) {
      ++at;
      continue;
    }
    // Deleted by force: what is left of it is removed.
    for (auto c = containers_.begin(); c != containers_.end();) {
      if (c->second.pod_uid != at->first) {
        ++c;
        continue;
      }
      Kill(c->second);
      c = containers_.erase(c);
    }
    (void)RemoveAll(layout().KubeletPod(at->first));
    at = pods_.erase(at);
  }
}

void Machine::TendPod(const Json& pod) {
  const std::string uid = GetString(pod, {"metadata", "uid"});
  Pod& state = pods_[uid];
  if (turns_.Mono() < state.next) return;
  if (!GetString(pod, {"metadata", "deletionTimestamp"}).empty()) return EndPod(pod);
  if (IsOver(pod)) return;
  TendEnded(pod, state);
  const Json& containers = GetArray(pod, {"spec", "containers"});
  if (state.ids.size() + state.ended.size() == containers.size()) return;
  (void)MakeDirs(layout().KubeletPod(uid));
  const int boot = boots_;
  if (!TendWait(pod, state)) return;
  for (const Json& one : containers) {
    const std::string name = GetString(one, {"name"});
    if (boots_ != boot) return;
    if (state.ids.contains(name) || state.ended.contains(name)) continue;
    if (missing_images.contains(GetString(one, {"image"}))) {
      state.next = turns_.Mono() + std::chrono::seconds(1);
      continue;
    }
    StartContainer(pod, state, name);
  }
}

// What has ended is started anew, unless the pod's restartPolicy says no.
void Machine::TendEnded(const Json& pod, Pod& state) {
  const std::string policy = GetString(pod, {"spec", "restartPolicy"});
  const size_t before = state.ended.size();
  if (policy != "Always") {
    for (const auto& [name, id] : state.ids) {
      const auto c = containers_.find(id);
      if (c == containers_.end() || c->second.state != ContainerState::kRunning) continue;
      const int64_t work = WorkOf(pod, name);
      if (work == 0 || c->second.memory.count + (turns_.Mono() - c->second.since) / kTick < work) continue;
      c->second.exit_code = 0;
      Kill(c->second, true);
    }
    // A kubelet that has just started knows what was before from the API, and what it does not find any more has failed.
    for (const Json& one : GetArray(pod, {"status", "containerStatuses"})) {
      const std::string name = GetString(one, {"name"});
      if (state.ids.contains(name) || state.ended.contains(name)) continue;
      const Json* was = Find(one, {"state", "terminated"});
      if (was != nullptr) state.ended[name] = static_cast<int>(GetInt(*was, {"exitCode"}));
      if (was == nullptr && policy == "Never" && one.contains("containerID")) state.ended[name] = 137;
    }
  }
  std::erase_if(state.ids, [&](const auto& one) {
    const auto c = containers_.find(one.second);
    if (c != containers_.end() && c->second.state != ContainerState::kStopped) return false;
    const int code = c == containers_.end() ? 137 : c->second.exit_code;
    if (policy == "Never" || (policy == "OnFailure" && code == 0)) state.ended[one.first] = code;
    if (c != containers_.end()) containers_.erase(c);
    return true;
  });
  if (state.ended.size() != before) Report(pod, state);
}

// runc create failed, and containerd's container has ended with that: the kubelet tries again, but for a pod that is never restarted.
void Machine::NotStarted(const Json& pod, Pod& state, const std::string& name) {
  if (GetString(pod, {"spec", "restartPolicy"}) != "Never") return;
  state.ended[name] = 128;
  Report(pod, state);
}

// Whether the init containers are over.
bool Machine::TendWait(const Json& pod, Pod& state) {
  if (state.wait_over || GetArray(pod, {"spec", "initContainers"}).empty()) return true;
  const std::string uid = GetString(pod, {"metadata", "uid"});
  if (!state.wait_created) {
    if (Exists(layout().PodFile(uid))) {
      for (const Json& one : GetArray(pod, {"spec", "containers"})) NotStarted(pod, state, GetString(one, {"name"}));
      return false;
    }
    state.wait_created = MakeDirs(layout().WaitFolder(uid)).ok();
    Report(pod, state);
  }
  // What holdfast-wait reads.
  Result<std::string> text = ReadFile(layout().WaitFolder(uid) + "/state");
  Result<Json> json = text.ok() ? ParseJson(*text) : Result<Json>(text.status());
  const std::string word = json.ok() ? GetString(*json, {"state"}) : "";
  if (word == "ready" || word == "cold") state.wait_over = true;
  return state.wait_over;
}

// As holdfast-runc does it (runtime/volumes.h): once a pod, before anything of it runs.
void Machine::FillVolumes(const Container& c, const runtime::CreateAnswer& answer) {
  const std::string dir = Here(answer.dir);
  if (!answer.first || Exists(dir + "/" + kVolumesInUse)) return;
  for (const std::string& name : ListDir(dir).value_or({})) {
    if (Exists(dir + "/" + name + "/" + runtime::kRestoredFile)) return;
  }
  for (const auto& [id, other] : containers_) {
    if (other.pod_uid == c.pod_uid && other.state != ContainerState::kStopped) observer_.Emptied(name_, other);
  }
}

// holdfast-runc create and start of a container of the pod.
void Machine::StartContainer(const Json& pod, Pod& state, const std::string& name) {
  Container c;
  c.id = NewId();
  c.pod_uid = GetString(pod, {"metadata", "uid"});
  c.ns = GetString(pod, {"metadata", "namespace"});
  c.pod = GetString(pod, {"metadata", "name"});
  c.name = name;
  c.owner = SeatOf(pod);
  const bool asks = !GetString(pod, {"metadata", "annotations", runtime::kRestoreAnnotation}).empty();
  const int boot = boots_;
  state.next = turns_.Mono() + std::chrono::seconds(1);
  if (Exists(layout().PodFile(c.pod_uid))) return NotStarted(pod, state, name);  // kept frozen, or fenced: no container is made in it
  runtime::CreateAnswer answer;
  answer.action = "cold";
  runtime::CreateQuestion question;
  question.pod_uid = c.pod_uid;
  question.ns = c.ns;
  question.pod = c.pod;
  question.container = c.name;
  question.container_id = c.id;
  if (socket == nullptr && asks) return NotStarted(pod, state, name);
  if (socket != nullptr) answer = socket->Create(question);
  if (boots_ != boot) return;
  if (answer.action == "refuse" || answer.action == "skip") return NotStarted(pod, state, name);
  const ApiServer::Object still = server_.Find("pods", c.ns + "/" + c.pod);
  if (!still || GetString(*still, {"metadata", "uid"}) != c.pod_uid || !GetString(*still, {"metadata", "deletionTimestamp"}).empty())
    return;
  bool restored = false;
  auto start_beside = [&] {  // of what is still to be restored
    FillVolumes(c, answer);
    (void)WriteFileAtomically(Here(answer.dir) + "/" + kVolumesInUse, "");
  };
  if (answer.action == "cold" && !answer.dir.empty()) start_beside();
  if (answer.action == "restore") {
    FillVolumes(c, answer);
    const std::string from = "/" + answer.container, dir = Here(answer.dir) + from;
    (void)WriteFileAtomically(dir + "/" + runtime::kTryingFile, c.id);
    Result<std::string> text = ReadFile(dir + kImage);
    Result<Json> image = text.ok() ? ParseJson(*text) : Result<Json>(text.status());
    if (image.ok()) c.memory = {GetInt(*image, {"lineage"}), GetInt(*image, {"count"})};
    observer_.Tries(c.memory);
    turns_.Pause(turns_.random().Between(milliseconds(50), milliseconds(800)));
    // Its node lost power, or its pod was deleted by force, and with it what it is restored from.
    if (boots_ != boot || (image.ok() && !Exists(Here(answer.dir) + from + kImage))) return;
    // A dump of the pod and a restore in it wait for each other, and then look once more.
    const bool held = Exists(layout().PodFile(c.pod_uid));
    runtime::RestoreOutcome outcome;
    outcome.pod_uid = c.pod_uid;
    outcome.container = c.name;
    outcome.container_id = c.id;
    outcome.ok = image.ok() && !held;
    outcome.seconds = 0.5;
    outcome.message = held ? "the pod has a final checkpoint" : image.ok() ? "" : image.status().message();
    if (outcome.ok) restored = WriteFileAtomically(Here(answer.dir) + from + "/" + runtime::kRestoredFile, c.id).ok();
    if (!outcome.ok) observer_.DidNotRun(c.memory);
    const bool heard = socket != nullptr;
    const runtime::CreateAnswer then = heard ? socket->Outcome(outcome) : answer;
    if (boots_ != boot) return;
    if (!restored && then.action != "cold") return NotStarted(pod, state, name);
    if (!restored && answer.first && answer.more) start_beside();
  }
  if (!restored) c.memory = {observer_.NewLineage(c), 0};
  c.since = turns_.Mono();
  state.ids[c.name] = c.id;
  state.next = {};
  observer_.Started(name_, containers_[c.id] = c, restored);
  Report(pod, state);
}

void Machine::Report(const Json& pod, const Pod& state) {
  const std::string key = GetString(pod, {"metadata", "namespace"}) + "/" + GetString(pod, {"metadata", "name"});
  server_.Update("pods", key, [&](Json& now) {
    if (GetString(now, {"metadata", "uid"}) != GetString(pod, {"metadata", "uid"})) return;
    if (IsOver(now)) return;
    Json statuses = Json::array();
    bool done = true;
    for (const Json& one : GetArray(pod, {"spec", "containers"})) {
      const std::string name = GetString(one, {"name"}), image = GetString(one, {"image"});
      const auto id = state.ids.find(name);
      const auto ended = state.ended.find(name);
      Json status = {{"name", name}, {"image", image}, {"ready", id != state.ids.end()}};
      if (ended != state.ended.end()) {
        for (const Json& before : GetArray(now, {"status", "containerStatuses"})) {
          if (GetString(before, {"name"}) == name && before.contains("containerID")) status["containerID"] = before["containerID"];
        }
        done = done && ended->second == 0;
        status["state"] = {{"terminated", {{"exitCode", ended->second}, {"reason", ended->second == 0 ? "Completed" : "Error"}}}};
      } else if (id == state.ids.end()) {
        status["state"] = {{"waiting", {{"reason", "ContainerCreating"}}}};
      } else {
        status["imageID"] = "docker.io/" + name + "@sha256:abc";
        status["containerID"] = "containerd://" + id->second;
        status["state"] = {{"running", {{"startedAt", FormatTime(turns_.Wall())}}}};
      }
      statuses.push_back(std::move(status));
    }
    const bool all = state.ids.size() == statuses.size();
    if (state.ids.size() + state.ended.size() == statuses.size()) now["status"]["phase"] = "Running";  // and stays so
    if (state.ended.size() == statuses.size()) now["status"]["phase"] = done ? "Succeeded" : "Failed";
    now["status"]["conditions"] = {{{"type", "Ready"}, {"status", all ? "True" : "False"}}};
    now["status"]["containerStatuses"] = std::move(statuses);
  });
}

// As holdfast-runc's kill does: until the dump of a final checkpoint is complete, or 5 s past its deadline.
bool Machine::WaitsForDump(const Container& c) const {
  auto read = [](const std::string& path) {
    Result<std::string> text = ReadFile(path);
    return text.ok() ? ParseJson(*text).value_or(Json()) : Json();
  };
  Result<runtime::Intent> intent = runtime::Intent::FromJson(read(layout().IntentFile(c.id)));
  if (!intent.ok() || !intent->final || Exists(Here(intent->landing) + "/result.json")) return false;
  const Json request = read(Here(intent->landing) + "/request.json");
  return request.is_object() && Ms(clock_.Wall()) < GetInt(request, {"deadline_unix_ms"}) + 5000;
}

// A kill, answered by holdfast-runc: at once for what is kept frozen, else the process ends by its own will.
void Machine::EndPod(const Json& pod) {
  const std::string uid = GetString(pod, {"metadata", "uid"});
  Pod& state = pods_[uid];
  std::erase_if(state.ids, [&](const auto& one) {
    const auto c = containers_.find(one.second);
    if (c == containers_.end()) return true;
    if (WaitsForDump(c->second)) return false;
    Kill(c->second);
    state.ended[one.first] = c->second.exit_code;
    containers_.erase(c);
    return true;
  });
  if (!state.ids.empty()) return;
  if (reports_ends && !IsOver(pod)) {
    for (const Json& one : GetArray(pod, {"spec", "containers"})) state.ended.try_emplace(GetString(one, {"name"}), 137);
    state.next = turns_.Mono() + turns_.random().Between(milliseconds(50), milliseconds(1000));
    return Report(pod, state);
  }
  (void)RemoveAll(layout().KubeletPod(uid));
  pods_.erase(uid);
  kube::HttpRequest gone;
  gone.method = "DELETE";
  gone.path = "/api/v1/namespaces/" + GetString(pod, {"metadata", "namespace"}) + "/pods/" + GetString(pod, {"metadata", "name"});
  gone.body = DumpJson({{"gracePeriodSeconds", 0}, {"preconditions", {{"uid", uid}}}});
  (void)server_.Handle(gone, "kubelet");
}

}  // namespace holdfast::sim
