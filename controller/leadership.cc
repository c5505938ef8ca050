#include "controller/leadership.h"

#include "base/log.h"
#include "kube/controller.h"
#include "reconcilers/claim/step.h"

namespace holdfast::controller {
namespace {

// Pods come in bursts; a policy's status may be this much behind.
constexpr Duration kPolicyLag = std::chrono::seconds(2);

}  // namespace

struct Leadership::Work {
  Work(const reconcilers::Context& context, Metrics& metrics, reconcilers::checkpoint::StoreDeleter& store, int max_drains_per_node)
      : metrics(metrics),
        gate(context, max_drains_per_node),
        checkpoint(context, gate, store),
        drain(context),
        claim(context),
        policy(context),
        checkpoints(
            Options("checkpoint", 4), [this](const auto& key, auto stop) { return checkpoint.Reconcile(key, stop); }, context.clock),
        drains(
            Options("drain", 4), [this](const auto& key, auto stop) { return drain.Reconcile(key, stop); }, context.clock),
        pods(
            Options("claim", 4), [this](const auto& key, auto stop) { return claim.ReconcilePod(key, stop); }, context.clock),
        claims(
            Options("abandoned_claim", 1), [this](const auto& key, auto stop) { return claim.ReconcileCheckpoint(key, stop); },
            context.clock),
        policies(
            Options("restorepolicy", 1), [this](const auto& key, auto stop) { return policy.Reconcile(key, stop); }, context.clock) {}

  kube::ControllerOptions Options(const char* name, int workers) const {
    kube::ControllerOptions options;
    options.name = name;
    options.workers = workers;
    options.metrics = &metrics.runtime();
    return options;
  }

  template <class Fn>
  void ForEach(Fn fn) {
    for (kube::Controller* controller : {&checkpoints, &drains, &pods, &claims, &policies}) fn(*controller);
  }

  Metrics& metrics;
  reconcilers::drain::Gate gate;
  reconcilers::checkpoint::Reconciler checkpoint;
  reconcilers::drain::Reconciler drain;
  reconcilers::claim::Reconciler claim;
  reconcilers::restorepolicy::Reconciler policy;
  kube::Controller checkpoints, drains, pods, claims, policies;
};

Leadership::Leadership(Caches& caches, reconcilers::Context context, Metrics& metrics, reconcilers::checkpoint::StoreDeleter& store,
                       int max_drains_per_node)
    : caches_(caches), context_(std::move(context)), metrics_(metrics), store_(store), max_drains_per_node_(max_drains_per_node) {
  caches.checkpoints.AddHandler([this](const auto& old, const auto& now) { OnCheckpoint(now ? now : old); });
  caches.pods.AddHandler([this](const auto& old, const auto& now) { OnPod(old, now); });
  caches.policies.AddHandler([this](const auto& old, const auto& now) { EnqueuePolicies((now ? now : old)->meta.ns); });
}

Leadership::~Leadership() { Stop(); }

void Leadership::OnCheckpoint(const reconcilers::CheckpointPtr& c) {
  std::shared_lock lock(mutex_);
  if (!work_) return;
  const std::string key = c->meta.Key();
  work_->checkpoints.Enqueue(key);
  work_->drains.Enqueue(key);
  work_->claims.Enqueue(key);
  // Others of the same pod wait for their turn; successors wait for this one.
  for (const auto& other : caches_.CheckpointsOfPod(c->spec.pod_uid)) work_->checkpoints.Enqueue(other->meta.Key());
  for (const auto& pod : caches_.GatedPodsIn(c->meta.ns)) work_->pods.Enqueue(pod->meta.Key());
  lock.unlock();
  EnqueuePolicies(c->meta.ns);
}

void Leadership::OnPod(const reconcilers::PodPtr& old, const reconcilers::PodPtr& now) {
  std::shared_lock lock(mutex_);
  if (!work_) return;
  const kube::Pod& pod = now ? *now : *old;
  const bool leaves = !now || now->meta.terminating();
  const bool changed = !old || !now || old->phase != now->phase || old->meta.terminating() != now->meta.terminating();
  if (now && (changed || reconcilers::claim::Gated(*now))) work_->pods.Enqueue(pod.meta.Key());
  for (const auto& c : caches_.CheckpointsOfPod(pod.meta.uid)) {
    work_->checkpoints.Enqueue(c->meta.Key());
    work_->drains.Enqueue(c->meta.Key());
  }
  for (const auto& c : caches_.CheckpointsClaimedBy(pod.meta.uid)) {
    work_->checkpoints.Enqueue(c->meta.Key());
    work_->claims.Enqueue(c->meta.Key());
  }
  if (leaves && changed) {
    for (const auto& waiting : caches_.GatedPodsIn(pod.meta.ns)) work_->pods.Enqueue(waiting->meta.Key());
  }
  lock.unlock();
  if (changed) EnqueuePolicies(pod.meta.ns);
}

void Leadership::EnqueuePolicies(const std::string& ns) {
  std::shared_lock lock(mutex_);
  if (!work_) return;
  for (const auto& policy : caches_.PoliciesIn(ns)) work_->policies.EnqueueAfter(policy->meta.Key(), kPolicyLag);
}

void Leadership::Start(int64_t term) {
  std::unique_lock lock(mutex_);
  if (work_) return;
  context_.term = term;
  work_ = std::make_unique<Work>(context_, metrics_, store_, max_drains_per_node_);
  // What happened before we led is looked at after what happens now.
  for (const auto& c : caches_.checkpoints.List()) {
    work_->checkpoints.Enqueue(c->meta.Key(), kube::kLowPriority);
    work_->drains.Enqueue(c->meta.Key(), kube::kLowPriority);
    work_->claims.Enqueue(c->meta.Key(), kube::kLowPriority);
  }
  for (const auto& pod : caches_.pods.List()) work_->pods.Enqueue(pod->meta.Key(), kube::kLowPriority);
  for (const auto& policy : caches_.policies.List()) work_->policies.Enqueue(policy->meta.Key(), kube::kLowPriority);
  work_->ForEach([](kube::Controller& controller) {
    if (Status started = controller.Start(); !started.ok()) LogError("a controller does not run", {{"error", started.ToString()}});
  });
}

void Leadership::Stop() {
  std::unique_lock lock(mutex_);
  if (!work_) return;
  work_->ForEach([](kube::Controller& controller) { controller.Stop(); });
  work_.reset();
}

}  // namespace holdfast::controller
