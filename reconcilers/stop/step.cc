#include "reconcilers/stop/step.h"

#include <algorithm>
#include <charconv>

#include "reconcilers/support.h"

namespace holdfast::reconcilers::stop {
namespace {

// A failed checkpoint of a drain says so long that another one would fail as well.
constexpr Duration kAttemptStands = std::chrono::minutes(2);

// Fewer pods than wanted, or one that was made for the room that this one leaves.
bool Replaced(const World& w) {
  int64_t others = 0;
  bool successor = false;
  for (const PodPtr& pod : w.siblings) {
    if (pod->meta.uid == w.pod->meta.uid || pod->meta.terminating() || Ended(*pod)) continue;
    ++others;
    successor |= Gated(*pod);
  }
  return others < w.parent->replicas || successor;
}

// Why nobody will make this pod anew; empty: somebody will.
std::string Unwanted(const World& w) {
  const kube::OwnerReference* owner = w.pod->meta.Controller();
  if (owner == nullptr) return "it has no controller that would make it anew";
  const std::string name = owner->kind + " " + owner->name;
  const bool known = owner->kind == "ReplicaSet" || owner->kind == "StatefulSet" || owner->kind == "Job";
  if (!known) return name + " is of a kind of which Holdfast does not know whether it makes pods anew";
  if (!w.parent || w.parent->meta.uid != owner->uid || w.parent->meta.terminating()) return name + " is gone";
  if (owner->kind == "Job") {
    if (w.parent->finished) return name + " has finished";
    return w.parent->suspended ? name + " is suspended" : "";
  }
  if (owner->kind == "ReplicaSet") return Replaced(w) ? "" : name + " wants " + std::to_string(w.parent->replicas) + " pods and has them";
  const std::string& text = w.lineage.owner.ordinal;
  int64_t ordinal = -1;
  std::from_chars(text.data(), text.data() + text.size(), ordinal);
  const int64_t end = w.parent->first_ordinal + w.parent->replicas;
  if (ordinal < w.parent->first_ordinal || ordinal >= end) return name + " is smaller than that now";
  if (w.lineage.owner.template_hash != w.parent->revision) return name + " rolls out another template";
  return "";
}

// Its processes were told to quit already, unless the user says that the hook does not do that (it sleeps, say).
std::string PreStop(const kube::Pod& pod) {
  if (pod.meta.Annotation(api::kIgnorePreStop) == "true") return "";
  for (const kube::Container* container : pod.LastingContainers()) {
    if (!container->has_pre_stop) continue;
    return "container " + container->name + " has a preStop hook, which may have told it to quit (if it does not: pod annotation " +
           api::kIgnorePreStop + ": \"true\")";
  }
  return "";
}

std::string NotKept(const World& w, WallTime now) {
  if (!w.protection.problem.empty()) return w.protection.problem;
  if (!w.protection.on) return "it is not protected";
  if (!w.protection.policy->spec.triggers.stop) return "triggers.stop of its policy is off";
  for (const CheckpointPtr& c : w.own) {
    const bool failed = c->spec.final && c->status.phase == api::Phase::kFailed && now - CompletedAt(*c) < kAttemptStands;
    if (failed && c->Ready() != nullptr) return c->Ready()->message;
  }
  if (auto why = UnsupportedPod(*w.pod)) return *why;
  if (auto why = UnsupportedHere(*w.pod, w.node.get(), true)) return *why;
  if (std::string why = Unwanted(w); !why.empty()) return why;
  return PreStop(*w.pod);
}

}  // namespace

bool Undecided(const kube::Pod& pod, const std::vector<CheckpointPtr>& own) {
  if (!pod.meta.terminating() || pod.runtime_class != api::kRuntimeClass || pod.phase != "Running") return false;
  if (!pod.meta.Annotation(api::kLetGo).empty()) return false;
  return std::none_of(own.begin(), own.end(),
                      [&](const CheckpointPtr& c) { return c->spec.pod_uid == pod.meta.uid && HoldsItsPod(*c) && !c->meta.terminating(); });
}

Step Next(const World& seen, WallTime now) {
  if (!seen.pod || !Undecided(*seen.pod, seen.own)) return {};
  const bool had_one = std::any_of(seen.own.begin(), seen.own.end(), [](const CheckpointPtr& c) {
    return c->spec.final && c->status.phase == api::Phase::kReady && !Reclaimed(*c);
  });
  if (had_one) return {};  // moved, and claimed by its successor
  if (std::string why = NotKept(seen, now); !why.empty()) return {Action::kLetGo, std::move(why)};
  return {Action::kCheckpoint, "its owner wants it back"};
}

}  // namespace holdfast::reconcilers::stop
