#include "reconcilers/lineage.h"

namespace holdfast::reconcilers {
namespace {

std::string LabelOf(const kube::ObjectMeta& meta, const std::string& key) {
  auto label = meta.labels.find(key);
  return label == meta.labels.end() ? "" : label->second;
}

std::string OrdinalOf(const kube::Pod& pod, const std::string& kind) {
  if (kind == "Job") return pod.meta.Annotation("batch.kubernetes.io/job-completion-index");
  if (kind != "StatefulSet") return "";
  std::string index = LabelOf(pod.meta, "apps.kubernetes.io/pod-index");
  if (!index.empty()) return index;
  const size_t dash = pod.meta.name.rfind('-');  // before Kubernetes 1.28 the name alone tells
  return dash == std::string::npos ? "" : pod.meta.name.substr(dash + 1);
}

// What one object's annotations say. Empty: nothing.
struct Word {
  std::string protect, policy;
  bool any() const { return !protect.empty() || !policy.empty(); }
};

Word Read(const kube::StringMap& annotations) {
  auto get = [&](const char* key) {
    auto found = annotations.find(key);
    return found == annotations.end() ? std::string() : found->second.str();
  };
  return {get(api::kProtect), get(api::kPolicy)};
}

PolicyPtr BuiltIn() {
  return PolicyPtr(&api::RestorePolicy::BuiltIn(), [](const api::RestorePolicy*) {});
}

Protection Decide(const View& view, const std::string& ns, const Word& word, const std::string& where) {
  Protection out{false, BuiltIn(), ""};
  if (!word.protect.empty() && word.protect != "true" && word.protect != "false") {
    out.problem =
        where + " has " + api::kProtect + ": \"" + word.protect.substr(0, 64) + "\", which means nothing: write \"true\" or \"false\"";
    return out;
  }
  if (word.protect == "false") return out;
  if (!word.policy.empty()) {
    PolicyPtr policy = view.GetPolicy(ns, word.policy);
    if (!policy) {
      out.problem = where + " has " + api::kPolicy + ": \"" + word.policy.substr(0, 253) +
                    "\", but there is no RestorePolicy of that name in namespace " + ns + ": create it, or write " + api::kProtect +
                    ": \"true\" for the built-in policy";
      return out;
    }
    out.policy = std::move(policy);
  }
  out.on = true;
  return out;
}

}  // namespace

Lineage Trace(const View& view, const kube::Pod& pod, const std::string& ns, Duration live) {
  Lineage out;
  const kube::OwnerReference* parent = pod.meta.Controller();
  if (parent == nullptr) {
    out.owner = {"Pod", pod.meta.name, pod.meta.uid, "", ""};
    return out;
  }
  out.parent_uid = parent->uid;
  out.owner = {parent->kind, parent->name, parent->uid, "", OrdinalOf(pod, parent->kind)};
  if (parent->kind == "StatefulSet") {
    out.owner.template_hash = LabelOf(pod.meta, "controller-revision-hash");
  } else if (parent->kind == "ReplicaSet") {
    out.owner.template_hash = LabelOf(pod.meta, "pod-template-hash");
  } else if (parent->kind != "Job") {
    return out;
  }
  out.workload = view.GetWorkload(*parent, ns, live);
  if (!out.workload) {
    out.complete = false;
    return out;
  }
  const kube::OwnerReference* top = parent->kind == "ReplicaSet" ? out.workload->meta.Controller() : nullptr;
  if (top == nullptr || top->kind != "Deployment") return out;
  out.owner.kind = top->kind;
  out.owner.name = top->name;
  out.owner.uid = top->uid;
  out.workload = view.GetWorkload(*top, ns, live);
  out.complete = out.workload != nullptr;
  return out;
}

Protection ProtectionOf(const View& view, const kube::Pod& pod, const std::string& ns, const Lineage& lineage) {
  Protection off{false, BuiltIn(), ""};
  // These stay with their node, whatever a namespace's default says.
  if (lineage.owner.kind == "DaemonSet" || lineage.owner.kind == "Node") return off;
  if (Word word = Read(pod.meta.annotations); word.any()) return Decide(view, ns, word, "the pod");
  if (lineage.workload) {
    if (Word word = Read(lineage.workload->meta.annotations); word.any()) {
      return Decide(view, ns, word, lineage.owner.kind + " " + lineage.owner.name);
    }
  }
  PolicyPtr matching;  // of several the first by name, so that all who ask hear the same
  for (const PolicyPtr& policy : view.PoliciesIn(ns)) {
    if ((!matching || policy->meta.name < matching->meta.name) && policy->spec.selector.Matches(pod.meta.labels)) matching = policy;
  }
  if (matching) return {true, matching, ""};
  // Its SuspendedWorkload may come after its first pod.
  const bool asks = lineage.workload && (lineage.owner.kind == "Deployment" || lineage.owner.kind == "StatefulSet");
  const bool may_be_idle = asks && api::ParseIdleAfter(lineage.workload->meta.Annotation(api::kSuspendWhenIdle));
  const bool sleeps = may_be_idle || !view.SuspendersOf(ns, lineage.owner.kind, lineage.owner.name).empty();
  if (NamespacePtr space = view.GetNamespace(ns)) {
    Word word = Read(space->meta.annotations);
    // Of the namespace's word its policy holds for what may sleep, too; its "false" is meant for what nobody named.
    if (word.any() && !(sleeps && word.protect == "false")) return Decide(view, ns, word, "namespace " + ns);
  }
  if (sleeps) return {true, BuiltIn(), ""};
  return off;
}

std::vector<std::string> WantedContainers(const kube::Pod& pod, const Lineage& lineage) {
  std::string text = pod.meta.Annotation(api::kContainers);
  if (text.empty() && lineage.workload) text = lineage.workload->meta.Annotation(api::kContainers);
  std::vector<std::string> names;
  std::string name;
  for (char c : text + ",") {
    if (c == ' ') continue;
    if (c != ',') {
      name += c;
    } else if (!name.empty()) {
      names.push_back(std::move(name));
      name.clear();
    }
  }
  return names;
}

bool SameSeat(const api::Owner& a, const api::Owner& b) {
  return !a.uid.empty() && a.uid == b.uid && a.template_hash == b.template_hash && a.ordinal == b.ordinal;
}

}  // namespace holdfast::reconcilers
