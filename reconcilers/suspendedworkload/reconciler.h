// Runs reconcilers/suspendedworkload/step.h for one SuspendedWorkload. To be run by one worker: what it created is in the cache before it
// looks at the next, so the limit of a node holds.
#pragma once

#include "reconcilers/context.h"
#include "reconcilers/suspendedworkload/step.h"

namespace holdfast::reconcilers::suspendedworkload {

struct Settings {
  std::function<bool()> store_down = [] { return false; };  // known, not suspected
  int64_t max_per_node = 4;                                 // pods of a node that are frozen at the same time, unless one workload has more
  Prices prices{};                                          // by which status.freed.costPerHour is told
  // What only this controller can open again, and nobody can have changed: `about` says whose it is, and is told again to open it. Unset:
  // bare pods are not suspended.
  using Change = std::function<Result<std::string>(const std::string& text, const std::string& about, std::stop_token stop)>;
  Change seal{}, open{};
};

class Reconciler {
 public:
  Reconciler(Context context, Settings settings) : context_(std::move(context)), settings_(std::move(settings)) {}
  Result<kube::ReconcileResult> Reconcile(const std::string& key, std::stop_token stop);  // namespace/name of a SuspendedWorkload

 private:
  Result<World> Look(SuspendedPtr object, std::stop_token stop) const;
  // The same, with the object, its workload, that one's pods and the checkpoints kept as the API server has them. kConflict: the object
  // is not what it was.
  Result<World> LookLive(World cached, std::stop_token stop) const;
  void AddMember(World* world, const PodPtr& pod, Duration live) const;
  Result<std::string> Sealed(const World& world, const Json& pod, std::stop_token stop) const;
  Status Act(const World& world, const Step& step, std::stop_token stop);
  Status Create(const World& world, const Step& step, std::stop_token stop);
  Status Discard(const Step& step, std::stop_token stop);
  Status PatchTarget(const World& world, const Json& patch, std::stop_token stop);
  Status EndPod(const kube::Pod& pod, std::stop_token stop);
  Status MakePod(const World& world, const std::string& checkpoint, std::stop_token stop);

  Context context_;
  const Settings settings_;
};

}  // namespace holdfast::reconcilers::suspendedworkload
