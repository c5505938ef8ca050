#include "agent/kube_cluster.h"

#include <algorithm>

#include "kube/list_stream.h"

namespace holdfast::agent {
namespace {

constexpr Duration kCall = std::chrono::seconds(5);
constexpr Duration kProbe = std::chrono::seconds(2);
constexpr int kTries = 5;            // of an optimistic lock
constexpr size_t kMaxRestores = 20;  // as many as status.restores holds

kube::CallOptions Plain() {
  kube::CallOptions options;
  options.timeout = kCall;
  return options;
}

kube::CallOptions OfStatus() {
  kube::CallOptions options = Plain();
  options.subresource = "status";
  return options;
}

constexpr char kStarted[] = "Started";

// What stands there of this pod's restore. The API server of an older CRD drops uids; names come again (StatefulSets), so one from before
// the claim was another pod's.
Json::iterator EntryOf(Json& restores, const api::Restore& restore, const std::string& claimed_at) {
  const auto claimed = ParseTime(claimed_at);
  return std::find_if(restores.begin(), restores.end(), [&](const Json& r) {
    if (const std::string uid = GetString(r, {"podUID"}); !uid.empty()) return uid == restore.pod_uid;
    const auto at = ParseTime(GetString(r, {"at"}));
    return GetString(r, {"podName"}) == restore.pod_name && claimed && at && *at >= *claimed;
  });
}

}  // namespace

KubeCluster::KubeCluster(kube::Client& client, const std::string& node_name, kube::RuntimeMetrics* metrics)
    : client_(client),
      applier_(client, "holdfast-agent"),
      node_name_(node_name),
      checkpoints_(client, {.field_selector = "status.nodeName=" + node_name}),
      pods_(client, {.field_selector = "spec.nodeName=" + node_name}),
      events_(client, "holdfast.dev/agent", node_name, metrics) {
  checkpoints_.AddIndex("uid", [](const api::Checkpoint& cp) { return std::vector<std::string>{cp.meta.uid}; });
}

void KubeCluster::Start() {
  checkpoints_.Start();
  pods_.Start();
}

void KubeCluster::Stop() {
  checkpoints_.Stop();
  pods_.Stop();
}

std::set<std::string> KubeCluster::PodUids() const {
  std::set<std::string> uids;
  for (const auto& pod : pods_.List()) uids.insert(pod->meta.uid);
  return uids;
}

Result<api::Checkpoint> KubeCluster::CachedCheckpoint(const std::string& uid) {
  for (const auto& cp : checkpoints_.ByIndex("uid", uid)) return *cp;
  if (!checkpoints_.synced()) return Status(Code::kUnavailable, "the list of Checkpoints has not come yet");
  return Status(Code::kNotFound, "no Checkpoint with uid " + uid + " on this node");
}

Result<kube::Pod> KubeCluster::CachedPod(const std::string& ns, const std::string& name) {
  if (auto pod = pods_.Get(ns, name)) return *pod;
  if (!pods_.synced()) return Status(Code::kUnavailable, "the list of pods has not come yet");
  return Status(Code::kNotFound, "no pod " + ns + "/" + name + " on this node");
}

std::vector<api::Checkpoint> KubeCluster::CachedCheckpoints() {
  std::vector<api::Checkpoint> all;
  for (const auto& cp : checkpoints_.List()) all.push_back(*cp);
  return all;
}

Status KubeCluster::Probe() {
  kube::CallOptions options;
  options.timeout = kProbe;
  return client_.Get(kube::Node::kResource, "", node_name_, options).status();
}

Result<std::vector<kube::Pod>> KubeCluster::ListPods() {
  HF_ASSIGN_OR_RETURN(std::vector<Json> items,
                      client_.List(kube::Pod::kResource, {.field_selector = "spec.nodeName=" + node_name_}, Plain()));
  std::vector<kube::Pod> pods;
  pods.reserve(items.size());
  for (const Json& item : items) pods.push_back(kube::Pod::FromJson(item));
  return pods;
}

// A node may have made many of them.
Result<std::vector<api::Checkpoint>> KubeCluster::ListCheckpoints() {
  auto read = [](const Json& item) { return std::optional(api::Checkpoint::FromJson(item)); };
  const kube::ListSpec list{
      .resource = api::Checkpoint::kResource, .scope = {.field_selector = "status.nodeName=" + node_name_}, .timeout = kCall};
  return kube::Gather<api::Checkpoint>(client_, list, read, {});
}

Result<api::Checkpoint> KubeCluster::GetCheckpoint(const std::string& ns, const std::string& name) {
  return client_.Get<api::Checkpoint>(ns, name, Plain());
}

Result<kube::Pod> KubeCluster::GetPod(const std::string& ns, const std::string& name) { return client_.Get<kube::Pod>(ns, name, Plain()); }

Status KubeCluster::PatchStatus(const std::string& ns, const std::string& name, const std::string& uid, const Json& patch) {
  Json guarded = patch;
  guarded["metadata"]["uid"] = uid;  // the API server answers 409 when the object of that name is another one
  Result<Json> patched = client_.Patch(api::Checkpoint::kResource, ns, name, kube::PatchType::kMerge, guarded, OfStatus());
  if (!patched.ok()) return patched.status();
  checkpoints_.Observe(*patched);
  return Status::Ok();
}

Result<bool> KubeCluster::Claim(const std::string& ns, const std::string& name, const std::string& uid, const api::Claim& claim) {
  for (int i = 0; i < kTries; ++i) {
    HF_ASSIGN_OR_RETURN(Json object, client_.Get(api::Checkpoint::kResource, ns, name, Plain()));
    const api::Checkpoint cp = api::Checkpoint::FromJson(object);
    if (cp.meta.uid != uid) return Status(Code::kNotFound, "Checkpoint " + ns + "/" + name + " is another one now");
    if (cp.status.claim) return cp.status.claim->pod_uid == claim.pod_uid;
    object["status"]["claim"] = api::ToJson(claim);
    Result<Json> updated = client_.Update(api::Checkpoint::kResource, ns, name, object, OfStatus());
    if (updated.ok()) {
      checkpoints_.Observe(*updated);
      return true;
    }
    // kConflict: somebody wrote in between. Whether a call without an answer took effect, the next Get tells.
    if (updated.status().code() != Code::kConflict && updated.status().code() != Code::kDeadlineExceeded) return updated.status();
  }
  return Status(Code::kUnavailable, "status.claim of " + ns + "/" + name + " is written by others all the time");
}

Status KubeCluster::AppendRestore(const std::string& ns, const std::string& name, const std::string& uid, const api::Restore& restore) {
  for (int i = 0; i < kTries; ++i) {
    HF_ASSIGN_OR_RETURN(Json object, client_.Get(api::Checkpoint::kResource, ns, name, Plain()));
    if (GetString(object, {"metadata", "uid"}) != uid)
      return Status(Code::kNotFound, "Checkpoint " + ns + "/" + name + " is another one now");
    Json& status = object["status"];
    Json restores = GetArray(status, {"restores"});
    if (!restores.is_array()) restores = Json::array();
    // The claim was taken back, since this pod was gone, or had ended: somebody else may go on from it.
    if (restore.outcome == kStarted && GetString(status, {"claim", "podUID"}) != restore.pod_uid)
      return Status(Code::kFailedPrecondition, "Checkpoint " + ns + "/" + name + " is not given to pod " + restore.pod_name + " any more");
    const auto own = EntryOf(restores, restore, GetString(status, {"claim", "at"}));
    // The answer to an earlier write may have been lost; and what is known is not taken back.
    if (own != restores.end() && (restore.outcome == kStarted || GetString(*own, {"outcome"}) != kStarted)) return Status::Ok();
    if (own != restores.end()) restores.erase(own);
    restores.push_back(api::ToJson(restore));
    while (restores.size() > kMaxRestores) restores.erase(restores.begin());
    status["restores"] = restores;
    Result<Json> updated = client_.Update(api::Checkpoint::kResource, ns, name, object, OfStatus());
    if (updated.ok()) return Status::Ok();
    if (updated.status().code() != Code::kConflict) return updated.status();
  }
  return Status(Code::kUnavailable, "status.restores of " + ns + "/" + name + " is written by others all the time");
}

Status KubeCluster::TellCondition(const kube::Pod& pod, const std::string& type, const std::optional<kube::Condition>& condition) {
  Json list = Json::array();
  if (condition) {
    list.push_back({{"type", type},
                    {"status", condition->status},
                    {"reason", condition->reason},
                    {"message", condition->message},
                    {"lastTransitionTime", condition->last_transition_time}});
  }
  const Json intent = {{"apiVersion", "v1"},
                       {"kind", "Pod"},
                       {"metadata", {{"name", pod.meta.name}, {"uid", pod.meta.uid}}},
                       {"status", {{"conditions", list}}}};
  return applier_.ApplyStatus(kube::Pod::kResource, pod.meta.ns, intent, Plain()).status();
}

void KubeCluster::Event(bool warning, const kube::ObjectReference& about, const std::string& reason, const std::string& action,
                        const std::string& note) {
  if (warning)
    events_.Warning(about, reason, action, note);
  else
    events_.Normal(about, reason, action, note);
}

void KubeCluster::PodEvent(bool warning, const std::string& ns, const std::string& name, const std::string& uid, const std::string& reason,
                           const std::string& note) {
  Event(warning, {"v1", "Pod", ns, name, uid}, reason, "Checkpoint", note);
}

void KubeCluster::CheckpointEvent(bool warning, const std::string& ns, const std::string& name, const std::string& uid,
                                  const std::string& reason, const std::string& note) {
  Event(warning, {api::Checkpoint::kResource.ApiVersion(), "Checkpoint", ns, name, uid}, reason, "Checkpoint", note);
}

Result<Json> KubeCluster::GetNode(const std::string& name) { return client_.Get(kube::Node::kResource, "", name, Plain()); }

Status KubeCluster::ApplyToNode(const std::string& name, Json intent) {
  HF_ASSIGN_OR_RETURN(Json node, GetNode(name));
  intent["metadata"]["name"] = name;
  intent["metadata"]["uid"] = GetString(node, {"metadata", "uid"});  // or a node that was deleted in between would be asked for anew
  return applier_.Apply(kube::Node::kResource, "", intent, Plain()).status();
}

void KubeCluster::NodeEvent(bool warning, const std::string& name, const std::string& reason, const std::string& note) {
  Event(warning, {"v1", "Node", "", name, name}, reason, "Install", note);  // as the kubelet does: a node's events carry its name as uid
}

}  // namespace holdfast::agent
