#include "storage/server/authorizer.h"

namespace holdfast::storage {
namespace {

using std::chrono::seconds;

constexpr size_t kMaxKnown = 4096;
constexpr Duration kYesFor = std::chrono::minutes(10), kReadFor = seconds(60), kNoFor = seconds(1);
constexpr Duration kPatience = seconds(5);  // with the API server, for each question

const kube::Resource kCheckpoints{
    .group = "holdfast.dev", .version = "v1alpha1", .plural = "checkpoints", .kind = "Checkpoint", .namespaced = true};
const kube::Resource kPods{.group = "", .version = "v1", .plural = "pods", .kind = "Pod", .namespaced = true};

Status NotYours(const std::string& node, const std::string& checkpoint, const std::string& why) {
  return Status(Code::kPermissionDenied, "checkpoint " + checkpoint + " is not node " + node + "'s: " + why);
}

}  // namespace

Status KubeAuthorizer::Check(const std::string& node, Use use, const std::string& ns, const std::string& checkpoint, std::stop_token stop) {
  const Key key{node, use, checkpoint};
  {
    std::lock_guard lock(mutex_);
    auto known = known_.find(key);
    if (known != known_.end() && clock_.Mono() < known->second.until) return known->second.answer;
  }
  Status answer = Ask(node, use, ns, checkpoint, stop);
  if (answer.code() == Code::kUnavailable) return answer;
  const Duration keep = !answer.ok() ? kNoFor : use == Use::kRead ? kReadFor : kYesFor;
  std::lock_guard lock(mutex_);
  if (known_.size() >= kMaxKnown) {
    std::erase_if(known_, [&](const auto& entry) { return clock_.Mono() >= entry.second.until; });
    if (known_.size() >= kMaxKnown) known_.clear();
  }
  known_[key] = Known{.answer = answer, .until = clock_.Mono() + keep};
  // Whoever may write it may end it, also while the API server is away.
  if (answer.ok() && use == Use::kWrite) known_[{node, Use::kEnd, checkpoint}] = known_[key];
  return answer;
}

Status KubeAuthorizer::Ask(const std::string& node, Use use, const std::string& ns, const std::string& checkpoint,
                           const std::stop_token& stop) {
  kube::CallOptions options;
  options.timeout = kPatience;
  options.stop = stop;
  Result<std::vector<Json>> list = client_->List(kCheckpoints, {.ns = ns, .label_selector = "", .field_selector = ""}, options);
  if (!list.ok()) return Status(Code::kUnavailable, "the API server does not tell whose checkpoints they are: " + list.status().ToString());
  const Json* found = nullptr;
  for (const Json& item : *list) {
    // One that was made anew: an agent could write the manifest's id into a status of its own, but not the annotation too.
    const bool adopted = use == Use::kRead && GetString(item, {"metadata", "annotations", "holdfast.dev/manifest"}) == checkpoint &&
                         GetString(item, {"status", "manifest", "id"}) == checkpoint;
    if (adopted || GetString(item, {"metadata", "uid"}) == checkpoint) found = &item;
  }
  if (found == nullptr) return Status(Code::kNotFound, "there is no Checkpoint with uid " + checkpoint + " in namespace " + ns);
  const std::string made_on = GetString(*found, {"status", "nodeName"});
  if (!node.empty() && made_on == node) return Status::Ok();
  if (use != Use::kRead) return NotYours(node, checkpoint, made_on.empty() ? "it is not assigned yet" : "it is node " + made_on + "'s");
  const std::string pod_name = GetString(*found, {"status", "claim", "podName"}),
                    pod_uid = GetString(*found, {"status", "claim", "podUID"});
  if (pod_name.empty() || pod_uid.empty()) return NotYours(node, checkpoint, "no pod has claimed it");
  Result<Json> pod = client_->Get(kPods, ns, pod_name, options);
  if (pod.status().code() == Code::kNotFound) return NotYours(node, checkpoint, "pod " + pod_name + ", which has claimed it, is gone");
  if (!pod.ok()) return Status(Code::kUnavailable, "the API server does not tell where pods run: " + pod.status().ToString());
  const bool runs_here = !node.empty() && GetString(*pod, {"spec", "nodeName"}) == node;
  if (GetString(*pod, {"metadata", "uid"}) == pod_uid && runs_here) return Status::Ok();
  return NotYours(node, checkpoint, "pod " + pod_name + ", which has claimed it, does not run there");
}

}  // namespace holdfast::storage
