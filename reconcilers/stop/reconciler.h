// Runs reconcilers/stop/step.h for one pod, as the API server has it.
#pragma once

#include "reconcilers/context.h"
#include "reconcilers/stop/step.h"

namespace holdfast::reconcilers::stop {

class Reconciler {
 public:
  explicit Reconciler(Context context) : context_(std::move(context)) {}
  Result<kube::ReconcileResult> Reconcile(const std::string& key, std::stop_token stop);  // namespace/name of a pod

 private:
  Result<World> Look(const PodPtr& pod, std::stop_token stop) const;
  Status Create(const World& world, std::stop_token stop);
  Status LetGo(const kube::Pod& pod, const std::string& why, std::stop_token stop);
  Context context_;
};

}  // namespace holdfast::reconcilers::stop
