#include "reconcilers/suspendedworkload/obstacle.h"

#include "reconcilers/support.h"

namespace holdfast::reconcilers::suspendedworkload {
namespace {

std::optional<Obstacle> ObstacleIn(const World& w, const Member& member) {
  const kube::Pod& pod = *member.pod;
  if (pod.meta.terminating()) return Obstacle{"Waiting", "pod " + pod.meta.name + " is ending"};
  if (pod.phase != "Running")
    return Obstacle{"Waiting", "pod " + pod.meta.name + " is " + (pod.phase.empty() ? "Pending" : pod.phase.str())};
  if (auto why = UnsupportedHere(pod, member.node.get(), true)) return Obstacle{"Unsupported", "pod " + pod.meta.name + ": " + *why};
  if (w.object->spec.target_kind == "StatefulSet" && member.seat.template_hash != w.target->revision)
    return Obstacle{"Waiting", "pod " + pod.meta.name + " is not of the newest revision yet, which alone comes back"};
  for (const CheckpointPtr& c : member.checkpoints) {
    if (!c->done() || HoldsItsPod(*c)) return Obstacle{"Waiting", "Checkpoint " + c->meta.name + " has pod " + pod.meta.name + " in hand"};
  }
  return std::nullopt;
}

// A bare pod is deleted and made again by us alone.
std::optional<Obstacle> ObstacleForPod(const World& w) {
  const kube::ObjectMeta& pod = w.target->meta;
  if (!w.bare_pods) {
    return Obstacle{"Unsupported",
                    "pods without a workload are suspended only where the operator allows it (chart value suspend.barePods): "
                    "make it a Deployment of one, or ask for that"};
  }
  if (!pod.owners.empty()) {
    return Obstacle{"Unsupported",
                    TargetText(w) + " belongs to " + pod.owners[0].kind.str() + " " + pod.owners[0].name.str() + ": name its workload"};
  }
  return std::nullopt;
}

}  // namespace

std::string TargetText(const World& w) { return w.object->spec.target_kind + " " + w.object->spec.target_name.str(); }

std::optional<Obstacle> ObstacleFor(const World& w) {
  if (IsPod(*w.object)) {
    if (auto obstacle = ObstacleForPod(w)) return obstacle;
  }
  const kube::Workload& target = *w.target;
  const int64_t size = SizeOf(*w.object, target);
  if (target.finished) return Obstacle{"Unsupported", TargetText(w) + " has finished"};
  if (target.scaling_deletes_volumes) {
    return Obstacle{
        "Unsupported",
        TargetText(w) + " deletes its volumes when it is scaled down: set persistentVolumeClaimRetentionPolicy.whenScaled to Retain"};
  }
  if (Stopped(*w.object, target)) return Obstacle{"NothingRuns", TargetText(w) + " has no pods"};
  if (size > static_cast<int64_t>(kMaxPods)) {
    return Obstacle{"Unsupported", TargetText(w) + " has " + std::to_string(size) + " pods, and at most " + std::to_string(kMaxPods) +
                                       " can be suspended together"};
  }
  if (!w.protection.problem.empty()) return Obstacle{"Unsupported", w.protection.problem};
  if (!w.members.empty() && !w.protection.on)  // without a pod nothing is known of it
    return Obstacle{"Unsupported", TargetText(w) + " is not to be protected (" + api::kProtect + ": \"false\"): remove that annotation"};
  const bool job = w.object->spec.target_kind == "Job";
  const bool settled = (job || target.observed_generation >= target.meta.generation) && target.pods == size &&
                       target.updated_pods == size && static_cast<int64_t>(w.members.size()) == size && size > 0;
  if (!settled)
    return Obstacle{"Waiting",
                    TargetText(w) + " is being rolled out or scaled: its pods are not all of them there, and of the newest template"};
  for (const Member& member : w.members) {
    if (auto obstacle = ObstacleIn(w, member)) return obstacle;
  }
  if (w.store_down)
    return Obstacle{api::reason::kStoreUnavailable, "the checkpoint store does not answer: see `kubectl -n holdfast-system get pods`"};
  std::map<std::string, int64_t> more;
  for (const Member& member : w.members) ++more[member.pod->node_name];
  for (const auto& [node, count] : more) {
    auto busy = w.busy.find(node);
    // A workload that is larger than the limit goes alone.
    if (busy != w.busy.end() && busy->second > 0 && busy->second + count > w.max_per_node) {
      return Obstacle{"Waiting", std::to_string(busy->second) + " of at most " + std::to_string(w.max_per_node) +
                                     " checkpoints are under way on node " + node};
    }
  }
  return std::nullopt;
}

}  // namespace holdfast::reconcilers::suspendedworkload
