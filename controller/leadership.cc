#include "controller/leadership.h"

#include "base/log.h"
#include "kube/source.h"
#include "reconcilers/claim/step.h"
#include "reconcilers/idle/reconciler.h"

namespace holdfast::controller {
namespace {

using api::Checkpoint;
using api::SuspendedWorkload;
using kube::Pod;
using Keys = std::vector<std::string>;

// Pods come in bursts; a policy's status may be this much behind.
constexpr Duration kPolicyLag = std::chrono::seconds(2);
// So may retention, which looks at everything.
constexpr Duration kRetentionLag = std::chrono::seconds(2);
constexpr Duration kDamageLag = std::chrono::seconds(2);

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
  using reconcilers::Gated;
  return [](const Pod* old, const Pod* now) { return now != nullptr && (Gated(*now) || (old != nullptr && Gated(*old))); };
}
// Its node's agent says something else of its use, or was asked something else.
kube::Predicate<Pod> UseChanged() {
  return kube::OnUpdate<Pod>([](const Pod& a, const Pod& b) {
    const api::Condition* before = kube::FindCondition(a.conditions, api::kIdle);
    const api::Condition* after = kube::FindCondition(b.conditions, api::kIdle);
    if ((before == nullptr) != (after == nullptr)) return true;
    if (after != nullptr && (before->status != after->status.view() || before->message != after->message.view())) return true;
    return a.meta.Annotation(api::kIdleWatch) != b.meta.Annotation(api::kIdleWatch);
  });
}
kube::Predicate<Pod> Leaves() {
  return [](const Pod*, const Pod* now) { return now == nullptr || now->meta.terminating(); };
}

// All that requests are to wake.
Keys AskedFor(const Caches& caches) {
  Keys keys;
  for (const auto& object : caches.suspended.List()) {
    if (object->spec.on_request) keys.push_back(object->meta.Key());
  }
  return keys;
}

}  // namespace

struct Leadership::Reconcilers {
  Reconcilers(const reconcilers::Context& context, reconcilers::checkpoint::Contents& store, reconcilers::restorepolicy::VolumeMeter& meter,
              Metrics& metrics, const Options& options, const Caches& caches)
      : gate(context, options.max_drains_per_node, options.drain_deadline),
        checkpoint(context, gate, store, options.retention.namespace_quota_bytes),
        drain(context),
        claim(context),
        policy(context, options.retention.namespace_quota_bytes),
        interval(context),
        retainer(context, options.retention, meter, metrics),
        damage(context, store),
        suspended(context, {options.store_down, options.max_drains_per_node, options.prices, options.seal, options.open}),
        idle(context),
        stop(context),
        requests(context, {.range = options.activator_ports,
                           .ns = options.ns,
                           .service = [&caches](const std::string& ns, const std::string& name) { return caches.services.Get(ns, name); },
                           .slice = [&caches](const std::string& ns, const std::string& name) { return caches.slices.Get(ns, name); },
                           .all = [&caches] { return caches.suspended.List(); }}) {}
  reconcilers::drain::Gate gate;
  reconcilers::checkpoint::Reconciler checkpoint;
  reconcilers::drain::Reconciler drain;
  reconcilers::claim::Reconciler claim;
  reconcilers::restorepolicy::Reconciler policy;
  reconcilers::interval::Reconciler interval;
  reconcilers::restorepolicy::Retainer retainer;
  reconcilers::checkpoint::DamageTeller damage;
  reconcilers::suspendedworkload::Reconciler suspended;
  reconcilers::idle::Reconciler idle;
  reconcilers::stop::Reconciler stop;
  reconcilers::onrequest::Reconciler requests;
};

template <class Method>
kube::Controller::Reconcile Leadership::Run(Method method) {
  return [this, method](const std::string& key, std::stop_token stop) { return method(*reconcilers_, key, std::move(stop)); };
}

kube::ControllerOptions Leadership::Workers(const char* name, int workers) const {
  kube::ControllerOptions options;
  options.name = name;
  options.workers = std::min(workers, options_.workers);
  options.metrics = &metrics_.runtime();
  return options;
}

Leadership::Leadership(Caches& caches, reconcilers::Context context, Metrics& metrics, reconcilers::checkpoint::Contents& store,
                       reconcilers::restorepolicy::VolumeMeter& meter, Options options)
    : caches_(caches),
      context_(std::move(context)),
      metrics_(metrics),
      store_(store),
      meter_(meter),
      options_(std::move(options)),
      checkpoints_(Workers("checkpoint", 4), Run([](auto& r, auto& key, auto stop) { return r.checkpoint.Reconcile(key, stop); }),
                   context_.clock),
      drains_(Workers("drain", 4), Run([](auto& r, auto& key, auto stop) { return r.drain.Reconcile(key, stop); }), context_.clock),
      claims_(Workers("claim", 4), Run([](auto& r, auto& key, auto stop) { return r.claim.ReconcilePod(key, stop); }), context_.clock),
      abandoned_(Workers("abandoned_claim", 1), Run([](auto& r, auto& key, auto stop) { return r.claim.ReconcileCheckpoint(key, stop); }),
                 context_.clock),
      policies_(Workers("restorepolicy", 1), Run([](auto& r, auto& key, auto stop) { return r.policy.Reconcile(key, stop); }),
                context_.clock),
      intervals_(Workers("interval", 1), Run([](auto& r, auto& key, auto stop) { return r.interval.Reconcile(key, stop); }),
                 context_.clock),
      retention_(Workers("retention", 1), Run([](auto& r, auto& key, auto stop) { return r.retainer.Reconcile(key, stop); }),
                 context_.clock),
      damage_(Workers("damage", 1), Run([](auto& r, auto& key, auto stop) { return r.damage.Reconcile(key, stop); }), context_.clock),
      suspends_(Workers("suspendedworkload", 1), Run([](auto& r, auto& key, auto stop) { return r.suspended.Reconcile(key, stop); }),
                context_.clock),
      idles_(Workers("suspend_when_idle", 1), Run([](auto& r, auto& key, auto stop) { return r.idle.Reconcile(key, stop); }),
             context_.clock),
      stops_(Workers("stop", 4), Run([](auto& r, auto& key, auto stop) { return r.stop.Reconcile(key, stop); }), context_.clock),
      requests_(Workers("on_request", 1), Run([](auto& r, auto& key, auto stop) { return r.requests.Reconcile(key, stop); }),
                context_.clock) {
  if (options_.on_stop) context_.decide_stop = [this](const std::string& pod) { stops_.Enqueue(pod); };
  WatchCheckpoints();
  WatchPods();
  WatchPolicies();
  WatchForRetention();
  WatchForDamage();
  WatchForSuspension();
  WatchForRequests();
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
  // Those of a cut go on together, or fail together.
  checkpoints_.AddSource(kube::Watch(source, checkpoints_,
                                     {.keys =
                                          [](const Checkpoint& c) {
                                            Keys keys;
                                            for (const api::CutMember& m : c.spec.cut.members)
                                              keys.push_back(c.meta.ns + "/" + m.checkpoint);
                                            return keys;
                                          },
                                      .changes_only = true}));
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
  if (options_.on_stop) stops_.AddSource(kube::Watch(source, stops_, {.when = kube::AllOf(Moves(), Leaves())}));
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

// One key: limits span workloads and namespaces.
void Leadership::WatchForRetention() {
  using reconcilers::restorepolicy::Retainer;
  retention_.AddSource(kube::Watch(caches_.checkpoints, retention_,
                                   {.keys = [](const Checkpoint&) { return Keys{Retainer::kKey}; }, .after = kRetentionLag}));
  retention_.AddSource(kube::Watch(caches_.policies, retention_,
                                   {.when = kube::GenerationChanged<api::RestorePolicy>(),
                                    .keys = [](const api::RestorePolicy&) { return Keys{Retainer::kKey}; },
                                    .after = kRetentionLag,
                                    .changes_only = true}));
  retention_.AddSource(kube::Watch(caches_.pods, retention_,
                                   {.when = Moves(),
                                    .keys =
                                        [this](const Pod& pod) {
                                          const bool concerned = !caches_.CheckpointsOfPod(pod.meta.uid).empty() ||
                                                                 !caches_.CheckpointsClaimedBy(pod.meta.uid).empty();
                                          return concerned ? Keys{Retainer::kKey} : Keys{};
                                        },
                                    .after = kRetentionLag,
                                    .changes_only = true}));
}

// One key, which comes back by itself once there is a Checkpoint.
void Leadership::WatchForDamage() {
  using reconcilers::checkpoint::DamageTeller;
  damage_.AddSource(kube::Watch(caches_.checkpoints, damage_,
                                {.when = [](const Checkpoint* old, const Checkpoint* now) { return old == nullptr && now != nullptr; },
                                 .keys = [](const Checkpoint&) { return Keys{DamageTeller::kKey}; },
                                 .after = kDamageLag}));
}

// The object itself, its workload, that one's pods, and their checkpoints.
void Leadership::WatchForSuspension() {
  suspends_.AddSource(kube::Watch(caches_.suspended, suspends_));
  // Of several objects of one workload the next one holds when the first is gone.
  suspends_.AddSource(kube::Watch(
      caches_.suspended, suspends_,
      {.when = [](const SuspendedWorkload*, const SuspendedWorkload* now) { return now == nullptr; },
       .keys =
           [this](const SuspendedWorkload& s) { return KeysOf(caches_.SuspendersOf(s.meta.ns, s.spec.target_kind, s.spec.target_name)); },
       .changes_only = true}));
  suspends_.AddSource(kube::Watch(caches_.checkpoints, suspends_,
                                  {.keys =
                                       [this](const Checkpoint& c) {
                                         Keys keys = KeysOf(caches_.SuspendersWith(c.meta.ns, c.meta.name));
                                         if (!api::Suspends(c.spec.trigger)) return keys;
                                         const api::Owner& owner = c.status.owner;
                                         return Both(std::move(keys), KeysOf(caches_.SuspendersOf(c.meta.ns, owner.kind, owner.name)));
                                       },
                                   .changes_only = true}));
  suspends_.AddSource(kube::Watch(caches_.pods, suspends_,
                                  {.when = kube::AnyOf(kube::AnyOf(Moves(), AtTheGate()), UseChanged()),
                                   .keys =
                                       [this](const Pod& pod) {
                                         const api::Owner owner = reconcilers::Trace(caches_, pod, pod.meta.ns).owner;
                                         return KeysOf(caches_.SuspendersOf(pod.meta.ns, owner.kind, owner.name));
                                       },
                                   .changes_only = true}));
  auto workloads = [this](auto& informer) {
    using T = typename std::remove_reference_t<decltype(informer.List())>::value_type::element_type;
    suspends_.AddSource(
        kube::Watch(informer, suspends_,
                    {.keys = [this](const T& w) { return KeysOf(caches_.SuspendersOf(w.meta.ns, T::kResource.kind, w.meta.name)); },
                     .changes_only = true}));
  };
  workloads(caches_.deployments);
  workloads(caches_.stateful_sets);
  workloads(caches_.jobs);
  auto annotated = [this](auto& informer) {
    using T = typename std::remove_reference_t<decltype(informer.List())>::value_type::element_type;
    idles_.AddSource(kube::Watch(informer, idles_,
                                 {.when = kube::OnUpdate<T>([](const T& a, const T& b) {
                                    return a.meta.Annotation(api::kSuspendWhenIdle) != b.meta.Annotation(api::kSuspendWhenIdle) ||
                                           a.meta.uid != b.meta.uid || a.meta.terminating() != b.meta.terminating();
                                  }),
                                  .keys = [](const T& w) { return Keys{reconcilers::idle::KeyOf(T::kResource.kind, w.meta)}; }}));
  };
  annotated(caches_.deployments);
  annotated(caches_.stateful_sets);
  // One that is gone, or changed by somebody, may be what an annotation stands for.
  idles_.AddSource(
      kube::Watch(caches_.suspended, idles_, {.when = kube::GenerationChanged<SuspendedWorkload>(), .keys = [](const SuspendedWorkload& s) {
                                                return s.spec.target_kind == "Job"
                                                           ? Keys{}
                                                           : Keys{s.spec.target_kind + "/" + s.meta.ns + "/" + s.spec.target_name};
                                              }}));
}

// The object itself, its Service, what leads to the activator, and which activators are ready.
void Leadership::WatchForRequests() {
  requests_.AddSource(kube::Watch(caches_.suspended, requests_));
  if (options_.activator_ports.count == 0) return;
  // Who came later may have the Service, or the number, of one that is gone.
  requests_.AddSource(kube::Watch(caches_.suspended, requests_,
                                  {.when = [](const SuspendedWorkload*, const SuspendedWorkload* now) { return now == nullptr; },
                                   .keys = [this](const SuspendedWorkload&) { return AskedFor(caches_); },
                                   .changes_only = true}));
  requests_.AddSource(kube::Watch(caches_.services, requests_,
                                  {.keys =
                                       [this](const kube::Service& service) {
                                         Keys keys;
                                         for (const auto& s : caches_.SuspendedIn(service.meta.ns)) {
                                           if (s->spec.on_request && s->spec.on_request->service == service.meta.name)
                                             keys.push_back(s->meta.Key());
                                         }
                                         return keys;
                                       },
                                   .changes_only = true}));
  requests_.AddSource(kube::Watch(caches_.slices, requests_,
                                  {.keys =
                                       [](const kube::EndpointSlice& slice) {
                                         const kube::OwnerReference* owner = slice.meta.Controller();
                                         return owner == nullptr ? Keys{} : Keys{slice.meta.ns + "/" + owner->name};
                                       },
                                   .changes_only = true}));
  auto comes_or_goes = [ns = options_.ns](const Pod* old, const Pod* now) {
    const Pod& pod = now != nullptr ? *now : *old;
    if (pod.meta.ns != ns || !reconcilers::onrequest::IsActivator(pod)) return false;
    return old == nullptr || now == nullptr || old->ready != now->ready || old->meta.terminating() != now->meta.terminating();
  };
  requests_.AddSource(kube::Watch(caches_.pods, requests_,
                                  {.when = comes_or_goes, .keys = [this](const Pod&) { return AskedFor(caches_); }, .changes_only = true}));
}

void Leadership::Start(int64_t term) {
  if (reconcilers_) return;  // led before: the process is on its way out
  context_.term = term;
  reconcilers_ = std::make_unique<Reconcilers>(context_, store_, meter_, metrics_, options_, caches_);
  for (kube::Controller* controller : all_) {
    if (Status started = controller->Start(); !started.ok()) LogError("a controller does not run", {{"error", started.ToString()}});
  }
}

void Leadership::Stop() {
  for (kube::Controller* controller : all_) controller->Stop();
}

}  // namespace holdfast::controller
