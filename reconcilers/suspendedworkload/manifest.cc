#include "reconcilers/suspendedworkload/manifest.h"

#include "api/checkpoint.h"
#include "api/idle.h"
#include "api/platform.h"
#include "api/suspended_workload.h"

namespace holdfast::reconcilers::suspendedworkload {
namespace {

bool Ours(const std::string& annotation) {
  return annotation.starts_with(api::kRestore) || annotation == api::kFromCheckpoint || annotation == api::kIdleWatch ||
         annotation == api::kResumedBy || annotation == api::kSuspendUndone || annotation == api::kLetGo;
}

// Null: `object` is null, or has no object of this name.
Json* Inner(Json* object, const char* name) {
  if (object == nullptr) return nullptr;
  const auto found = object->find(name);
  return found != object->end() && found->is_object() ? &*found : nullptr;
}

// Keeps the items of an array of objects that `keep` likes; none left: the array goes, too.
template <class Keep>
void Filter(Json* object, const char* name, Keep keep) {
  const auto found = object->find(name);
  if (found == object->end() || !found->is_array()) return;
  Json kept = Json::array();
  for (Json& item : *found) {
    if (keep(item)) kept.push_back(std::move(item));
  }
  if (kept.empty()) {
    object->erase(found);
  } else {
    *found = std::move(kept);
  }
}

// Where its claim sent it: another claim decides anew.
void ForgetProcessors(Json* spec) {
  Json* affinity = Inner(spec, "affinity");
  Json* node = Inner(affinity, "nodeAffinity");
  Json* required = Inner(node, "requiredDuringSchedulingIgnoredDuringExecution");
  if (required == nullptr) return;
  Filter(required, "nodeSelectorTerms", [](Json& term) {
    if (!term.is_object()) return true;
    Filter(&term, "matchExpressions", [](const Json& rule) {
      const std::string key = GetString(rule, {"key"});
      return key != api::kCpuSet && key != api::kKernel;
    });
    return !term.empty();
  });
  if (required->empty()) node->erase("requiredDuringSchedulingIgnoredDuringExecution");
  if (node->empty()) affinity->erase("nodeAffinity");
  if (affinity->empty()) spec->erase("affinity");
}

}  // namespace

Json ManifestOf(const Json& pod) {
  Json meta = Json::object();
  for (const char* key : {"name", "namespace", "labels", "annotations", "finalizers"}) {
    if (const Json* value = Find(pod, {"metadata", key})) meta[key] = *value;
  }
  if (Json* annotations = Inner(&meta, "annotations")) {
    for (auto at = annotations->begin(); at != annotations->end();) at = Ours(at.key()) ? annotations->erase(at) : std::next(at);
  }
  Json spec = GetObject(pod, {"spec"});
  for (const char* key : {"nodeName", "schedulingGates", "ephemeralContainers"}) spec.erase(key);
  Filter(&spec, "initContainers", [](const Json& container) { return GetString(container, {"name"}) != api::kWaitContainer; });
  ForgetProcessors(&spec);
  return {{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", std::move(meta)}, {"spec", std::move(spec)}};
}

Json ToMake(Json manifest, const std::string& resumed_by, const std::string& from_checkpoint) {
  Json& annotations = manifest["metadata"]["annotations"];
  if (!annotations.is_object()) annotations = Json::object();
  annotations[api::kResumedBy] = resumed_by;
  if (from_checkpoint.empty()) return manifest;
  annotations[api::kFromCheckpoint] = from_checkpoint;
  // The webhook would add it, and fails open.
  manifest["spec"]["schedulingGates"] = Json::array({{{"name", api::kClaimGate}}});
  return manifest;
}

}  // namespace holdfast::reconcilers::suspendedworkload
