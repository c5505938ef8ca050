#include "reconcilers/idle/reconciler.h"

#include "base/log.h"

namespace holdfast::reconcilers::idle {
namespace {

constexpr Duration kAfterConflict = std::chrono::milliseconds(500);

}  // namespace

std::string KeyOf(const std::string& kind, const kube::ObjectMeta& workload) { return kind + "/" + workload.Key(); }

Result<kube::ReconcileResult> Reconciler::Reconcile(const std::string& key, std::stop_token stop) {
  const size_t slash = key.find('/');
  const kube::ObjectKey name = kube::ObjectKey::Parse(key.substr(std::min(slash + 1, key.size())));
  World world;
  world.kind = key.substr(0, slash);
  // One that is gone takes its SuspendedWorkload with it, as its owner.
  world.workload = context_.view.GetWorkload({"", world.kind, name.name, "", true}, name.ns, Duration(0));
  if (!world.workload) return kube::ReconcileResult{};
  world.named = context_.view.GetSuspended(name.ns, name.name);
  world.of_it = context_.view.SuspendersOf(name.ns, world.kind, name.name);
  const Step step = Next(world);
  const kube::Resource& about = world.kind == "StatefulSet" ? kube::StatefulSet::kResource : kube::Deployment::kResource;
  if (step.notice) {
    context_.events.Warning(kube::ObjectReference::To(about, world.workload->meta), step.notice->reason, "Holdfast", step.notice->note);
  }
  kube::CallOptions calls;
  calls.timeout = std::chrono::seconds(10);
  calls.stop = std::move(stop);
  const auto& kind = api::SuspendedWorkload::kResource;
  Status done;
  switch (step.action) {
    case Action::kNothing:
      return kube::ReconcileResult{};
    case Action::kCreate:
      done = context_.client.Create(kind, name.ns, step.object, calls).status();
      break;
    case Action::kPatch:
      done =
          context_.client.Patch(kind, name.ns, name.name, kube::PatchType::kMerge, Locked(step.object, world.named->meta), calls).status();
      break;
    case Action::kDelete: {
      kube::DeleteOptions options;
      options.preconditions.uid = world.named->meta.uid;
      options.preconditions.resource_version = world.named->meta.resource_version;
      done = context_.client.Delete(kind, name.ns, name.name, options, calls);
      break;
    }
  }
  // The cache is behind: what it brings is looked at.
  if (done.code() == Code::kConflict || done.code() == Code::kAlreadyExists || done.code() == Code::kNotFound)
    return kube::ReconcileResult{kAfterConflict};
  if (!done.ok()) return done.With("SuspendedWorkload " + name.ToString() + ", for " + api::kSuspendWhenIdle);
  LogInfo("suspend when idle", {{"workload", key}, {"says", world.workload->meta.Annotation(api::kSuspendWhenIdle)}});
  return kube::ReconcileResult{};
}

}  // namespace holdfast::reconcilers::idle
