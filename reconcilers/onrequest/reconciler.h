// Runs reconcilers/onrequest/step.h for one SuspendedWorkload. To be run by one worker: numbers are given out one after another.
#pragma once

#include "reconcilers/context.h"
#include "reconcilers/onrequest/step.h"

namespace holdfast::reconcilers::onrequest {

// Whether a pod of the release namespace is an activator.
bool IsActivator(const kube::Pod& pod);

struct Settings {
  PortRange range{};
  std::string ns{};  // of the activator's pods
  // From caches; unset where the range is empty.
  std::function<ServicePtr(const std::string& ns, const std::string& name)> service{};
  std::function<SlicePtr(const std::string& ns, const std::string& name)> slice{};
  std::function<std::vector<SuspendedPtr>()> all{};  // of all namespaces
};

class Reconciler {
 public:
  Reconciler(Context context, Settings settings) : context_(std::move(context)), settings_(std::move(settings)) {}
  Result<kube::ReconcileResult> Reconcile(const std::string& key, std::stop_token stop);  // namespace/name of a SuspendedWorkload

 private:
  Result<World> Look(SuspendedPtr object, std::stop_token stop) const;
  void Take(World* world, const api::SuspendedWorkload& other) const;
  // Numbers and endpoints as the API server has them.
  Status LookLive(World* world, std::stop_token stop) const;
  Status Act(const World& world, const Step& step, std::stop_token stop);

  Context context_;
  const Settings settings_;
};

}  // namespace holdfast::reconcilers::onrequest
