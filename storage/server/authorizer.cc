#include "storage/server/authorizer.h"

#include "kube/list_stream.h"

namespace holdfast::storage {
namespace {

using std::chrono::seconds;

constexpr size_t kMaxKnown = 4096, kPage = 500;
const std::initializer_list<std::string_view> kManifestOf = {"metadata", "annotations", "holdfast.dev/manifest"};
constexpr Duration kYesFor = std::chrono::minutes(10), kReadFor = seconds(60), kNoFor = seconds(1);
constexpr Duration kPatience = seconds(5);  // with the API server, for each question

const kube::Resource kCheckpoints{
    .group = "holdfast.dev", .version = "v1alpha1", .plural = "checkpoints", .kind = "Checkpoint", .namespaced = true};
const kube::Resource kPods{.group = "", .version = "v1", .plural = "pods", .kind = "Pod", .namespaced = true};

Status NotYours(const std::string& node, const std::string& checkpoint, const std::string& why) {
  return Status(Code::kPermissionDenied, "checkpoint " + checkpoint + " is not node " + node + "'s: " + why);
}

Status Silent(const Status& why) {
  return Status(Code::kUnavailable, "the API server does not tell whose checkpoints they are: " + why.ToString());
}

}  // namespace

Status KubeAuthorizer::Check(const std::string& node, Use use, const std::string& ns, const std::string& checkpoint, std::stop_token stop) {
  const Key key{node, use, ns, checkpoint};
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
  if (answer.ok() && use == Use::kWrite) known_[{node, Use::kEnd, ns, checkpoint}] = known_[key];
  return answer;
}

Result<Json> KubeAuthorizer::Find(Use use, const std::string& ns, const std::string& checkpoint, const kube::CallOptions& options) {
  std::string name;
  {
    std::lock_guard lock(mutex_);
    auto named = names_.find({ns, checkpoint});
    if (named != names_.end()) name = named->second;
  }
  if (!name.empty()) {
    Result<Json> object = Read(use, ns, name, checkpoint, options);
    if (object.ok() || object.status().code() != Code::kNotFound) return object;
  }
  return Search(use, ns, checkpoint, options);
}

// A page at a time, and of each object no more than its metadata: a namespace may have thousands of them.
Result<Json> KubeAuthorizer::Search(Use use, const std::string& ns, const std::string& checkpoint, const kube::CallOptions& options) {
  for (std::string next;;) {
    kube::HttpRequest request;
    request.path = kCheckpoints.Path(ns) + kube::UrlQuery({{"limit", std::to_string(kPage)}, {"continue", next}});
    request.headers["accept"] = kube::AcceptHeader(/*metadata_only=*/true, /*list=*/true);
    Result<Json> page = client_->Raw(request, options);
    if (!page.ok()) return Silent(page.status());
    for (const Json& item : GetArray(*page, {"items"})) {
      if (GetString(item, {"metadata", "uid"}) != checkpoint && GetString(item, kManifestOf) != checkpoint) continue;
      const std::string name = GetString(item, {"metadata", "name"});
      Result<Json> object = Read(use, ns, name, checkpoint, options);
      if (!object.ok() && object.status().code() == Code::kNotFound) continue;
      if (!object.ok()) return object;
      std::lock_guard lock(mutex_);
      if (names_.size() >= kMaxKnown) names_.clear();
      names_[{ns, checkpoint}] = name;
      return object;
    }
    next = GetString(*page, {"metadata", "continue"});
    if (next.empty()) return Status(Code::kNotFound, "there is no Checkpoint with uid " + checkpoint + " in namespace " + ns);
  }
}

Result<Json> KubeAuthorizer::Read(Use use, const std::string& ns, const std::string& name, const std::string& checkpoint,
                                  const kube::CallOptions& options) {
  Result<Json> object = client_->Get(kCheckpoints, ns, name, options);
  if (!object.ok() && object.status().code() != Code::kNotFound) return Silent(object.status());
  // One that was made anew: an agent could write the manifest's id into a status of its own, but not the annotation too.
  const bool adopted = object.ok() && use == Use::kRead && GetString(*object, kManifestOf) == checkpoint &&
                       GetString(*object, {"status", "manifest", "id"}) == checkpoint;
  if (adopted || (object.ok() && GetString(*object, {"metadata", "uid"}) == checkpoint)) return object;
  return Status(Code::kNotFound, "Checkpoint " + ns + "/" + name + " is not " + checkpoint);
}

Status KubeAuthorizer::Ask(const std::string& node, Use use, const std::string& ns, const std::string& checkpoint,
                           const std::stop_token& stop) {
  kube::CallOptions options;
  options.timeout = kPatience;
  options.stop = stop;
  HF_ASSIGN_OR_RETURN(const Json found, Find(use, ns, checkpoint, options));
  const std::string made_on = GetString(found, {"status", "nodeName"});
  if (!node.empty() && made_on == node) return Status::Ok();
  if (use != Use::kRead) return NotYours(node, checkpoint, made_on.empty() ? "it is not assigned yet" : "it is node " + made_on + "'s");
  const std::string pod_name = GetString(found, {"status", "claim", "podName"}), pod_uid = GetString(found, {"status", "claim", "podUID"});
  if (pod_name.empty() || pod_uid.empty()) return NotYours(node, checkpoint, "no pod has claimed it");
  Result<Json> pod = client_->Get(kPods, ns, pod_name, options);
  if (pod.status().code() == Code::kNotFound) return NotYours(node, checkpoint, "pod " + pod_name + ", which has claimed it, is gone");
  if (!pod.ok()) return Status(Code::kUnavailable, "the API server does not tell where pods run: " + pod.status().ToString());
  const bool runs_here = !node.empty() && GetString(*pod, {"spec", "nodeName"}) == node;
  if (GetString(*pod, {"metadata", "uid"}) == pod_uid && runs_here) return Status::Ok();
  return NotYours(node, checkpoint, "pod " + pod_name + ", which has claimed it, does not run there");
}

}  // namespace holdfast::storage
