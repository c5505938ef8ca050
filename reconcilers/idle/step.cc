#include "reconcilers/idle/step.h"

#include <algorithm>

namespace holdfast::reconcilers::idle {
namespace {

constexpr char kManagedBy[] = "app.kubernetes.io/managed-by", kUs[] = "holdfast";

bool Ours(const World& w, const api::SuspendedWorkload& object) {
  const auto label = object.meta.labels.find(kManagedBy);
  return label != object.meta.labels.end() && label->second == kUs && object.meta.name == w.workload->meta.name &&
         std::any_of(object.meta.owners.begin(), object.meta.owners.end(),
                     [&](const kube::OwnerReference& owner) { return owner.uid == w.workload->meta.uid; });
}

Json NewObject(const World& w, const std::string& after) {
  const kube::ObjectMeta& workload = w.workload->meta;
  return {{"apiVersion", api::SuspendedWorkload::kResource.ApiVersion()},
          {"kind", "SuspendedWorkload"},
          {"metadata",
           {{"name", workload.name},
            {"namespace", workload.ns},
            {"labels", {{kManagedBy, kUs}}},
            {"ownerReferences", {{{"apiVersion", "apps/v1"}, {"kind", w.kind}, {"name", workload.name}, {"uid", workload.uid}}}}}},
          {"spec", {{"targetRef", {{"apiVersion", "apps/v1"}, {"kind", w.kind}, {"name", workload.name}}}, {"idle", {{"after", after}}}}}};
}

Step Warn(std::string reason, std::string note) {
  Step step;
  step.notice = Notice{true, std::move(reason), std::move(note), false, false};
  return step;
}

}  // namespace

Step Next(const World& w) {
  const std::string text = w.workload->meta.Annotation(api::kSuspendWhenIdle);
  const bool ours = w.named && Ours(w, *w.named);
  Step step;
  if (text.empty() || w.workload->meta.terminating()) {
    if (ours && !w.named->meta.terminating()) step.action = Action::kDelete;
    return step;
  }
  const auto after = api::ParseIdleAfter(text);
  if (!after) {
    return Warn("SuspendWhenIdle", std::string(api::kSuspendWhenIdle) + ": \"" + text.substr(0, 64) + "\" is no time from " +
                                       FormatDuration(api::kLeastIdle) + " to " + FormatDuration(api::kMostIdle) +
                                       ": write it as in 30m; it is not suspended for being idle");
  }
  const std::string wanted = FormatDuration(*after);
  if (ours) {
    if (w.named->meta.terminating() || (w.named->spec.idle && w.named->spec.idle->after == *after)) return step;
    step.action = Action::kPatch;
    step.object["spec"]["idle"]["after"] = wanted;
    return step;
  }
  if (!w.of_it.empty()) return step;
  if (w.named) {
    return Warn("SuspendWhenIdle", "SuspendedWorkload " + w.named->meta.name + " names " + w.named->spec.target_kind + " " +
                                       w.named->spec.target_name + ", and has the name that " + api::kSuspendWhenIdle +
                                       " needs: create a SuspendedWorkload of another name for this one");
  }
  step.action = Action::kCreate;
  step.object = NewObject(w, wanted);
  return step;
}

}  // namespace holdfast::reconcilers::idle
