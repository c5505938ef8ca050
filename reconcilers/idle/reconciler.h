// Runs reconcilers/idle/step.h for one workload.
#pragma once

#include "reconcilers/context.h"
#include "reconcilers/idle/step.h"

namespace holdfast::reconcilers::idle {

class Reconciler {
 public:
  explicit Reconciler(Context context) : context_(std::move(context)) {}
  Result<kube::ReconcileResult> Reconcile(const std::string& key, std::stop_token stop);  // KeyOf

 private:
  Context context_;
};

// "Deployment/namespace/name"
std::string KeyOf(const std::string& kind, const kube::ObjectMeta& workload);

}  // namespace holdfast::reconcilers::idle
