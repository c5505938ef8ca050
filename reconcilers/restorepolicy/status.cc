#include "reconcilers/restorepolicy/status.h"

#include <algorithm>

#include "reconcilers/lineage.h"
#include "reconcilers/restorepolicy/survey.h"
#include "reconcilers/support.h"

namespace holdfast::reconcilers::restorepolicy {
namespace {

constexpr size_t kMaxUnprotected = 50, kMaxVerdicts = 50;  // no more than the CRD takes; the numbers tell the rest
constexpr Duration kShortest = std::chrono::seconds(1);

std::string WhyUnprotected(const View& view, const kube::Pod& pod) {
  if (auto why = Unprotected(pod)) return *why;
  if (pod.node_name.empty()) return "";  // will be, once it is scheduled
  NodePtr node = view.GetNode(pod.node_name);
  return UnsupportedHere(pod, node.get(), true).value_or("");
}

bool Counts(const kube::Pod& pod) { return !pod.meta.terminating() && pod.phase != "Succeeded" && pod.phase != "Failed"; }

Json VerdictJson(const Subject& subject, std::string_view reason, const std::string& text) {
  return {{"checkpoint", subject.name}, {"reason", reason}, {"message", text}};
}

Json RetentionOf(const Plan& plan, const api::RestorePolicy& policy) {
  auto own = [&](const Subject& s) { return s.ns == policy.meta.ns && s.policy == policy.meta.name; };
  Json keeps = Json::array(), deletes = Json::array();
  int64_t kept = 0, deleted = 0, over = 0;
  auto add = [](Json* list, int64_t* count, Json verdict) {
    if (static_cast<size_t>((*count)++) < kMaxVerdicts) list->push_back(std::move(verdict));
  };
  for (const Removal& removal : plan.drops) {
    if (own(*removal.subject)) add(&deletes, &deleted, VerdictJson(*removal.subject, DropName(removal.why), removal.text));
  }
  for (const Stay& stay : plan.stays) {
    if (own(*stay.subject) && !stay.would) add(&keeps, &kept, VerdictJson(*stay.subject, KeepName(stay.keep), stay.text));
  }
  for (auto stay = plan.stays.rbegin(); stay != plan.stays.rend(); ++stay) {  // the oldest would go first
    if (own(*stay->subject) && stay->would) add(&deletes, &deleted, VerdictJson(*stay->subject, DropName(*stay->would), stay->would_text));
  }
  for (const Unmet& unmet : plan.unmet) {
    if (unmet.limit == Drop::kMaxBytes && unmet.ns == policy.meta.ns && unmet.policy == policy.meta.name) over = unmet.bytes;
  }
  return {{"kept", kept}, {"keeps", keeps}, {"deleted", deleted}, {"deletes", deletes}, {"overBytes", over}};
}

}  // namespace

Json StatusOf(const View& view, const api::RestorePolicy& policy, const Plan& plan) {
  const std::string& ns = policy.meta.ns;
  int64_t matched = 0, protected_pods = 0, stored = 0;
  Json unprotected = Json::array();
  for (const PodPtr& pod : view.PodsIn(ns)) {
    if (!Counts(*pod)) continue;
    const Lineage lineage = Trace(view, *pod, ns);
    const Protection protection = ProtectionOf(view, *pod, ns, lineage);
    if (!protection.on || protection.policy->meta.name != policy.meta.name) continue;
    ++matched;
    const std::string why = WhyUnprotected(view, *pod);
    if (why.empty()) {
      ++protected_pods;
    } else if (unprotected.size() < kMaxUnprotected) {
      unprotected.push_back(api::ToJson(api::UnprotectedPod{pod->meta.name, why}));
    }
  }
  const Subject* last = nullptr;  // the plan has them oldest first
  for (const Subject& s : plan.subjects) {
    if (s.ns != ns || s.policy != policy.meta.name || s.leaving) continue;
    stored += s.bytes;
    if (s.good) last = &s;
  }
  Json status = {{"matched", matched}, {"protected", protected_pods}, {"unprotected", unprotected}, {"stored", stored}};
  status["summary"] = {{"stored", api::SummaryJson(0, stored)["stored"]}};
  if (last != nullptr) status["lastCheckpoint"] = last->name;
  status["retention"] = RetentionOf(plan, policy);
  return status;
}

Result<kube::ReconcileResult> Reconciler::Reconcile(const std::string& key, std::stop_token stop) {
  const kube::ObjectKey name = kube::ObjectKey::Parse(key);
  PolicyPtr policy = context_.view.GetPolicy(name.ns, name.name);
  if (!policy) return kube::ReconcileResult{};
  const WallTime now = context_.clock.Wall();
  const Plan plan = MakePlan(Survey(context_.view, {name.ns}, namespace_quota_bytes_, now), now);
  kube::ReconcileResult result;
  if (plan.next) result.requeue_after = std::max<Duration>(*plan.next - now, kShortest);
  Json status = StatusOf(context_.view, *policy, plan);
  Json was = {{"matched", policy->status.matched}, {"protected", policy->status.protected_pods}, {"stored", policy->status.stored_bytes}};
  was["unprotected"] = Json::array();
  for (const api::UnprotectedPod& pod : policy->status.unprotected) was["unprotected"].push_back(api::ToJson(pod));
  was["summary"] = status["summary"];
  was["retention"] = policy->status.retention;
  if (!policy->status.last_checkpoint.empty()) was["lastCheckpoint"] = policy->status.last_checkpoint;
  const bool first = policy->status.conditions.empty();
  if (was == status && !first) return result;

  const bool all = status["matched"] == status["protected"];
  std::vector<api::Condition> conditions = policy->status.conditions;
  kube::SetCondition(conditions,
                     {.type = "Protected",
                      .status = all ? "True" : "False",
                      .reason = all ? "AllProtected" : "SomeUnprotected",
                      .message = std::to_string(GetInt(status, {"protected"})) + " of " + std::to_string(GetInt(status, {"matched"})) +
                                 " pods are protected",
                      .observed_generation = policy->meta.generation},
                     now);
  status["conditions"] = api::ToJson(conditions);
  if (!status.contains("lastCheckpoint")) status["lastCheckpoint"] = nullptr;  // a merge patch leaves what it does not name
  kube::CallOptions options;
  options.subresource = "status";
  options.timeout = std::chrono::seconds(10);
  options.stop = stop;
  // Locked: not onto another policy of this name, and nothing of the past by a cache that is behind.
  const Json patch = Locked({{"status", status}}, policy->meta);
  auto written = context_.client.Patch(api::RestorePolicy::kResource, name.ns, name.name, kube::PatchType::kMerge, patch, options);
  if (!written.ok() && written.status().code() != Code::kNotFound) return written.status();
  return result;
}

}  // namespace holdfast::reconcilers::restorepolicy
