#include "reconcilers/restorepolicy/retainer.h"

#include "base/fault_point.h"
#include "base/log.h"
#include "reconcilers/restorepolicy/live_view.h"

namespace holdfast::reconcilers::restorepolicy {
namespace {

// Workloads, namespaces and volumes tell nobody that they changed.
constexpr Duration kLookAgain = std::chrono::seconds(60), kGoOn = std::chrono::seconds(1);
constexpr Duration kAfterConflict = std::chrono::milliseconds(200);

}  // namespace

// The volumes are measured after the Checkpoints were seen: one that goes in between is counted too often as gone, never as there.
Plan Retainer::Look(const View& view, const std::set<std::string>& namespaces, std::stop_token stop) {
  const WallTime now = context_.clock.Wall();
  Seen seen = Survey(view, namespaces, settings_.namespace_quota_bytes, now);
  if (settings_.marks.high_percent > 0) {
    std::string error;
    for (const auto& [store, use] : meter_.Use(std::move(stop))) {
      if (!use.ok()) {  // being emptied is not over for that
        error += (error.empty() ? "" : "; ") + use.status().With("store " + store).ToString();
        continue;
      }
      seen.excess_bytes[store] = Excess(*use, settings_.marks, emptying_.contains(store));
      if (seen.excess_bytes[store] > 0) {
        emptying_.insert(store);
      } else {
        emptying_.erase(store);
      }
    }
    if (error != told_of_stores_ && !error.empty()) LogWarning("how full a store's volume is, is not known", {{"error", error}});
    told_of_stores_ = error;
  }
  Plan plan = MakePlan(std::move(seen), now);
  // All that may go goes; what becomes free to go later goes only above the high mark.
  for (const Unmet& unmet : plan.unmet) emptying_.erase(unmet.store);
  return plan;
}

Status Retainer::Delete(const api::Checkpoint& c, const Removal& removal, std::stop_token stop) {
  kube::DeleteOptions del;
  // It goes because of what we saw: changed meanwhile (kConflict), it is looked at again.
  del.preconditions.uid = c.meta.uid;
  del.preconditions.resource_version = c.meta.resource_version;
  const Status deleted = context_.client.Delete(api::Checkpoint::kResource, c.meta.ns, c.meta.name, del, Calls(std::move(stop)));
  HF_FAULT_POINT("controller.wrote");
  if (deleted.code() == Code::kNotFound) return Status::Ok();
  HF_RETURN_IF_ERROR(deleted);
  const std::string reason(DropName(removal.why));
  LogInfo("checkpoint deleted by retention", {{"checkpoint", c.meta.Key()}, {"reason", reason}, {"why", removal.text}});
  const auto about = kube::ObjectReference::To(api::Checkpoint::kResource, c.meta);
  if (removal.why == Drop::kVolume || removal.why == Drop::kQuota) {
    context_.events.Warning(about, reason, "Retention", "deleted: " + removal.text);
  } else {
    context_.events.Normal(about, reason, "Retention", "deleted: " + removal.text);
  }
  observer_.Deleted(removal.why, removal.subject->bytes);
  return Status::Ok();
}

Status Retainer::Mark(const api::Checkpoint& c, bool orphaned, std::stop_token stop) {
  std::vector<api::Condition> conditions = c.status.conditions;
  if (orphaned) {
    kube::SetCondition(conditions,
                       {.type = kOrphanedCondition,
                        .status = "True",
                        .reason = "OwnerGone",
                        .message = (c.status.owner.kind.empty() ? "pod " + c.spec.pod_name.str()
                                                                : c.status.owner.kind.str() + " " + c.status.owner.name.str()) +
                                   " does not exist any more: kept for retention.keepOrphans from here on",
                        .observed_generation = c.meta.generation},
                       context_.clock.Wall());
  } else {
    kube::RemoveCondition(conditions, kOrphanedCondition);
  }
  return PatchStatus(context_, c, {{"status", {{"conditions", api::ToJson(conditions)}}}}, std::move(stop)).status();
}

// In the plan's order, and not beyond what was read live: the rest is for the next look.
Status Retainer::CarryOut(const Plan& plan, const View& live, const std::set<std::string>& fresh, std::stop_token stop) {
  size_t done = 0;
  for (const Removal& removal : plan.drops) {
    if (done++ == settings_.at_once || !fresh.contains(removal.subject->ns)) break;
    const CheckpointPtr c = live.GetCheckpoint(removal.subject->ns, removal.subject->name);
    if (c) HF_RETURN_IF_ERROR(Delete(*c, removal, stop));
  }
  done = 0;
  for (const auto* list : {&plan.orphaned, &plan.adopted}) {
    for (const Subject* subject : *list) {
      if (!fresh.contains(subject->ns)) continue;
      if (done++ == settings_.at_once) return Status::Ok();
      const CheckpointPtr c = live.GetCheckpoint(subject->ns, subject->name);
      if (c) HF_RETURN_IF_ERROR(Mark(*c, list == &plan.orphaned, stop));
    }
  }
  return Status::Ok();
}

// Once each time that it changes.
void Retainer::Tell(const Plan& plan, const std::set<std::string>& namespaces) {
  std::string text;
  auto add = [&](const std::string& line) { text += (text.empty() ? "" : "; ") + line; };
  for (const std::string& ns : namespaces) {
    std::string problem;
    QuotaOf(context_.view, ns, settings_.namespace_quota_bytes, &problem);
    if (!problem.empty()) add(problem);
  }
  for (const Unmet& unmet : plan.unmet) {
    std::string where = unmet.ns.empty() ? "the volume of store " + unmet.store : "namespace " + unmet.ns;
    if (!unmet.policy.empty()) where = "RestorePolicy " + unmet.ns + "/" + unmet.policy;
    add(std::string(DropName(unmet.limit)) + " of " + where +
        " is exceeded by checkpoints that are protected: unpin or delete some, or raise it");
  }
  if (text != told_ && !text.empty()) LogWarning("retention cannot do all that it is asked to", {{"why", text}});
  told_ = text;
}

Result<kube::ReconcileResult> Retainer::Reconcile(const std::string&, std::stop_token stop) {
  std::set<std::string> namespaces;
  for (const CheckpointPtr& c : context_.view.Checkpoints()) namespaces.insert(c->meta.ns);
  const Plan cached = Look(context_.view, namespaces, stop);
  observer_.Planned(cached);
  Tell(cached, namespaces);
  std::set<std::string> fresh;
  for (size_t i = 0; i < cached.drops.size() && i < settings_.at_once; ++i) fresh.insert(cached.drops[i].subject->ns);
  for (const auto* list : {&cached.orphaned, &cached.adopted}) {
    for (size_t i = 0; i < list->size() && i < settings_.at_once; ++i) fresh.insert((*list)[i]->ns);
  }
  std::optional<WallTime> next = cached.next;
  bool more = false;
  if (!fresh.empty()) {
    LiveView live(context_.view, context_.client);
    HF_RETURN_IF_ERROR(live.Read(fresh, stop).With("retention"));
    const Plan plan = Look(live, namespaces, stop);
    HF_RETURN_IF_ERROR(Status(live.problem()).With("retention"));
    const Status carried = CarryOut(plan, live, fresh, stop);
    if (carried.code() == Code::kConflict) return kube::ReconcileResult{kAfterConflict};
    HF_RETURN_IF_ERROR(Status(carried).With("retention"));
    next = plan.next;
    more = !plan.drops.empty() || plan.orphaned.size() + plan.adopted.size() > settings_.at_once;
  }
  Duration again = more ? kGoOn : kLookAgain;
  if (next) again = std::min<Duration>(again, std::max<Duration>(*next - context_.clock.Wall(), kGoOn));
  return kube::ReconcileResult{again};
}

}  // namespace holdfast::reconcilers::restorepolicy
