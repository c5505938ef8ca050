// Runs reconcilers/interval/step.h for one pod. To be run by one worker: what it created is in the cache before it looks at the next pod,
// so the limit of a node holds.
#pragma once

#include "reconcilers/context.h"
#include "reconcilers/interval/step.h"

namespace holdfast::reconcilers::interval {

class Reconciler {
 public:
  explicit Reconciler(Context context) : context_(std::move(context)) {}
  Result<kube::ReconcileResult> Reconcile(const std::string& key, std::stop_token stop);  // namespace/name of a pod

 private:
  World Look(const PodPtr& pod, const Lineage& lineage) const;
  Context context_;
};

}  // namespace holdfast::reconcilers::interval
