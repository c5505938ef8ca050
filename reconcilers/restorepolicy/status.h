// status of a RestorePolicy: which pods it means, which of them are protected, and why the others are not; which of its checkpoints stay or
// go, and why.
#pragma once

#include "reconcilers/context.h"
#include "reconcilers/restorepolicy/retention.h"

namespace holdfast::reconcilers::restorepolicy {

// The status as the CRD has it, without times, so that equal worlds give equal values. `plan`: of its namespace. Pure.
Json StatusOf(const View& view, const api::RestorePolicy& policy, const Plan& plan);

class Reconciler {
 public:
  // `namespace_quota_bytes`: of namespaces without holdfast.dev/quota; 0: none.
  Reconciler(Context context, int64_t namespace_quota_bytes)
      : context_(std::move(context)), namespace_quota_bytes_(namespace_quota_bytes) {}
  Result<kube::ReconcileResult> Reconcile(const std::string& key, std::stop_token stop);  // namespace/name of a RestorePolicy

 private:
  Context context_;
  const int64_t namespace_quota_bytes_;
};

}  // namespace holdfast::reconcilers::restorepolicy
