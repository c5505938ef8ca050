#include "reconcilers/checkpoint/damage.h"

#include "base/log.h"
#include "reconcilers/claims.h"

namespace holdfast::reconcilers::checkpoint {
namespace {

// The store tells nobody by itself. A restore that comes before us finds the damage by itself.
constexpr Duration kLookAgain = std::chrono::seconds(10), kGoOn = std::chrono::seconds(1);
constexpr size_t kAtOnce = 50;

bool Holds(const api::Checkpoint& c, const char* condition) {
  const api::Condition* found = kube::FindCondition(c.status.conditions, condition);
  return found != nullptr && found->status == "True";
}

}  // namespace

std::vector<Mark> MarksOf(const std::vector<CheckpointPtr>& checkpoints, const std::map<std::string, Result<Damages>>& damaged) {
  std::vector<Mark> marks;
  for (const CheckpointPtr& c : checkpoints) {
    if (c->status.phase != api::Phase::kReady || c->meta.terminating()) continue;
    const std::string name = c->store();
    const auto store = damaged.find(name);
    const bool missing = store == damaged.end();
    if (missing != Holds(*c, api::kStoreMissing)) marks.push_back({c, api::kStoreMissing, missing ? StoreMissingText(name) : ""});
    if (missing || !store->second.ok()) continue;
    const auto found = store->second->find(c->status.manifest_id.empty() ? c->meta.uid : c->status.manifest_id.str());
    const bool is = found != store->second->end();
    if (is != (DamageOf(*c) != nullptr))
      marks.push_back({c, api::kDamaged, !is ? "" : found->second.empty() ? "the store does not say why" : found->second});
  }
  return marks;
}

std::string StoreMissingText(const std::string& name) {
  return "it is in the store \"" + name +
         "\", which is none of this installation's: was store.replicas of the chart made smaller? Make it as large as it was; nothing is "
         "lost while that store's claim is there. To give the Checkpoint up for good, delete it and take its finalizer off";
}

Status DamageTeller::Write(const Mark& mark, std::stop_token stop) {
  const api::Checkpoint& c = *mark.checkpoint;
  const bool damage = std::string_view(mark.condition) == api::kDamaged;
  const std::string says = damage ? "the store cannot read all of it any more: " + mark.why : mark.why;
  std::vector<api::Condition> conditions = c.status.conditions;
  if (mark.why.empty()) {
    kube::RemoveCondition(conditions, mark.condition);
  } else {
    kube::SetCondition(conditions,
                       {.type = mark.condition,
                        .status = "True",
                        .reason = damage ? "Unreadable" : "NotConfigured",
                        .message = says,
                        .observed_generation = c.meta.generation},
                       context_.clock.Wall());
  }
  // Told before the condition says that it was. Named after what was seen at the first try, so that it is told once although we die in
  // between, or somebody else's write comes first.
  Notice notice{.reason = damage ? "Mended" : "StoreFound",
                .note = damage ? "the store can read all of it again" : "the store that has it is one of this installation's again"};
  if (!mark.why.empty())
    notice = {.warning = true, .reason = mark.condition, .note = damage ? "no pod is restored from it: " + says : says};
  const std::string what = damage ? (mark.why.empty() ? "mended-" : "damaged-") : mark.why.empty() ? "found-" : "missing-";
  const auto seen = seen_.try_emplace(what + c.meta.uid, c.meta.resource_version).first;
  HF_RETURN_IF_ERROR(AnnounceOnce(context_, notice, seen->first + "-" + seen->second, nullptr, &c, stop));
  HF_RETURN_IF_ERROR(PatchStatus(context_, c, {{"status", {{"conditions", api::ToJson(conditions)}}}}, std::move(stop)).status());
  seen_.erase(seen);
  LogWarning("checkpoint", {{"checkpoint", c.meta.Key()}, {"condition", mark.condition}, {"holds", !mark.why.empty()}, {"why", mark.why}});
  return Status::Ok();
}

Result<kube::ReconcileResult> DamageTeller::Reconcile(const std::string&, std::stop_token stop) {
  const std::map<std::string, Result<Damages>> damaged = store_.Damaged(stop);
  std::string error = damaged.empty() ? "no store is configured" : "";
  for (const auto& [name, answer] : damaged) {
    if (!answer.ok()) error += (error.empty() ? "" : "; ") + answer.status().With("store " + name).ToString();
  }
  if (error != told_ && !error.empty()) LogWarning("which checkpoints are damaged is not known", {{"error", error}});
  told_ = error;
  if (damaged.empty()) return kube::ReconcileResult{kLookAgain};  // what was said before stands
  const std::vector<Mark> marks = MarksOf(context_.view.Checkpoints(), damaged);
  for (size_t i = 0; i < marks.size() && i < kAtOnce; ++i) {
    const Status written = Write(marks[i], stop);
    if (written.code() == Code::kConflict) return kube::ReconcileResult{kGoOn};
    if (written.code() != Code::kNotFound) HF_RETURN_IF_ERROR(Status(written));
  }
  if (marks.empty()) seen_.clear();
  return kube::ReconcileResult{marks.empty() ? kLookAgain : kGoOn};
}

}  // namespace holdfast::reconcilers::checkpoint
