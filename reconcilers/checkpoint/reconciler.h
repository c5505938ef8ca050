// Runs reconcilers/checkpoint/step.h for one Checkpoint: looks, decides, writes.
#pragma once

#include "reconcilers/checkpoint/step.h"
#include "reconcilers/context.h"
#include "reconcilers/drain/gate.h"

namespace holdfast::reconcilers::checkpoint {

// Removes what the store holds of a checkpoint. OK when it holds nothing.
class StoreDeleter {
 public:
  virtual ~StoreDeleter() = default;
  // `term` of leadership: kFailedPrecondition when the store was told something by a later leader.
  virtual Status Delete(const std::string& manifest_id, int64_t term, std::stop_token stop) = 0;
};

class Reconciler {
 public:
  Reconciler(Context context, drain::Gate& gate, StoreDeleter& store) : context_(std::move(context)), gate_(gate), store_(store) {}
  // `key`: namespace/name of a Checkpoint.
  Result<kube::ReconcileResult> Reconcile(const std::string& key, std::stop_token stop);

 private:
  Result<World> Look(const CheckpointPtr& checkpoint, std::stop_token stop);
  bool LastGood(const api::Checkpoint& checkpoint) const;
  Status Act(const World& world, const Step& step, std::stop_token stop);
  Status RemoveContent(const api::Checkpoint& checkpoint, std::stop_token stop);
  Status Retain(const World& world, std::stop_token stop);
  Status Delete(const api::Checkpoint& checkpoint, const std::string& why, std::stop_token stop);

  Context context_;
  drain::Gate& gate_;
  StoreDeleter& store_;
};

}  // namespace holdfast::reconcilers::checkpoint
