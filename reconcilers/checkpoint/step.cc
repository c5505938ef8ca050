#include "reconcilers/checkpoint/step.h"

#include <algorithm>

#include "reconcilers/support.h"

namespace holdfast::reconcilers::checkpoint {
namespace {

using api::Phase;
namespace reason = api::reason;
using std::chrono::seconds;

constexpr Duration kAdmissionRetry = seconds(2);

Step Patch(Json patch, std::string why) {
  Step step;
  step.action = Action::kPatchStatus;
  step.patch = std::move(patch);
  step.why = std::move(why);
  return step;
}

std::string PodText(const api::Checkpoint& c) { return c.meta.ns + "/" + c.spec.pod_name; }

Step Fail(const World& w, const char* because, const std::string& message, WallTime now) {
  const std::string note = "cannot checkpoint " + PodText(*w.checkpoint) + ": " + message;
  Json patch = api::PhasePatch(*w.checkpoint, Phase::kFailed, because, note, now);
  patch["status"]["completedAt"] = FormatTime(now);
  // Whose it was, so that its successor can say why it starts cold.
  const bool same_pod = w.pod && (w.checkpoint->spec.pod_uid.empty() || w.pod->meta.uid == w.checkpoint->spec.pod_uid);
  if (same_pod && !w.lineage.owner.uid.empty()) patch["status"]["owner"] = api::ToJson(w.lineage.owner);
  Step step = Patch(std::move(patch), note);
  step.notice = Notice{true, because, note, same_pod, true};
  return step;
}

// Stay Pending. Written only when the reason changes, so that waiting costs nothing.
Step Wait(const World& w, const std::string& message, Duration again, WallTime now) {
  const api::Checkpoint& c = *w.checkpoint;
  const api::Condition* ready = c.Ready();
  Step step;
  Json patch = api::PhasePatch(c, Phase::kPending, reason::kWaiting, message, now);
  // As the patch has it: a message that was shortened would differ for ever.
  const api::Condition next = *api::Checkpoint::FromJson(patch).Ready();
  if (ready == nullptr || ready->reason != next.reason || ready->message != next.message) step = Patch(std::move(patch), message);
  step.again = std::clamp<Duration>(DeadlineOf(c) - now, std::chrono::milliseconds(100), again);
  return step;
}

Step WaitOrGiveUp(const World& w, const std::string& message, WallTime now) {
  if (now >= DeadlineOf(*w.checkpoint)) {
    return Fail(w, reason::kDeadline,
                "the deadline of " + FormatDuration(w.checkpoint->spec.deadline) + " passed before it began: " + message, now);
  }
  return Wait(w, message, w.checkpoint->spec.deadline, now);
}

const kube::ContainerStatus* StatusOf(const kube::Pod& pod, const std::string& container) {
  for (const kube::ContainerStatus& status : pod.container_statuses) {
    if (status.name == container) return &status;
  }
  return nullptr;
}

bool Wanted(const api::Checkpoint& c, const std::string& container) {
  const auto& names = c.spec.containers;
  return names.empty() || std::find(names.begin(), names.end(), container) != names.end();
}

// A container that spec.containers names and the pod does not have.
std::optional<std::string> UnknownContainer(const World& w) {
  for (const std::string& name : w.checkpoint->spec.containers) {
    const auto& all = w.pod->containers;
    if (std::any_of(all.begin(), all.end(), [&](const kube::Container& c) { return c.name == name; })) continue;
    std::string known;
    for (const kube::Container& container : all) known += (known.empty() ? "" : ", ") + container.name;
    return "it has no container \"" + name + "\" (it has: " + known + "): correct spec.containers, or holdfast.dev/containers of its owner";
  }
  return std::nullopt;
}

// A drain ends the pod, and a Job counts that as a failure.
std::optional<std::string> JobWouldFail(const World& w) {
  if (w.checkpoint->spec.trigger != api::Trigger::kDrain || w.lineage.owner.kind != "Job" || !w.lineage.workload) return std::nullopt;
  const kube::Workload& job = *w.lineage.workload;
  if (job.ignores_disruption_target || job.failed + 1 <= job.backoff_limit) return std::nullopt;
  return "its eviction would be failure " + std::to_string(job.failed + 1) + " of Job " + job.meta.name + ", whose backoffLimit is " +
         std::to_string(job.backoff_limit) + ": let the Job's podFailurePolicy ignore the pod condition DisruptionTarget";
}

Step Prepare(const World& w) {
  const api::Checkpoint& c = *w.checkpoint;
  Step step;
  step.action = Action::kPrepare;
  step.why = "fixes the pod's uid, holds the object until its content is gone";
  std::vector<std::string> finalizers = c.meta.finalizers;
  if (std::find(finalizers.begin(), finalizers.end(), kContentFinalizer) == finalizers.end()) finalizers.push_back(kContentFinalizer);
  step.patch["metadata"]["finalizers"] = finalizers;
  if (c.spec.pod_uid.empty()) step.patch["spec"]["podRef"] = {{"name", c.spec.pod_name}, {"uid", w.pod->meta.uid}};
  return step;
}

bool HasFinalizer(const api::Checkpoint& c) {
  return std::find(c.meta.finalizers.begin(), c.meta.finalizers.end(), kContentFinalizer) != c.meta.finalizers.end();
}

// Why the pod cannot be dumped at this moment, though it may be later.
std::optional<std::string> NotYet(const World& w) {
  const kube::Pod& pod = *w.pod;
  if (pod.phase != "Running") return "the pod is not running yet (" + (pod.phase.empty() ? "Pending" : pod.phase) + ")";
  for (const kube::Container& container : pod.containers) {
    if (!Wanted(*w.checkpoint, container.name)) continue;
    const kube::ContainerStatus* status = StatusOf(pod, container.name);
    if (status == nullptr || !status->running) {
      return "container " + container.name + " is not running" +
             (status != nullptr && !status->reason.empty() ? " (" + status->reason + ")" : "");
    }
  }
  if (w.other) return "Checkpoint " + w.other->meta.name + " has this pod in hand";
  return std::nullopt;
}

std::optional<std::string> FinishedContainer(const World& w) {
  for (const kube::Container& container : w.pod->containers) {
    const kube::ContainerStatus* status = StatusOf(*w.pod, container.name);
    if (status == nullptr || !status->terminated || !Wanted(*w.checkpoint, container.name)) continue;
    const bool restarts = w.pod->restart_policy == "Always" || (w.pod->restart_policy == "OnFailure" && status->exit_code != 0);
    if (!restarts) return "container " + container.name + " has finished and will not run again: name the others in spec.containers";
  }
  return std::nullopt;
}

Step Assign(const World& w, WallTime now) {
  const kube::Pod& pod = *w.pod;
  Json patch = api::PhasePatch(*w.checkpoint, Phase::kAssigned, reason::kInProgress, "assigned to the agent on node " + pod.node_name, now);
  patch["status"]["nodeName"] = pod.node_name;
  patch["status"]["podUID"] = pod.meta.uid;
  patch["status"]["owner"] = api::ToJson(w.lineage.owner);
  patch["status"]["startedAt"] = FormatTime(now);
  Step step = Patch(std::move(patch), "assigned to node " + pod.node_name);
  step.again = std::max<Duration>(DeadlineOf(*w.checkpoint) + kAgentGrace - now, seconds(1));
  return step;
}

Step NextPending(const World& w, WallTime now) {
  const api::Checkpoint& c = *w.checkpoint;
  if (!w.pod) return Fail(w, reason::kPodGone, "there is no such pod", now);
  if (!c.spec.pod_uid.empty() && w.pod->meta.uid != c.spec.pod_uid) {
    return Fail(w, reason::kPodReplaced,
                "the pod of that name is another one now (uid " + w.pod->meta.uid + ", asked for was " + c.spec.pod_uid + ")", now);
  }
  if (c.spec.pod_uid.empty() || !HasFinalizer(c)) return Prepare(w);
  if (w.pod->meta.terminating()) return Fail(w, reason::kPodGone, "the pod is being deleted", now);
  if (w.pod->phase == "Succeeded" || w.pod->phase == "Failed")
    return Fail(w, reason::kPodGone, "the pod has ended (" + w.pod->phase + ")", now);
  if (auto why = UnknownContainer(w)) return Fail(w, reason::kUnsupported, *why, now);
  if (auto why = UnsupportedPod(*w.pod)) return Fail(w, reason::kUnsupported, *why, now);
  if (w.pod->node_name.empty()) return WaitOrGiveUp(w, "the pod has no node yet", now);
  if (auto why = UnsupportedHere(*w.pod, w.node.get(), c.spec.final)) return Fail(w, reason::kUnsupported, *why, now);
  if (auto why = FinishedContainer(w)) return Fail(w, reason::kUnsupported, *why, now);
  if (auto why = JobWouldFail(w)) return Fail(w, reason::kUnsupported, *why, now);
  if (auto why = NotYet(w)) return WaitOrGiveUp(w, *why, now);
  if (c.spec.trigger != api::Trigger::kDrain) return Assign(w, now);

  if (!w.admission) {
    Step step;
    step.action = Action::kAskAdmission;
    return step;
  }
  if (w.admission->granted) {
    // Too little time left to dump in: rather let go than freeze for nothing.
    return now < DeadlineOf(c) ? Assign(w, now) : WaitOrGiveUp(w, "its turn came too late", now);
  }
  if (!w.admission->budget) {
    Step step = WaitOrGiveUp(w, w.admission->waits_for, now);
    if (step.again) step.again = std::min<Duration>(*step.again, kAdmissionRetry);
    return step;
  }
  if (now < DeadlineOf(c)) return Wait(w, w.admission->waits_for, kAdmissionRetry, now);
  // The budget holds the pod anyway, and whoever drains may have given up by now. Nothing is frozen: the next eviction request begins anew.
  Step step;
  step.action = Action::kDelete;
  step.why = w.admission->waits_for;
  step.notice = Notice{false, reason::kWaiting, "not checkpointed: " + w.admission->waits_for + "; the next eviction request tries again",
                       true, false};
  return step;
}

Step NextAssigned(const World& w, WallTime now) {
  const WallTime until = DeadlineOf(*w.checkpoint) + kAgentGrace;
  if (now >= until) {
    return Fail(
        w, reason::kDeadline,
        "the agent on node " + w.checkpoint->status.node_name + " did not take it up within " + FormatDuration(w.checkpoint->spec.deadline),
        now);
  }
  // An agent takes nothing from a leader whose term is over, so what was in flight when we came goes on in ours. PatchStatus adds it.
  Step step = w.checkpoint->status.term < w.term ? Patch({{"status", Json::object()}}, "taken over from an earlier leader") : Step{};
  step.again = until - now;
  return step;
}

// An agent that is gone with its node ends nothing. A final one is left as it is: its pod may be frozen there, and only its agent can tell
// what was committed.
Step NextInAgentsHands(const World& w, WallTime now) {
  const api::Checkpoint& c = *w.checkpoint;
  const bool pod_there = w.pod && w.pod->meta.uid == c.spec.pod_uid;
  if (c.spec.final || pod_there) return {};
  const WallTime until = DeadlineOf(c) + kAgentGrace;
  if (now >= until && OutOfService(w.node.get())) {
    return Fail(w, reason::kPodGone, "node " + c.status.node_name + ", which was making it, is out of service", now);
  }
  Step step;
  step.again = std::max<Duration>(until - now, std::chrono::minutes(1));
  return step;
}

bool InUse(const World& w) {
  return w.claimant && w.claimant->phase != "Running" && !Reclaimed(*w.checkpoint) && OutcomeOfClaim(*w.checkpoint) == nullptr;
}

Step NextDone(const World& w, WallTime now) {
  Step step;
  const api::Checkpoint& c = *w.checkpoint;
  if (!c.spec.ttl || c.spec.pinned) return step;
  const Duration left = CompletedAt(c) + *c.spec.ttl - now;
  if (left > Duration(0)) {
    step.again = left;
  } else if (InUse(w) || w.last_good) {
    step.again = std::chrono::minutes(10);
  } else {
    step.action = Action::kDelete;
    step.why = "its ttl of " + FormatDuration(*c.spec.ttl) + " is over";
  }
  return step;
}

Step NextDeleting(const World& w, WallTime now) {
  const api::Checkpoint& c = *w.checkpoint;
  Step step;
  if (!HasFinalizer(c)) return step;
  if (UnderWay(c)) {
    // The agent ends it; content that it commits after us would be nobody's.
    const WallTime deleted = ParseTime(c.meta.deletion_timestamp).value_or(now);
    const WallTime until = std::max(DeadlineOf(c), deleted) + kAgentGrace;
    if (now < until) {
      step.again = until - now;
      return step;
    }
  }
  const bool pod_there = w.pod && w.pod->meta.uid == c.spec.pod_uid && !w.pod->meta.terminating();
  if (c.status.phase == Phase::kReady && c.spec.final && !c.status.claim && pod_there) {
    step.action = Action::kReclaim;
    step.why = "it is being deleted while its pod is frozen: the pod runs on";
    step.notice = Notice{false, "Reclaimed", step.why, true, true};
    return step;
  }
  if (InUse(w)) {
    step.again = seconds(5);
    step.why = "pod " + w.claimant->meta.name + " restores from it";
    return step;
  }
  step.action = Action::kRemoveContent;
  return step;
}

}  // namespace

Step Next(const World& seen, WallTime now) {
  if (seen.checkpoint->meta.terminating()) return NextDeleting(seen, now);
  switch (seen.checkpoint->status.phase) {
    case Phase::kPending:
      return NextPending(seen, now);
    case Phase::kAssigned:
      return NextAssigned(seen, now);
    case Phase::kReady:
    case Phase::kFailed:
      return NextDone(seen, now);
    case Phase::kFreezing:
    case Phase::kDumping:
    case Phase::kStoring:
      return NextInAgentsHands(seen, now);
    default:
      return {};
  }
}

namespace {

// Of what is kept of restored checkpoints and their pods.
class Kept {
 public:
  Kept(const std::vector<CheckpointPtr>& all, const std::function<bool(const std::string&)>& lives) : all_(all), lives_(lives) {}

  // It was restored from, and nobody needs it any more: the pod that was is gone, or has a newer one of its own.
  bool Outlived(const api::Checkpoint& c) const {
    const std::string& heir = c.status.claim->pod_uid;
    return !lives_(heir) || std::any_of(all_.begin(), all_.end(), [&](const CheckpointPtr& other) {
      return other->spec.pod_uid == heir && other->status.phase == Phase::kReady && CompletedAt(*other) > CompletedAt(c);
    });
  }
  // Another checkpoint of the same pod was restored from, so this one never will be.
  bool Passed(const api::Checkpoint& c) const {
    return std::any_of(all_.begin(), all_.end(), [&](const CheckpointPtr& other) {
      return other->spec.pod_uid == c.spec.pod_uid && other->meta.uid != c.meta.uid && !Reclaimed(*other) &&
             OutcomeOfClaim(*other) != nullptr;
    });
  }
  bool Lives(const std::string& pod_uid) const { return lives_(pod_uid); }

 private:
  const std::vector<CheckpointPtr>& all_;
  const std::function<bool(const std::string&)>& lives_;
};

bool Ended(const api::Checkpoint& c) {
  return c.status.phase == Phase::kReady && c.status.claim && (OutcomeOfClaim(c) != nullptr || Reclaimed(c));
}

// Interval checkpoints are each pod's own: replicas share an owner, not a state.
bool DropsInterval(const api::Checkpoint& c, const Kept& kept, int64_t keep_last, std::map<std::string, int64_t>* ready,
                   std::map<std::string, int64_t>* failed) {
  if (c.status.phase == Phase::kFailed) return ++(*failed)[c.spec.pod_uid] > keep_last || !kept.Lives(c.spec.pod_uid);
  if (c.status.phase != Phase::kReady) return false;
  // While the old pod may still run somewhere, its node's agent learns from the claim that another one goes on.
  if (c.status.claim) return Ended(c) && kept.Outlived(c) && !kept.Lives(c.spec.pod_uid);
  return ++(*ready)[c.spec.pod_uid] > keep_last || kept.Passed(c);
}

}  // namespace

std::vector<CheckpointPtr> Superseded(std::vector<CheckpointPtr> checkpoints, int64_t keep_last,
                                      const std::function<bool(const std::string& pod_uid)>& pod_lives) {
  std::sort(checkpoints.begin(), checkpoints.end(), Newer);
  const Kept kept(checkpoints, pod_lives);
  std::map<std::string, int64_t> restored, failed;                 // of drains, by ordinal: how many newer ones were kept
  std::map<std::string, int64_t> interval_ready, interval_failed;  // by pod
  std::vector<CheckpointPtr> dropped;
  for (const CheckpointPtr& c : checkpoints) {
    if (c->spec.pinned || c->meta.terminating()) continue;
    if (c->spec.trigger == api::Trigger::kInterval && !c->spec.final) {
      if (DropsInterval(*c, kept, keep_last, &interval_ready, &interval_failed)) dropped.push_back(c);
      continue;
    }
    if (c->spec.trigger != api::Trigger::kDrain) continue;
    if (c->status.phase == Phase::kFailed) {
      if (++failed[c->status.owner.ordinal] > keep_last && !pod_lives(c->spec.pod_uid)) dropped.push_back(c);
      continue;
    }
    if (!Ended(*c) || ++restored[c->status.owner.ordinal] <= keep_last) continue;
    if (kept.Outlived(*c)) dropped.push_back(c);
  }
  return dropped;
}

}  // namespace holdfast::reconcilers::checkpoint
