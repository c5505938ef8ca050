// Runs reconcilers/checkpoint/step.h for one Checkpoint: looks, decides, writes.
#pragma once

#include "reconcilers/checkpoint/contents.h"
#include "reconcilers/checkpoint/step.h"
#include "reconcilers/context.h"
#include "reconcilers/drain/gate.h"

namespace holdfast::reconcilers::checkpoint {

class Reconciler {
 public:
  // `namespace_quota_bytes`: of namespaces without holdfast.dev/quota; 0: none.
  Reconciler(Context context, drain::Gate& gate, Contents& store, int64_t namespace_quota_bytes)
      : context_(std::move(context)), gate_(gate), store_(store), namespace_quota_bytes_(namespace_quota_bytes) {}
  // `key`: namespace/name of a Checkpoint.
  Result<kube::ReconcileResult> Reconcile(const std::string& key, std::stop_token stop);

 private:
  Result<World> Look(const CheckpointPtr& checkpoint, std::stop_token stop);
  Status LookAtGroup(World* world, std::stop_token stop);
  Status CheckMembers(const World& world, std::stop_token stop);
  Status AskForTheLate(World* world, std::stop_token stop);
  Status OpenCut(const World& world, std::stop_token stop);
  Status Act(const World& world, const Step& step, std::stop_token stop);
  Status RemoveContent(const api::Checkpoint& checkpoint, std::stop_token stop);
  Status Delete(const api::Checkpoint& checkpoint, const std::string& why, std::stop_token stop);

  Context context_;
  drain::Gate& gate_;
  Contents& store_;
  const int64_t namespace_quota_bytes_;
};

}  // namespace holdfast::reconcilers::checkpoint
