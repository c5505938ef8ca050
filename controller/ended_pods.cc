#include "controller/ended_pods.h"

#include <algorithm>

#include "reconcilers/claims.h"

namespace holdfast::controller {
namespace {

constexpr size_t kMost = 4096;

// A kubelet says how a pod that is being deleted has ended before it lets it go.
bool HasRun(const kube::Pod& pod) {
  if (pod.phase == "Running") return true;
  const auto& containers = pod.container_statuses;
  return pod.meta.terminating() &&
         std::any_of(containers.begin(), containers.end(), [](const kube::ContainerStatus& c) { return !c.container_id.empty(); });
}

}  // namespace

void EndedPods::Saw(const reconcilers::PodPtr& old, const reconcilers::PodPtr& now) {
  const bool gone = old && (!now || now->meta.uid != old->meta.uid);
  std::lock_guard lock(mutex_);
  if (!since_) since_ = clock_.Wall();
  if (!gone || old->runtime_class != api::kRuntimeClass || !HasRun(*old) || old->meta.Controller() == nullptr) return;
  const MonoTime at = clock_.Mono();
  while (!ended_.empty() && (ended_.size() >= kMost || at - ended_.front().at > reconcilers::kFollowsWithin)) ended_.pop_front();
  ended_.push_back({at, old});
}

std::vector<reconcilers::PodPtr> EndedPods::Of(const std::string& controller_uid) const {
  std::vector<reconcilers::PodPtr> found;
  std::lock_guard lock(mutex_);
  for (auto one = ended_.rbegin(); one != ended_.rend() && clock_.Mono() - one->at <= reconcilers::kFollowsWithin; ++one) {
    if (one->pod->meta.Controller()->uid == controller_uid) found.push_back(one->pod);
  }
  return found;
}

std::optional<WallTime> EndedPods::since() const {
  std::lock_guard lock(mutex_);
  return since_;
}

}  // namespace holdfast::controller
