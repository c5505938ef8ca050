// status of a RestorePolicy: which pods it means, which of them are protected, and why the others are not.
#pragma once

#include "reconcilers/context.h"

namespace holdfast::reconcilers::restorepolicy {

// The status as the CRD has it, without times, so that equal worlds give equal values. Pure.
Json StatusOf(const View& view, const api::RestorePolicy& policy);

class Reconciler {
 public:
  explicit Reconciler(Context context) : context_(std::move(context)) {}
  Result<kube::ReconcileResult> Reconcile(const std::string& key, std::stop_token stop);  // namespace/name of a RestorePolicy

 private:
  Context context_;
};

}  // namespace holdfast::reconcilers::restorepolicy
