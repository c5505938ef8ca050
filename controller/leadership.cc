#include "controller/leadership.h"

#include "base/log.h"
#include "kube/source.h"
#include "reconcilers/claim/step.h"

namespace holdfast::controller {
namespace {

using api::Checkpoint;
using kube::Pod;
using Keys = std::vector<std::string>;

// Pods come in bursts; a policy's status may be this much behind.
constexpr Duration kPolicyLag = std::chrono::seconds(2);

template <class T>
Keys KeysOf(const std::vector<std::shared_ptr<const T>>& objects) {
  Keys keys;
  for (const auto& object : objects) keys.push_back(object->meta.Key());
  return keys;
}

Keys Both(Keys a, const Keys& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A pod comes, starts, ends, begins to leave or is gone: what others wait for.
kube::Predicate<Pod> Moves() {
  return kube::OnUpdate<Pod>([](const Pod& a, const Pod& b) { return a.phase != b.phase || a.meta.terminating() != b.meta.terminating(); });
}
// Behind its gate, or just let through, maybe by a leader that could not tell why any more.
kube::Predicate<Pod> AtTheGate() {
  using reconcilers::claim::Gated;
  return [](const Pod* old, const Pod* now) { return now != nullptr && (Gated(*now) || (old != nullptr && Gated(*old))); };
}
kube::Predicate<Pod> Leaves() {
  return [](const Pod*, const Pod* now) { return now == nullptr || now->meta.terminating(); };
}

}  // namespace

struct Leadership::Reconcilers {
  Reconcilers(const reconcilers::Context& context, reconcilers::checkpoint::StoreDeleter& store, int max_drains_per_node)
      : gate(context, max_drains_per_node),
        checkpoint(context, gate, store),
        drain(context),
        claim(context),
        policy(context),
        interval(context) {}
  reconcilers::drain::Gate gate;
  reconcilers::checkpoint::Reconciler checkpoint;
  reconcilers::drain::Reconciler drain;
  reconcilers::claim::Reconciler claim;
  reconcilers::restorepolicy::Reconciler policy;
  reconcilers::interval::Reconciler interval;
};

template <class Method>
kube::Controller::Reconcile Leadership::Run(Method method) {
  return [this, method](const std::string& key, std::stop_token stop) { return method(*reconcilers_, key, std::move(stop)); };
}

kube::ControllerOptions Leadership::Options(const char* name, int workers) const {
  kube::ControllerOptions options;
  options.name = name;
  options.workers = workers;
  options.metrics = &metrics_.runtime();
  return options;
}

Leadership::Leadership(Caches& caches, reconcilers::Context context, Metrics& metrics, reconcilers::checkpoint::StoreDeleter& store,
                       int max_drains_per_node)
    : caches_(caches),
      context_(std::move(context)),
      metrics_(metrics),
      store_(store),
      max_drains_per_node_(max_drains_per_node),
      checkpoints_(Options("checkpoint", 4), Run([](auto& r, auto& key, auto stop) { return r.checkpoint.Reconcile(key, stop); }),
                   context_.clock),
      drains_(Options("drain", 4), Run([](auto& r, auto& key, auto stop) { return r.drain.Reconcile(key, stop); }), context_.clock),
      claims_(Options("claim", 4), Run([](auto& r, auto& key, auto stop) { return r.claim.ReconcilePod(key, stop); }), context_.clock),
      abandoned_(Options("abandoned_claim", 1), Run([](auto& r, auto& key, auto stop) { return r.claim.ReconcileCheckpoint(key, stop); }),
                 context_.clock),
      policies_(Options("restorepolicy", 1), Run([](auto& r, auto& key, auto stop) { return r.policy.Reconcile(key, stop); }),
                context_.clock),
      intervals_(Options("interval", 1), Run([](auto& r, auto& key, auto stop) { return r.interval.Reconcile(key, stop); }),
                 context_.clock) {
  WatchCheckpoints();
  WatchPods();
  WatchPolicies();
}

Leadership::~Leadership() { Stop(); }

void Leadership::WatchCheckpoints() {
  auto& source = caches_.checkpoints;
  checkpoints_.AddSource(kube::Watch(source, checkpoints_));
  drains_.AddSource(kube::Watch(source, drains_));
  abandoned_.AddSource(kube::Watch(source, abandoned_));
  // Others of the same pod wait for their turn; successors wait for this one.
  checkpoints_.AddSource(kube::Watch(
      source, checkpoints_,
      {.keys = [this](const Checkpoint& c) { return KeysOf(caches_.CheckpointsOfPod(c.spec.pod_uid)); }, .changes_only = true}));
  claims_.AddSource(kube::Watch(
      source, claims_, {.keys = [this](const Checkpoint& c) { return KeysOf(caches_.GatedPodsIn(c.meta.ns)); }, .changes_only = true}));
  // A pod's next one counts from the end of its last.
  intervals_.AddSource(kube::Watch(source, intervals_,
                                   {.when = [](const Checkpoint*, const Checkpoint* now) { return now != nullptr && now->done(); },
                                    .keys = [](const Checkpoint& c) { return Keys{c.meta.ns + "/" + c.spec.pod_name}; },
                                    .changes_only = true}));
  policies_.AddSource(kube::Watch(
      source, policies_,
      {.keys = [this](const Checkpoint& c) { return KeysOf(caches_.PoliciesIn(c.meta.ns)); }, .after = kPolicyLag, .changes_only = true}));
}

void Leadership::WatchPods() {
  auto& source = caches_.pods;
  auto made_of = [this](const Pod& pod) { return KeysOf(caches_.CheckpointsOfPod(pod.meta.uid)); };
  auto claimed_by = [this](const Pod& pod) { return KeysOf(caches_.CheckpointsClaimedBy(pod.meta.uid)); };
  checkpoints_.AddSource(
      kube::Watch(source, checkpoints_,
                  {.keys = [made_of, claimed_by](const Pod& pod) { return Both(made_of(pod), claimed_by(pod)); }, .changes_only = true}));
  drains_.AddSource(kube::Watch(source, drains_, {.keys = made_of, .changes_only = true}));
  abandoned_.AddSource(kube::Watch(source, abandoned_, {.keys = claimed_by, .changes_only = true}));
  claims_.AddSource(kube::Watch(source, claims_, {.when = kube::AnyOf(Moves(), AtTheGate())}));
  intervals_.AddSource(kube::Watch(source, intervals_, {.when = Moves()}));
  // Who leaves makes room for who waits.
  claims_.AddSource(kube::Watch(source, claims_,
                                {.when = kube::AllOf(Moves(), Leaves()),
                                 .keys = [this](const Pod& pod) { return KeysOf(caches_.GatedPodsIn(pod.meta.ns)); },
                                 .changes_only = true}));
  policies_.AddSource(kube::Watch(source, policies_,
                                  {.when = Moves(),
                                   .keys = [this](const Pod& pod) { return KeysOf(caches_.PoliciesIn(pod.meta.ns)); },
                                   .after = kPolicyLag,
                                   .changes_only = true}));
}

void Leadership::WatchPolicies() {
  auto& source = caches_.policies;
  policies_.AddSource(kube::Watch(source, policies_));
  intervals_.AddSource(kube::Watch(source, intervals_,
                                   {.when = kube::GenerationChanged<api::RestorePolicy>(),
                                    .keys = [this](const api::RestorePolicy& policy) { return KeysOf(caches_.PodsIn(policy.meta.ns)); },
                                    .changes_only = true}));
  // A pod that one policy means, another one does not.
  policies_.AddSource(kube::Watch(source, policies_,
                                  {.when = kube::GenerationChanged<api::RestorePolicy>(),
                                   .keys = [this](const api::RestorePolicy& policy) { return KeysOf(caches_.PoliciesIn(policy.meta.ns)); },
                                   .after = kPolicyLag,
                                   .changes_only = true}));
}

void Leadership::Start(int64_t term) {
  if (reconcilers_) return;  // led before: the process is on its way out
  context_.term = term;
  reconcilers_ = std::make_unique<Reconcilers>(context_, store_, max_drains_per_node_);
  for (kube::Controller* controller : {&checkpoints_, &drains_, &claims_, &abandoned_, &policies_, &intervals_}) {
    if (Status started = controller->Start(); !started.ok()) LogError("a controller does not run", {{"error", started.ToString()}});
  }
}

void Leadership::Stop() {
  for (kube::Controller* controller : {&checkpoints_, &drains_, &claims_, &abandoned_, &policies_, &intervals_}) controller->Stop();
}

}  // namespace holdfast::controller
