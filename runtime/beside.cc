#include "runtime/beside.h"

#include <algorithm>
#include <optional>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

namespace holdfast::runtime {
namespace {

std::string Folder(const Node& node) { return node.run + "/beside"; }

// runc keeps an OCI spec's annotations as KEY=VALUE.
std::string Label(const Json& state, std::string_view key) {
  for (const Json& label : GetArray(state, {"config", "labels"})) {
    if (!label.is_string()) continue;
    const std::string& text = label.get_ref<const std::string&>();
    if (text.size() > key.size() && text.starts_with(key) && text[key.size()] == '=') return text.substr(key.size() + 1);
  }
  return "";
}

Status ThawOne(const std::string& runc_root, const std::string& id) {
  Result<Freezer> freezer = Freezer::Of(runc_root, id);
  if (!freezer.ok()) return freezer.status().code() == Code::kNotFound ? Status::Ok() : freezer.status();
  return freezer->Thaw();
}

}  // namespace

std::vector<PodContainer> ContainersOfPod(const std::string& runc_root, const std::string& pod_uid) {
  std::vector<PodContainer> found;
  for (const std::string& id : ListDir(runc_root).value_or({})) {
    const std::string text = ReadFile(runc_root + "/" + id + "/state.json").value_or("");
    if (text.find(pod_uid) == std::string::npos) continue;  // most are of other pods, and long
    Result<Json> state = ParseJson(text);
    if (!state.ok() || Label(*state, "io.kubernetes.cri.sandbox-uid") != pod_uid) continue;
    if (Label(*state, "io.kubernetes.cri.container-type") == "sandbox") continue;
    found.push_back({id, Label(*state, "io.kubernetes.cri.container-name")});
  }
  return found;
}

std::string HeldBeside::Freeze(const std::vector<std::string>& except, MonoTime until) {
  std::string running;
  Status left = ThawLeft(node_, pod_uid_);
  if (!left.ok()) LogWarning("an earlier dump or restore left containers frozen", {{"error", left.message()}});
  for (const PodContainer& container : ContainersOfPod(runc_root_, pod_uid_)) {
    if (std::find(except.begin(), except.end(), container.id) != except.end()) continue;
    Result<Freezer> freezer = Freezer::Of(runc_root_, container.id);
    Status status = freezer.ok() ? Status::Ok() : freezer.status();
    if (status.ok() && freezer->IsFrozen()) continue;  // by somebody else, who will thaw it
    if (status.ok()) status = MakeDirs(Folder(node_));
    const Json note = {{"pod_uid", pod_uid_}, {"runc_root", runc_root_}};
    if (status.ok()) status = WriteFileAtomically(Folder(node_) + "/" + container.id, DumpJson(note));
    if (status.ok()) {
      held_.emplace_back(container.id, *freezer);
      status = freezer->Freeze(until);
    }
    if (status.ok() || status.code() == Code::kNotFound) continue;  // it has just ended
    running += (running.empty() ? "" : "; ") + ("container " + container.name + " runs on: " + status.message());
  }
  if (!running.empty())
    LogWarning("containers of the pod run on while its volumes are read or filled", {{"pod", pod_uid_}, {"why", running}});
  return running;
}

void HeldBeside::Thaw() {
  for (const auto& [id, freezer] : held_) {
    Status thawed = freezer.Thaw();
    if (thawed.ok()) thawed = ForgetBeside(node_, id);
    if (!thawed.ok()) LogError("a container stays frozen", {{"container", id}, {"error", thawed.message()}});
  }
  held_.clear();
}

Status ThawLeft(const Node& node, const std::string& locked) {
  Status first;
  for (const std::string& id : ListDir(Folder(node)).value_or({})) {
    Result<std::string> text = ReadFile(Folder(node) + "/" + id, 65536);
    Result<Json> note = text.ok() ? ParseJson(*text) : Result<Json>(text.status());
    if (!note.ok()) continue;  // it goes just now; or it is no note of ours
    const std::string pod_uid = GetString(*note, {"pod_uid"});
    std::optional<PodLock> lock;
    if (pod_uid != locked) {
      Result<PodLock> taken = PodLock::Take(node, pod_uid, MonoTime());
      if (!taken.ok()) continue;  // whoever holds it thaws
      lock.emplace(std::move(*taken));
    }
    if (!IsHeldBeside(node, id)) continue;
    Status thawed = ThawOne(GetString(*note, {"runc_root"}), id);
    if (thawed.ok()) thawed = ForgetBeside(node, id);
    if (!thawed.ok() && first.ok()) first = thawed.With("container " + id);
  }
  return first;
}

bool IsHeldBeside(const Node& node, const std::string& container_id) {
  return IsSafeName(container_id) && Exists(Folder(node) + "/" + container_id);
}

Status ForgetBeside(const Node& node, const std::string& container_id) {
  return IsSafeName(container_id) ? RemoveAll(Folder(node) + "/" + container_id) : Status::Ok();
}

}  // namespace holdfast::runtime
