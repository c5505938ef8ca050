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

int64_t Ms(WallTime at) { return std::chrono::duration_cast<milliseconds>(at.time_since_epoch()).count(); }

std::string OwnerOf(const Json& pod) {
  for (const Json& owner : GetArray(pod, {"metadata", "ownerReferences"})) return GetString(owner, {"uid"});
  return "";
}

}  // namespace

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

void Machine::Kill(Container& c) {
  if (c.state == ContainerState::kStopped) return;
  if (c.state == ContainerState::kRunning) c.memory.count += (turns_.Mono() - c.since) / kTick;
  c.state = ContainerState::kStopped;
  observer_.Ended(name_, c);
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
  result.frozen_at_unix_ms = Ms(turns_.Wall());
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
    if (Ms(turns_.Wall()) >= request->deadline_unix_ms) result = {.ok = false, .reason = "Deadline", .message = "too late"};
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
  result.memory_bytes = 64;
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
  std::set<std::string> there;
  for (const ApiServer::Object& pod : server_.All("pods")) {
    if (GetString(*pod, {"spec", "nodeName"}) != name_) continue;
    there.insert(GetString(*pod, {"metadata", "uid"}));
    TendPod(*pod);
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
  if (!state.main.empty()) return;
  (void)MakeDirs(layout().KubeletPod(uid));
  if (!TendWait(pod, state)) return;
  StartMain(pod, state);
}

// Whether the init containers are over.
bool Machine::TendWait(const Json& pod, Pod& state) {
  if (state.wait_over || GetArray(pod, {"spec", "initContainers"}).empty()) return true;
  const std::string uid = GetString(pod, {"metadata", "uid"});
  if (!state.wait_created) {
    runtime::CreateQuestion question;
    question.pod_uid = uid;
    question.ns = GetString(pod, {"metadata", "namespace"});
    question.pod = GetString(pod, {"metadata", "name"});
    question.container = runtime::kWaitContainer;
    question.container_id = NewId();
    if (socket == nullptr) {
      state.next = turns_.Mono() + std::chrono::seconds(1);
      return false;
    }
    const runtime::CreateAnswer answer = socket->Create(question);
    if (answer.action == "refuse") {
      state.next = turns_.Mono() + std::chrono::seconds(1);
      return false;
    }
    state.wait_created = true;
    if (answer.action == "skip") return state.wait_over = true;
  }
  // What holdfast-wait reads.
  Result<std::string> text = ReadFile(layout().WaitFolder(uid) + "/state");
  Result<Json> json = text.ok() ? ParseJson(*text) : Result<Json>(text.status());
  const std::string word = json.ok() ? GetString(*json, {"state"}) : "";
  if (word == "ready" || word == "cold") state.wait_over = true;
  return state.wait_over;
}

// holdfast-runc create and start of the pod's only container.
void Machine::StartMain(const Json& pod, Pod& state) {
  Container c;
  c.id = NewId();
  c.pod_uid = GetString(pod, {"metadata", "uid"});
  c.ns = GetString(pod, {"metadata", "namespace"});
  c.pod = GetString(pod, {"metadata", "name"});
  c.name = "main";
  c.owner = OwnerOf(pod);
  const bool asks = !GetString(pod, {"metadata", "annotations", runtime::kRestoreAnnotation}).empty();
  state.next = turns_.Mono() + std::chrono::seconds(1);
  if (Exists(layout().PodFile(c.pod_uid))) return;  // kept frozen, or fenced: no container is made in it
  runtime::CreateAnswer answer;
  answer.action = "cold";
  runtime::CreateQuestion question;
  question.pod_uid = c.pod_uid;
  question.ns = c.ns;
  question.pod = c.pod;
  question.container = c.name;
  question.container_id = c.id;
  if (socket == nullptr && asks) return;
  if (socket != nullptr) answer = socket->Create(question);
  if (answer.action == "refuse" || answer.action == "skip") return;
  const ApiServer::Object still = server_.Find("pods", c.ns + "/" + c.pod);
  if (!still || GetString(*still, {"metadata", "uid"}) != c.pod_uid || !GetString(*still, {"metadata", "deletionTimestamp"}).empty())
    return;
  bool restored = false;
  if (answer.action == "restore") {
    turns_.Pause(turns_.random().Between(milliseconds(50), milliseconds(800)));
    const std::string dir = Here(answer.dir) + "/" + answer.container;
    Result<std::string> text = ReadFile(dir + kImage);
    Result<Json> image = text.ok() ? ParseJson(*text) : Result<Json>(text.status());
    runtime::RestoreOutcome outcome;
    outcome.pod_uid = c.pod_uid;
    outcome.container = c.name;
    outcome.container_id = c.id;
    outcome.ok = image.ok();
    outcome.seconds = 0.5;
    outcome.message = image.ok() ? "" : image.status().message();
    if (outcome.ok) {
      c.memory = {GetInt(*image, {"lineage"}), GetInt(*image, {"count"})};
      restored = WriteFileAtomically(dir + "/" + runtime::kRestoredFile, c.id).ok();
    }
    const bool heard = socket != nullptr;
    const runtime::CreateAnswer then = heard ? socket->Outcome(outcome) : answer;
    if (!restored && then.action != "cold") return;
  }
  if (!restored) c.memory.lineage = observer_.NewLineage(c);
  c.since = turns_.Mono();
  state.main = c.id;
  state.next = {};
  observer_.Started(name_, containers_[c.id] = c, restored);
  Report(pod, state);
}

void Machine::Report(const Json& pod, const Pod& state) {
  const std::string key = GetString(pod, {"metadata", "namespace"}) + "/" + GetString(pod, {"metadata", "name"});
  server_.Update("pods", key, [&](Json& now) {
    if (GetString(now, {"metadata", "uid"}) != GetString(pod, {"metadata", "uid"})) return;
    now["status"]["phase"] = "Running";
    now["status"]["conditions"] = {{{"type", "Ready"}, {"status", "True"}}};
    now["status"]["containerStatuses"] = {{{"name", "main"},
                                           {"containerID", "containerd://" + state.main},
                                           {"image", "counter:1"},
                                           {"imageID", "docker.io/counter@sha256:abc"},
                                           {"ready", true},
                                           {"state", {{"running", {{"startedAt", FormatTime(turns_.Wall())}}}}}}};
  });
}

// A kill, answered by holdfast-runc: at once for what is kept frozen, else the process ends by its own will.
void Machine::EndPod(const Json& pod) {
  const std::string uid = GetString(pod, {"metadata", "uid"});
  const Pod& state = pods_[uid];
  if (const auto c = containers_.find(state.main); c != containers_.end()) {
    // A dump is under way, or its result is being stored: containerd's stop waits at a frozen container until its grace is over.
    const bool kept = Exists(layout().PodFile(uid));
    const bool overdue = ParseTime(GetString(pod, {"metadata", "deletionTimestamp"})).value_or(turns_.Wall()) <= turns_.Wall();
    if (c->second.state == ContainerState::kPaused && !kept && !overdue) return;
    Kill(c->second);
    containers_.erase(c);
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
