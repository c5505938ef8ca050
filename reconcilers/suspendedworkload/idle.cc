#include "reconcilers/suspendedworkload/idle.h"

#include <algorithm>

#include "reconcilers/claim/step.h"
#include "reconcilers/suspendedworkload/obstacle.h"

namespace holdfast::reconcilers::suspendedworkload {
namespace {

using api::SuspendPhase;

constexpr char kIdle[] = "Idle";  // condition of the SuspendedWorkload
constexpr Duration kLook = std::chrono::seconds(5);

// The first pod that is not asked for exactly this.
std::optional<Step> Ask(const World& w, const std::optional<api::IdleWatch>& watch) {
  const std::string wanted = watch ? watch->ToAnnotation() : "";
  for (const Member& member : w.members) {
    const kube::Pod& pod = *member.pod;
    const auto found = pod.meta.annotations.find(api::kIdleWatch);
    const bool none = found == pod.meta.annotations.end();
    if (none ? wanted.empty() : !wanted.empty() && found->second == wanted) continue;
    if (pod.phase != "Running" || pod.meta.terminating() || Gated(pod)) continue;
    Step step;
    step.action = Action::kPatchPod;
    step.pod = member.pod;
    step.patch["metadata"]["annotations"][api::kIdleWatch] = watch ? Json(wanted) : Json();
    step.why = watch ? "its use is to be measured" : "its use is of interest to nobody any more";
    step.again = kLook;
    return step;
  }
  return std::nullopt;
}

Step SetState(const World& w, bool suspended, std::string why) {
  Step step;
  step.action = Action::kPatchObject;
  step.live = true;
  step.patch["spec"]["state"] = suspended ? "Suspended" : "Running";
  step.why = TargetText(w) + " " + std::move(why);
  return step;
}

// Suspended is what we wrote for its idleness, and the schedule has not said the same since.
bool ForIdleness(const World& w) {
  const auto idled = api::IdledMark(w.object->meta);
  const auto scheduled = api::ScheduledMark(w.object->meta);
  return idled && !(scheduled && scheduled->suspended && scheduled->at > idled->at);
}

// The condition and the time beside it, where they are news.
std::optional<Step> Tell(const World& w, const Use& use, WallTime now) {
  std::vector<api::Condition> conditions = w.object->status.conditions;
  bool changed = kube::SetCondition(
      conditions,
      {.type = kIdle, .status = use.status, .reason = use.reason, .message = use.message, .observed_generation = w.object->meta.generation},
      now);
  const std::string since = use.since ? FormatTime(*use.since) : "";
  changed |= since != w.object->status.last_activity.view();
  if (!changed) return std::nullopt;
  Step step;
  step.action = Action::kPatchStatus;
  step.why = use.message;
  step.patch = {{"status", {{"conditions", api::ToJson(conditions)}, {"lastActivity", since.empty() ? Json() : Json(since)}}}};
  return step;
}

}  // namespace

Use UseOf(const World& w, WallTime now) {
  if (w.members.empty()) return {"Unknown", "NothingRuns", TargetText(w) + " has no pods", {}, {}};
  std::optional<Use> unknown;
  std::optional<WallTime> since;
  for (const Member& member : w.members) {
    const kube::Pod& pod = *member.pod;
    const std::string who = "pod " + pod.meta.name + ": ";
    if (pod.phase != "Running" || pod.meta.terminating() || Gated(pod)) {
      unknown = Use{"Unknown", "Waiting", who + "it does not run", {}, {}};
      continue;
    }
    const api::Condition* said = kube::FindCondition(pod.conditions, api::kIdle);
    if (said == nullptr) {
      unknown = Use{"Unknown", "NotMeasured", who + "the agent of node " + pod.node_name + " has not said yet whether it is used", {}, {}};
      continue;
    }
    // One that is used is enough.
    if (said->status == "False") return {"False", said->reason, who + said->message, {}, {}};
    const auto at = ParseTime(said->last_transition_time);
    if (said->status != "True" || !at) {
      unknown = Use{"Unknown", "NotMeasured", who + said->message, {}, {}};
      continue;
    }
    since = std::max(since.value_or(*at), *at);
  }
  if (unknown) return *unknown;
  const WallTime due = *since + w.object->spec.idle->after;
  return {"True", "Idle", "nothing of it is used since " + FormatTime(*since) + "; to be suspended at " + FormatTime(due), since,
          std::max<Duration>(due - now, Duration(0))};
}

std::optional<Step> Unwatch(const World& w) { return Ask(w, std::nullopt); }

std::optional<Step> NextIdle(const World& w, WallTime now, std::optional<Duration>* again) {
  const auto& s = w.object->status;
  if (s.phase != SuspendPhase::kRunning && s.phase != SuspendPhase::kFailed) return std::nullopt;
  if (!w.target || !w.rival.empty() || api::AsleepMark(w.target->meta)) return std::nullopt;
  if (auto step = Ask(w, w.object->spec.idle)) return step;
  if (!w.object->spec.idle) {
    std::vector<api::Condition> conditions = s.conditions;
    if (!kube::RemoveCondition(conditions, kIdle)) return std::nullopt;
    Step step;
    step.action = Action::kPatchStatus;
    step.why = "it has no spec.idle any more";
    step.patch = {{"status", {{"conditions", api::ToJson(conditions)}, {"lastActivity", nullptr}}}};
    return step;
  }
  Use use = UseOf(w, now);
  const bool due = use.due_in && *use.due_in == Duration(0);
  if (w.object->spec.suspended) {
    // The user's own wish, or the schedule's, needs no idleness.
    if (!ForIdleness(w)) return std::nullopt;
    if (Overridden(w)) return SetState(w, false, "was scaled up while it slept: it runs until it is idle again");
    if (!due) return SetState(w, false, "is used again before it was suspended: " + use.message);
    return std::nullopt;
  }
  if (due) {
    const auto obstacle = ObstacleFor(w);
    if (!obstacle) {
      Step step = SetState(w, true, "was idle for " + FormatDuration(w.object->spec.idle->after));
      step.patch["metadata"]["annotations"][api::kIdled] = api::Idled{w.object->meta.generation + 1, *use.since, now}.ToAnnotation();
      step.notice = Notice{false, "Idle", step.why + ": to be suspended", false, false};
      return step;
    }
    use.message = "nothing of it is used since " + FormatTime(*use.since) + "; not suspended yet: " + obstacle->message;
    use.due_in = kLook;
  }
  if (use.due_in) *again = std::min(again->value_or(*use.due_in), *use.due_in);
  return Tell(w, use, now);
}

}  // namespace holdfast::reconcilers::suspendedworkload
