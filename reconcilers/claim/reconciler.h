// Runs reconcilers/claim/step.h: for pods (their gate, a cold start beside a checkpoint, malformed annotations) and for Checkpoints (claims
// whose pod vanished, or ended).
#pragma once

#include <mutex>
#include <set>

#include "reconcilers/claim/step.h"
#include "reconcilers/context.h"

namespace holdfast::reconcilers::claim {

class Reconciler {
 public:
  explicit Reconciler(Context context) : context_(std::move(context)) {}
  Result<kube::ReconcileResult> ReconcilePod(const std::string& key, std::stop_token stop);
  Result<kube::ReconcileResult> ReconcileCheckpoint(const std::string& key, std::stop_token stop);

 private:
  World Look(PodPtr pod) const;
  Result<World> LookLive(const World& cached, std::stop_token stop) const;
  Result<std::vector<PodPtr>> LiveSiblings(const World& world, std::stop_token stop) const;
  void AddSiblings(const std::vector<PodPtr>& pods, World* world) const;
  Result<kube::ReconcileResult> OpenGate(World world, std::stop_token stop);
  // Opens the gate, as `step` says: restoring, or cold. The pod as it is then; null when it is not behind it any more.
  Result<PodPtr> PatchPod(const World& world, const Step& step, std::stop_token stop);
  // The events of a pod that starts cold, or with an older state, let go by us or an earlier leader. An error when they may come through
  // later.
  Status TellHowItStarts(const World& world, std::stop_token stop);
  // The event of a pod that should be protected, and is not: said once.
  Status TellUnprotected(const kube::Pod& pod, std::stop_token stop);
  // Says of a checkpoint that this pod has passed it over (ColdBeside). False: there is none.
  Result<bool> ReportColdBeside(const World& beside, std::stop_token stop);
  Result<bool> ReportSiblings(const World& world, std::stop_token stop);
  bool FirstTime(const std::string& what);
  bool Told(const std::string& what);

  Context context_;
  std::mutex claiming_;  // while a checkpoint that is not final is given away
  std::mutex mutex_;
  std::set<std::string> told_;  // bounded; an event too many does no harm
};

}  // namespace holdfast::reconcilers::claim
