#include "reconcilers/drain/reconciler.h"

#include "base/fault_point.h"
#include "base/log.h"

namespace holdfast::reconcilers::drain {

Result<kube::ReconcileResult> Reconciler::Reconcile(const std::string& key, std::stop_token stop) {
  const kube::ObjectKey name = kube::ObjectKey::Parse(key);
  World world;
  world.checkpoint = context_.view.GetCheckpoint(name.ns, name.name);
  if (!world.checkpoint) return kube::ReconcileResult{};
  const api::Checkpoint& c = *world.checkpoint;
  world.pod = GetPodWithUid(context_.view, name.ns, c.spec.pod_name, c.spec.pod_uid);

  Step step = Next(world, context_.clock.Wall());
  if (step.action == Action::kEvict) {
    kube::DeleteOptions del;
    del.preconditions.uid = c.spec.pod_uid;
    kube::CallOptions options;
    options.timeout = std::chrono::seconds(10);
    options.stop = stop;
    HF_FAULT_POINT("controller.before_evict");
    world.evicted = context_.client.Evict(name.ns, c.spec.pod_name, del, options);
    HF_FAULT_POINT("controller.after_evict");
    HF_FAULT_POINT("controller.wrote");
    LogInfo("evict", {{"checkpoint", key}, {"pod", c.spec.pod_name}, {"answer", world.evicted->ToString()}});
    step = Next(world, context_.clock.Wall());
  }
  if (step.action == Action::kReclaim) {
    const api::Claim claim{c.spec.pod_name, c.spec.pod_uid, FormatTime(context_.clock.Wall())};
    auto written = WriteClaim(context_, c, claim, stop);
    if (written.status().code() == Code::kConflict) return kube::ReconcileResult{std::chrono::milliseconds(200)};
    if (!written.ok()) return written.status();
    LogWarning("reclaimed", {{"checkpoint", key}, {"why", step.why}});
  }
  if (step.notice) Announce(context_, *step.notice, world.pod.get(), &c);
  return kube::ReconcileResult{step.again};
}

}  // namespace holdfast::reconcilers::drain
