#include "reconcilers/view.h"

namespace holdfast::reconcilers {

const kube::Resource PodDisruptionBudget::kResource{"policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true};

PodDisruptionBudget PodDisruptionBudget::FromJson(const Json& object) {
  PodDisruptionBudget out;
  out.meta = kube::ObjectMeta::FromJson(object);
  out.selector = api::LabelSelector::FromJson(Find(object, {"spec", "selector"}));
  out.disruptions_allowed = GetInt(object, {"status", "disruptionsAllowed"});
  return out;
}

bool Gated(const kube::Pod& pod) {
  return std::find(pod.scheduling_gates.begin(), pod.scheduling_gates.end(), api::kClaimGate) != pod.scheduling_gates.end();
}

bool Ended(const kube::Pod& pod) { return pod.phase == "Succeeded" || pod.phase == "Failed"; }

PodPtr GetPodWithUid(const View& view, const std::string& ns, const std::string& name, const std::string& uid) {
  PodPtr pod = view.GetPod(ns, name);
  return pod && pod->meta.uid == uid ? pod : nullptr;
}

}  // namespace holdfast::reconcilers
