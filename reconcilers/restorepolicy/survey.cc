#include "reconcilers/restorepolicy/survey.h"

#include <algorithm>

#include "reconcilers/claim/step.h"
#include "reconcilers/group/cut.h"

namespace holdfast::reconcilers::restorepolicy {
namespace {

using api::Phase;

// So long evictions of a pod are answered from what an earlier one has left (drain/eviction_answer.h has less).
constexpr Duration kAnswers = std::chrono::hours(1);
constexpr Duration kNobodyComes = std::chrono::hours(24 * 7);

std::string OwnerKey(const api::Owner& owner) { return owner.kind.str() + "/" + owner.name.str(); }

Rules RulesOf(const api::RestorePolicy& policy) {
  const auto& retention = policy.spec.retention;
  return {.keep_last = retention.keep_last,
          .keep_within = retention.keep_within,
          .keep_daily = retention.keep_daily,
          .max_bytes = retention.max_bytes,
          .keep_orphans = retention.keep_orphans,
          .dry_run = retention.dry_run};
}

// One namespace.
class Surveyor {
 public:
  Surveyor(const View& view, std::string ns, WallTime now) : view_(view), ns_(std::move(ns)), now_(now) {
    for (const PodPtr& pod : view_.PodsIn(ns_)) {
      Lineage lineage = Trace(view_, *pod, ns_);
      const bool gone = pod->meta.terminating() || pod->phase == "Succeeded" || pod->phase == "Failed";
      Workload& workload = workloads_[OwnerKey(lineage.owner)];
      workload.pods += gone ? 0 : 1;
      workload.gated |= !gone && Gated(*pod);
      if (!gone) workload.templates.insert(lineage.owner.template_hash.str());
      if (!gone && !workload.pod) workload.pod = pod;
      if (Gated(*pod)) asked_for_.insert(pod->meta.Annotation(api::kFromCheckpoint));
      pods_[pod->meta.uid] = pod;
    }
    for (const SuspendedPtr& suspended : view_.SuspendedIn(ns_)) {
      for (const api::SuspendedPod& pod : suspended->status.checkpoints) asleep_.insert(pod.checkpoint.str());
    }
  }

  void Into(Seen* seen) {
    for (const auto& [uid, pod] : pods_) seen->pods.insert(uid);
    for (const PolicyPtr& policy : view_.PoliciesIn(ns_)) seen->policies[policy->meta.Key()] = RulesOf(*policy);
    const std::vector<CheckpointPtr> all = view_.CheckpointsIn(ns_);
    for (const CheckpointPtr& c : all) {
      if (!c->spec.cut.none() && c->status.phase == Phase::kReady) cuts_[c->meta.name] = group::WholenessOf(view_, *c).state;
    }
    for (const CheckpointPtr& c : all) {
      if (c->status.claim && !Reclaimed(*c)) went_on_.insert(c->spec.pod_uid.str());
      CheckpointPtr& best = newest_interval_[c->spec.pod_uid];
      if (Claimable(*c) && c->spec.trigger == api::Trigger::kInterval && (!best || Newer(c, best))) best = c;
    }
    for (const CheckpointPtr& c : all) seen->subjects.push_back(Read(*c));
  }

 private:
  struct Workload {
    int64_t pods = 0;  // that are neither ending nor ended
    bool gated = false;
    std::set<std::string> templates;  // of those pods
    PodPtr pod;                       // one of them
    WorkloadPtr object;               // of the kinds that we know
    bool exists = false, resolved = false;
    std::optional<std::string> policy;  // that it follows now
  };

  PodPtr Pod(const std::string& uid) const {
    auto found = pods_.find(uid);
    return found == pods_.end() ? nullptr : found->second;
  }
  bool Good(const api::Checkpoint& c) const {
    return c.status.phase == Phase::kReady && !Reclaimed(c) && DamageOf(c) == nullptr && CutOf(c) == group::Wholeness::kWhole;
  }
  int CutOf(const api::Checkpoint& c) const {
    const auto found = cuts_.find(c.meta.name);
    return found == cuts_.end() ? group::Wholeness::kWhole : found->second;
  }
  bool Claimable(const api::Checkpoint& c) const { return Good(c) && !c.status.claim && !c.meta.terminating(); }

  Workload& WorkloadOf(const api::Owner& owner) {
    Workload& workload = workloads_[OwnerKey(owner)];
    if (workload.resolved) return workload;
    workload.resolved = true;
    // By name: one that was made anew goes on under it.
    workload.object = view_.GetWorkload({"", owner.kind, owner.name, "", true}, ns_, Duration(0));
    const bool pod = owner.kind == "Pod" && view_.GetPod(ns_, owner.name) != nullptr;
    workload.exists = workload.object != nullptr || workload.pods > 0 || pod;
    workload.policy = PolicyNow(workload, owner);
    return workload;
  }

  // Nothing when nothing of the workload says it, or it opted out: what a Checkpoint was made under stands.
  std::optional<std::string> PolicyNow(const Workload& workload, const api::Owner& owner) const {
    Protection protection;
    if (workload.pod) {
      protection = ProtectionOf(view_, *workload.pod, ns_, Trace(view_, *workload.pod, ns_));
    } else if (workload.object) {
      kube::Pod as_made;
      as_made.meta.ns = ns_;
      as_made.meta.labels = workload.object->template_labels;
      as_made.meta.annotations = workload.object->template_annotations;
      Lineage lineage;
      lineage.owner = owner;
      lineage.workload = workload.object;
      protection = ProtectionOf(view_, as_made, ns_, lineage);
    }
    if (!protection.on) return std::nullopt;
    return protection.policy->meta.name;
  }

  // A pod may still come that goes on from it: claim/step.h gives it a final one, else the newest interval one of a pod that has no
  // successor yet; or what it asks for.
  bool Awaited(const api::Checkpoint& c, const Workload& workload) const {
    if (!Claimable(c)) return false;
    if (asleep_.contains(c.meta.name)) return true;
    if (asked_for_.contains(c.meta.name)) return true;
    if (!workload.exists) return false;
    const std::string hash = c.status.owner.template_hash;
    if (!hash.empty() && !workload.templates.empty() && !workload.templates.contains(hash)) return false;
    const bool lacks = workload.gated || (workload.object && workload.pods < workload.object->replicas);
    // A workload that has all its pods may be scaled up once more; but not for ever.
    if (c.spec.final) return lacks || now_ - CompletedAt(c) < kNobodyComes;
    return lacks && newest_interval_.at(c.spec.pod_uid).get() == &c && !went_on_.contains(c.spec.pod_uid);
  }

  // A claim holds until its pod runs, or has ended and said what became of it.
  bool InUse(const api::Checkpoint& c) const {
    if (!c.status.claim || Reclaimed(c)) return false;
    const PodPtr claimant = Pod(c.status.claim->pod_uid);
    if (claimant && claimant->phase == "Running") return false;
    const bool ended = !claimant || claimant->phase == "Succeeded" || claimant->phase == "Failed";
    return !ended || OutcomeOfClaim(c) == nullptr;
  }

  Subject Read(const api::Checkpoint& c) {
    Subject s;
    s.ns = c.meta.ns;
    s.name = c.meta.name;
    s.uid = c.meta.uid;
    s.store = c.store();
    api::Owner owner = c.status.owner;
    if (owner.kind.empty()) owner = {"Pod", c.spec.pod_name, "", "", ""};
    const Workload& workload = WorkloadOf(owner);
    s.workload = OwnerKey(owner) + (owner.ordinal.empty() ? "" : "/" + owner.ordinal.str());
    s.replica = owner.kind != "Pod" && owner.ordinal.empty();
    s.policy = workload.policy ? *workload.policy : c.status.policy.str();
    s.pod_uid = c.spec.pod_uid.str();
    s.at = CompletedAt(c);
    s.ttl = c.spec.ttl;
    s.bytes = std::max<int64_t>(c.status.stored_bytes, 0);
    s.manual = c.spec.trigger == api::Trigger::kManual;
    s.under_way = !c.done() || CutOf(c) == group::Wholeness::kUnderWay;
    s.leaving = c.meta.terminating() || c.status.phase == Phase::kDeleting;
    s.good = Good(c);
    s.damaged = DamageOf(c) != nullptr || CutOf(c) == group::Wholeness::kDamaged;
    s.broken = CutOf(c) == group::Wholeness::kBroken;
    if (s.good) s.cut = c.spec.cut.id;
    s.spent = c.status.phase == Phase::kFailed || Reclaimed(c);
    if (c.status.claim && !Reclaimed(c)) s.heir_uid = c.status.claim->pod_uid;
    s.pinned = c.spec.pinned;
    const bool pod_there = Pod(c.spec.pod_uid) != nullptr;
    s.holds_pod = c.spec.final && pod_there && (Unclaimed(c) || (s.spent && now_ - s.at < kAnswers));
    s.in_use = InUse(c);
    s.awaited = Awaited(c, workload);
    s.workload_exists = workload.exists || asleep_.contains(c.meta.name);
    const api::Condition* orphaned = kube::FindCondition(c.status.conditions, kOrphanedCondition);
    if (orphaned != nullptr && orphaned->status == "True") s.orphaned = ParseTime(orphaned->last_transition_time);
    return s;
  }

  const View& view_;
  const std::string ns_;
  const WallTime now_;
  std::map<std::string, Workload> workloads_;             // by kind/name
  std::map<std::string, PodPtr> pods_;                    // by uid
  std::map<std::string, int> cuts_;                       // group::Wholeness::state of Ready ones of cuts, by name
  std::set<std::string> asked_for_;                       // names of Checkpoints that waiting pods ask for
  std::set<std::string> asleep_;                          // names of Checkpoints that a SuspendedWorkload holds
  std::set<std::string> went_on_;                         // uids of pods whose state another one has claimed
  std::map<std::string, CheckpointPtr> newest_interval_;  // claimable, by the uid of its pod
};

}  // namespace

int64_t QuotaOf(const View& view, const std::string& ns, int64_t otherwise, std::string* problem) {
  const NamespacePtr space = view.GetNamespace(ns);
  const std::string text = space ? space->meta.Annotation(api::kQuota) : "";
  if (text.empty()) return otherwise;
  if (auto quota = api::ParseQuantity(text)) return *quota;
  if (problem != nullptr) {
    *problem = "namespace " + ns + " has " + api::kQuota + ": \"" + text.substr(0, 64) +
               "\", which is no whole number of bytes: write one such as 50Gi; until then " +
               (otherwise > 0 ? "the default of the controller holds" : "there is no quota");
  }
  return otherwise;
}

int64_t StoredIn(const View& view, const std::string& ns) {
  int64_t bytes = 0;
  for (const CheckpointPtr& c : view.CheckpointsIn(ns)) bytes += c->meta.terminating() ? 0 : std::max<int64_t>(c->status.stored_bytes, 0);
  return bytes;
}

Seen Survey(const View& view, const std::set<std::string>& namespaces, int64_t default_quota_bytes, WallTime now) {
  Seen seen;
  for (const std::string& ns : namespaces) {
    Surveyor(view, ns, now).Into(&seen);
    if (const int64_t quota = QuotaOf(view, ns, default_quota_bytes); quota > 0) seen.quotas[ns] = quota;
  }
  return seen;
}

}  // namespace holdfast::reconcilers::restorepolicy
