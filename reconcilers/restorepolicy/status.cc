#include "reconcilers/restorepolicy/status.h"

#include <set>

#include "reconcilers/claims.h"
#include "reconcilers/lineage.h"
#include "reconcilers/support.h"

namespace holdfast::reconcilers::restorepolicy {
namespace {

constexpr size_t kMaxUnprotected = 50;  // as many as the CRD takes; the numbers tell the rest

std::string WhyUnprotected(const View& view, const kube::Pod& pod) {
  if (auto why = Unprotected(pod)) return *why;
  if (pod.node_name.empty()) return "";  // will be, once it is scheduled
  NodePtr node = view.GetNode(pod.node_name);
  return UnsupportedHere(pod, node.get(), true).value_or("");
}

bool Counts(const kube::Pod& pod) { return !pod.meta.terminating() && pod.phase != "Succeeded" && pod.phase != "Failed"; }

}  // namespace

Json StatusOf(const View& view, const api::RestorePolicy& policy) {
  const std::string& ns = policy.meta.ns;
  int64_t matched = 0, protected_pods = 0, stored = 0;
  Json unprotected = Json::array();
  std::set<std::string> owners;
  for (const PodPtr& pod : view.PodsIn(ns)) {
    if (!Counts(*pod)) continue;
    const Lineage lineage = Trace(view, *pod, ns);
    const Protection protection = ProtectionOf(view, *pod, ns, lineage);
    if (!protection.on || protection.policy->meta.name != policy.meta.name) continue;
    ++matched;
    owners.insert(lineage.owner.uid);
    const std::string why = WhyUnprotected(view, *pod);
    if (why.empty()) {
      ++protected_pods;
    } else if (unprotected.size() < kMaxUnprotected) {
      unprotected.push_back(api::ToJson(api::UnprotectedPod{pod->meta.name, why}));
    }
  }
  CheckpointPtr last;
  for (const std::string& owner : owners) {
    for (const CheckpointPtr& c : view.CheckpointsOfOwner(owner)) {
      if (c->meta.ns != ns || c->status.phase != api::Phase::kReady) continue;
      stored += c->status.stored_bytes;
      if (!last || Newer(c, last)) last = c;
    }
  }
  Json status = {{"matched", matched}, {"protected", protected_pods}, {"unprotected", unprotected}, {"stored", stored}};
  status["summary"] = {{"stored", api::SummaryJson(0, stored)["stored"]}};
  if (last) status["lastCheckpoint"] = last->meta.name;
  return status;
}

Result<kube::ReconcileResult> Reconciler::Reconcile(const std::string& key, std::stop_token stop) {
  const kube::ObjectKey name = kube::ObjectKey::Parse(key);
  PolicyPtr policy = context_.view.GetPolicy(name.ns, name.name);
  if (!policy) return kube::ReconcileResult{};
  Json status = StatusOf(context_.view, *policy);
  Json was = {{"matched", policy->status.matched}, {"protected", policy->status.protected_pods}, {"stored", policy->status.stored_bytes}};
  was["unprotected"] = Json::array();
  for (const api::UnprotectedPod& pod : policy->status.unprotected) was["unprotected"].push_back(api::ToJson(pod));
  was["summary"] = status["summary"];
  if (!policy->status.last_checkpoint.empty()) was["lastCheckpoint"] = policy->status.last_checkpoint;
  const bool first = policy->status.conditions.empty();
  if (was == status && !first) return kube::ReconcileResult{};

  const bool all = status["matched"] == status["protected"];
  std::vector<api::Condition> conditions = policy->status.conditions;
  kube::SetCondition(conditions,
                     {.type = "Protected",
                      .status = all ? "True" : "False",
                      .reason = all ? "AllProtected" : "SomeUnprotected",
                      .message = std::to_string(GetInt(status, {"protected"})) + " of " + std::to_string(GetInt(status, {"matched"})) +
                                 " pods are protected",
                      .observed_generation = policy->meta.generation},
                     context_.clock.Wall());
  status["conditions"] = api::ToJson(conditions);
  kube::CallOptions options;
  options.subresource = "status";
  options.timeout = std::chrono::seconds(10);
  options.stop = stop;
  // The uid: not onto another policy of this name.
  const Json patch = {{"metadata", {{"uid", policy->meta.uid}}}, {"status", status}};
  auto written = context_.client.Patch(api::RestorePolicy::kResource, name.ns, name.name, kube::PatchType::kMerge, patch, options);
  if (!written.ok() && written.status().code() != Code::kNotFound) return written.status();
  return kube::ReconcileResult{};
}

}  // namespace holdfast::reconcilers::restorepolicy
