// Runs reconcilers/drain/step.h for one Checkpoint.
#pragma once

#include "reconcilers/context.h"
#include "reconcilers/drain/step.h"

namespace holdfast::reconcilers::drain {

class Reconciler {
 public:
  explicit Reconciler(Context context) : context_(std::move(context)) {}
  Result<kube::ReconcileResult> Reconcile(const std::string& key, std::stop_token stop);  // namespace/name of a Checkpoint

 private:
  Context context_;
};

}  // namespace holdfast::reconcilers::drain
