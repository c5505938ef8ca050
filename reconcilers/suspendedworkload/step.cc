#include "reconcilers/suspendedworkload/step.h"

#include <algorithm>

#include "kube/utf8.h"
#include "reconcilers/claim/step.h"
#include "reconcilers/suspendedworkload/idle.h"
#include "reconcilers/suspendedworkload/obstacle.h"

namespace holdfast::reconcilers::suspendedworkload {
namespace {

using api::Phase;
using api::SuspendPhase;
using std::chrono::seconds;

constexpr Duration kLook = seconds(5);
constexpr Duration kSoon = seconds(2);
constexpr int kMaxAttempts = 1000;                                                                // of one pod
constexpr char kSuspended[] = "Suspended", kRestored[] = "Restored", kScheduled[] = "Scheduled";  // conditions
// Why an attempt was taken back that nobody failed in: what it was to suspend is not the same any more.
constexpr char kChanged[] = "Changed";

const auto& StatusOf(const World& w) { return w.object->status; }

bool Wanted(const World& w) { return w.object->spec.suspended && !Overridden(w) && !w.object->meta.terminating(); }

std::string OverrideText(const World& w) {
  return TargetText(w) + (IsPod(*w.object) ? " was made anew" : " was scaled up") +
         " while it slept, which has the last word; to suspend it again set spec.state to Running, then to Suspended";
}

Notice Say(bool warning, std::string reason, std::string note) { return {warning, std::move(reason), std::move(note), false, false}; }

// The status with this phase, this condition Suspended, and `more`. Nothing to write when all of it stands there.
Step Report(const World& w, SuspendPhase phase, const std::string& reason, const std::string& message, WallTime now,
            Json more = Json::object(), std::optional<api::Condition> further = {}) {
  const auto& s = StatusOf(w);
  std::vector<api::Condition> conditions = s.conditions;
  bool changed = kube::SetCondition(conditions,
                                    {.type = kSuspended,
                                     .status = phase == SuspendPhase::kSuspended ? "True" : "False",
                                     .reason = reason,
                                     .message = message,
                                     .observed_generation = w.object->meta.generation},
                                    now);
  if (further) changed |= kube::SetCondition(conditions, *further, now);
  changed |= !more.empty() || !s.seen || phase != s.phase || s.observed_generation != w.object->meta.generation;
  Step step;
  step.why = message;
  if (!changed) return step;
  step.action = Action::kPatchStatus;
  step.live = !more.empty() || further || phase != s.phase;
  more["phase"] = api::SuspendPhaseName(phase);
  more["observedGeneration"] = w.object->meta.generation;
  more["conditions"] = api::ToJson(conditions);
  step.patch = {{"status", std::move(more)}};
  return step;
}

Step Again(Step step, Duration again) {
  step.again = std::max<Duration>(again, std::chrono::milliseconds(100));
  return step;
}

Step Telling(Step step, Notice notice) {
  step.notice = std::move(notice);
  return step;
}

Step PatchTarget(Json patch, std::string why) {
  Step step;
  step.action = Action::kPatchTarget;
  step.patch = std::move(patch);
  step.why = std::move(why);
  step.live = true;
  return step;
}

// Ends its pods, without loss.
Step Stop(const World& w, WallTime now) {
  if (!IsPod(*w.object))
    return PatchTarget(StopPatch(*w.object, {w.object->meta.name, StatusOf(w).replicas, FormatTime(now)}), "each pod is stored");
  Step step;
  step.action = Action::kEndPod;
  step.pod = w.members[0].pod;
  step.why = "it is stored";
  step.live = true;
  return step;
}

Step Start(const World& w) {
  if (!IsPod(*w.object)) return PatchTarget(StartPatch(*w.object, StatusOf(w).replicas), "it is to run");
  Step step;
  step.action = Action::kMakePod;
  if (!w.kept.empty() && w.kept[0]) step.checkpoint = w.kept[0]->meta.name;
  step.why = "it is to run";
  step.live = true;
  return step;
}

const Member* MemberOf(const World& w, std::string_view uid) {
  for (const Member& member : w.members) {
    if (member.pod->meta.uid == uid) return &member;
  }
  return nullptr;
}

// --- Running --------------------------------------------------------------------------------------------------------------------------

// The first number under which no pod has had a checkpoint.
int FreeOrdinal(const World& w) {
  auto taken = [&](int n) {
    return std::any_of(w.members.begin(), w.members.end(), [&](const Member& member) {
      const std::string name = api::CheckpointName(api::Trigger::kSuspend, member.pod->meta.name, member.pod->meta.uid, n);
      return std::any_of(member.checkpoints.begin(), member.checkpoints.end(),
                         [&](const CheckpointPtr& c) { return c->meta.name == name; });
    });
  };
  int ordinal = 0;
  while (ordinal < kMaxAttempts && taken(ordinal)) ++ordinal;
  return ordinal;
}

Step Begin(const World& w, WallTime now) {
  const int ordinal = FreeOrdinal(w);
  Json checkpoints = Json::array();
  for (const Member& member : w.members) {
    const kube::ObjectMeta& pod = member.pod->meta;
    checkpoints.push_back(api::ToJson(api::SuspendedPod{pod.name, pod.uid, member.seat.ordinal,
                                                        api::CheckpointName(api::Trigger::kSuspend, pod.name, pod.uid, ordinal)}));
  }
  Json attempt = {{"startedAt", FormatTime(now)},
                  {"failures", StatusOf(w).attempt.failures},
                  {"retryAt", nullptr},
                  {"reason", nullptr},
                  {"message", nullptr}};
  return Report(w, SuspendPhase::kSuspending, "Suspending", "its pods are being checkpointed", now,
                {{"checkpoints", checkpoints},
                 {"attempt", attempt},
                 {"durable", false},
                 {"sealedPod", nullptr},
                 {"replicas", SizeOf(*w.object, *w.target)},
                 {"suspendedAt", nullptr}});
}

// It sleeps already, by an object that is gone, or by us before a look that found no workload.
Step Adopt(const World& w, const api::Asleep& mark, WallTime now) {
  Json more = {{"replicas", mark.replicas > 0 ? mark.replicas : std::max<int64_t>(StatusOf(w).replicas, 1)},
               {"durable", true},
               {"suspendedAt", ParseTime(mark.since) ? mark.since : FormatTime(now)}};
  if (StatusOf(w).checkpoints.empty()) {
    Json found = Json::array();
    for (const CheckpointPtr& c : w.of_owner) {
      if (!api::Suspends(c->spec.trigger) || !Unclaimed(*c) || found.size() >= kMaxPods) continue;
      found.push_back(api::ToJson(api::SuspendedPod{c->spec.pod_name, c->spec.pod_uid, c->status.owner.ordinal, c->meta.name}));
    }
    more["checkpoints"] = found;
  }
  return Report(w, SuspendPhase::kSuspended, "Suspended", "it sleeps; set spec.state to Running to resume it", now, std::move(more));
}

Step Missing(const World& w, WallTime now) {
  return Report(w, SuspendPhase::kFailed, "TargetMissing",
                "there is no " + TargetText(w) + " in namespace " + w.object->meta.ns +
                    (StatusOf(w).checkpoints.empty() ? "" : "; the checkpoints of its pods stay for as long as this object does"),
                now);
}

// What a leader of an earlier term asked for after it was taken back: its pod would stay frozen.
std::vector<CheckpointPtr> Strays(const World& w) {
  std::vector<CheckpointPtr> out;
  for (const Member& member : w.members) {
    if (member.pod->meta.terminating()) continue;
    for (const CheckpointPtr& c : member.checkpoints) {
      if (api::Suspends(c->spec.trigger) && HoldsItsPod(*c) && !c->meta.terminating()) out.push_back(c);
    }
  }
  return out;
}

Step NextRunning(const World& w, WallTime now) {
  const auto& s = StatusOf(w);
  if (!w.rival.empty()) {
    return Report(w, SuspendPhase::kFailed, "Conflict",
                  "SuspendedWorkload " + w.rival + " names " + TargetText(w) + " too, and came first: delete one of them", now);
  }
  if (!w.target) return Missing(w, now);
  if (const auto mark = api::AsleepMark(w.target->meta)) {
    if (Stopped(*w.object, *w.target)) return Adopt(w, *mark, now);
    return PatchTarget(UnmarkPatch(), "it does not sleep");
  }
  if (Step stray; !(stray.checkpoints = Strays(w)).empty()) {
    stray.action = Action::kDiscard;
    stray.live = true;
    stray.why = "it belongs to no suspension any more";
    return stray;
  }
  if (!Wanted(w)) {
    Json more = Json::object();
    if (s.attempt.failures > 0 || !s.attempt.retry_at.empty()) more["attempt"] = nullptr;
    if (Overridden(w)) return Report(w, SuspendPhase::kRunning, "Overridden", OverrideText(w), now, std::move(more));
    return Report(w, SuspendPhase::kRunning, "Running", "it is not to be suspended", now, std::move(more));
  }
  if (const auto retry_at = ParseTime(s.attempt.retry_at); retry_at && now < *retry_at) {
    Step step;
    step.why = "tried again later";
    return Again(std::move(step), *retry_at - now);
  }
  if (const auto obstacle = ObstacleFor(w)) {
    return Again(Report(w, SuspendPhase::kRunning, obstacle->reason, "not suspended yet: " + obstacle->message, now), kLook);
  }
  return Begin(w, now);
}

// --- Suspending -----------------------------------------------------------------------------------------------------------------------

Step TakeBack(const World& w, const std::string& reason, const std::string& message, WallTime now, Json more = Json::object()) {
  more["attempt"]["reason"] = kube::Clip(reason, 256);
  more["attempt"]["message"] = kube::Clip(message, 2048);
  Step step = Report(w, SuspendPhase::kSuspending, reason, "not suspended, its pods run on: " + message, now, std::move(more));
  if (reason != kChanged) step.notice = Say(true, "NotSuspended", "not suspended, its pods run on: " + message);
  return step;
}

// What is not made any more, or was never needed: its pod is thawed with the end of the Checkpoint.
Step Undo(const World& w, WallTime now) {
  const auto& s = StatusOf(w);
  Step discard;
  bool waits = false;
  for (const CheckpointPtr& c : w.kept) {
    if (!c || c->status.phase == Phase::kFailed || (c->status.claim && !Reclaimed(*c))) continue;
    const Member* member = MemberOf(w, c->spec.pod_uid);
    // Of a pod that has gone since it may be all that is left.
    if (member == nullptr || member->pod->meta.terminating()) continue;
    waits = true;
    if (!c->meta.terminating()) discard.checkpoints.push_back(c);
  }
  if (!discard.checkpoints.empty()) {
    discard.action = Action::kDiscard;
    discard.live = true;
    discard.why = s.attempt.message;
    return discard;
  }
  if (waits) return Again(Step{}, kSoon);
  const bool failed = s.attempt.reason != kChanged;
  const int64_t failures = s.attempt.failures + (failed ? 1 : 0);
  const WallTime retry = now + (failed ? Backoff(failures) : kLook);
  std::string message = "not suspended, its pods run on: " + s.attempt.message;
  if (Wanted(w)) message += "; tried again at " + FormatTime(retry);
  const Json attempt = {
      {"startedAt", nullptr}, {"reason", nullptr}, {"message", nullptr}, {"failures", failures}, {"retryAt", FormatTime(retry)}};
  return Again(Report(w, SuspendPhase::kRunning, s.attempt.reason, message, now,
                      {{"checkpoints", Json::array()}, {"durable", false}, {"attempt", attempt}, {"freed", nullptr}}),
               retry - now);
}

// The very pods of which the attempt began, and no others.
bool SamePods(const World& w) {
  const auto& plan = StatusOf(w).checkpoints;
  if (Stopped(*w.object, *w.target) || SizeOf(*w.object, *w.target) != static_cast<int64_t>(plan.size())) return false;
  return w.members.size() == plan.size() && std::all_of(plan.begin(), plan.end(), [&](const api::SuspendedPod& pod) {
           const Member* member = MemberOf(w, pod.pod_uid);
           return member != nullptr && !member->pod->meta.terminating();
         });
}

bool AllStored(const World& w) {
  return std::all_of(w.kept.begin(), w.kept.end(), [](const CheckpointPtr& c) { return c && Unclaimed(*c); });
}

Step NextNotDurable(const World& w, WallTime now) {
  const auto& s = StatusOf(w);
  const WallTime until = ParseTime(s.attempt.started_at).value_or(WallTime()) + kAttempt;
  if (!Wanted(w)) return TakeBack(w, kChanged, "it is to run", now);
  if (!SamePods(w)) return TakeBack(w, kChanged, "its pods changed while they were checkpointed", now);
  Step create;
  size_t stored = 0;
  for (size_t i = 0; i < w.kept.size(); ++i) {
    const CheckpointPtr& c = w.kept[i];
    if (!c) {
      create.names.emplace_back(MemberOf(w, s.checkpoints[i].pod_uid)->pod, s.checkpoints[i].checkpoint.str());
      continue;
    }
    if (c->spec.pod_uid != s.checkpoints[i].pod_uid) return TakeBack(w, kChanged, "Checkpoint " + c->meta.name + " is of another pod", now);
    if (c->meta.terminating() || c->status.phase == Phase::kDeleting)
      return TakeBack(w, kChanged, "Checkpoint " + c->meta.name + " was deleted", now);
    if (c->status.phase == Phase::kFailed) {
      const api::Condition* ready = c->Ready();
      if (ready != nullptr && ready->reason == api::reason::kNotIdle) return TakeBack(w, kChanged, ready->message, now);
      return TakeBack(w, ready != nullptr && !ready->reason.empty() ? ready->reason.str() : api::reason::kDumpFailed,
                      ready != nullptr ? ready->message.str() : "Checkpoint " + c->meta.name + " failed", now);
    }
    if (c->status.claim) return TakeBack(w, kChanged, "pod " + c->status.claim->pod_name + " goes on from Checkpoint " + c->meta.name, now);
    if (c->status.phase == Phase::kReady) ++stored;
  }
  if (now >= until) {
    return TakeBack(
        w, api::reason::kDeadline,
        std::to_string(stored) + " of " + std::to_string(w.kept.size()) + " pods were stored within " + FormatDuration(kAttempt), now);
  }
  if (!create.names.empty()) {
    create.action = Action::kCheckpoint;
    create.live = true;
    create.why = "a final checkpoint of each pod";
    return create;
  }
  if (stored < w.kept.size()) {
    return Again(Report(w, SuspendPhase::kSuspending, "Suspending",
                        std::to_string(stored) + " of " + std::to_string(w.kept.size()) + " pods are stored", now),
                 until - now);
  }
  std::vector<PodPtr> pods;
  for (const Member& member : w.members) pods.push_back(member.pod);
  Json more = {{"durable", true}, {"freed", Requests(pods, w.prices)}};
  if (w.sealed) {
    if (!w.sealed->ok()) return TakeBack(w, "NotKept", "what it is made of cannot be kept: " + w.sealed->status().message(), now);
    more["sealedPod"] = **w.sealed;
  }
  return Report(w, SuspendPhase::kSuspending, "Suspending", "its pods are stored, and are being ended", now, std::move(more));
}

// Somebody scaled it up while it slept.
Step Woken(const World& w, WallTime now) {
  Json more = {{"replicas", SizeOf(*w.object, *w.target)}};
  if (w.object->spec.suspended) {
    more["overriddenGeneration"] = w.object->meta.generation;
    more["overriddenAt"] = FormatTime(now);
  }
  return Telling(Report(w, SuspendPhase::kResuming, "Overridden", OverrideText(w), now, std::move(more)),
                 Say(false, "Overridden", OverrideText(w)));
}

// " after 30m of idleness"
std::string AfterIdleness(const World& w) {
  const auto idled = api::IdledMark(w.object->meta);
  return idled ? " after " + FormatDuration(idled->at - idled->since) + " of idleness" : "";
}

Step NextDurable(const World& w, WallTime now) {
  const auto& s = StatusOf(w);
  const bool stopped = Stopped(*w.object, *w.target), marked = api::AsleepMark(w.target->meta).has_value();
  if (marked && !stopped) return Woken(w, now);
  if (marked) {
    // Scaled up before its controller has ended them, they would stay, and stay frozen.
    const bool ended = std::all_of(w.members.begin(), w.members.end(), [](const Member& member) { return member.pod->meta.terminating(); });
    if (!Wanted(w) && ended) return Report(w, SuspendPhase::kResuming, "Resuming", "it starts again", now);
    if (!w.members.empty()) {
      const kube::Pod& pod = *w.members[0].pod;
      return Again(
          Report(w, SuspendPhase::kSuspending, "Suspending", "pod " + pod.meta.name + " on node " + pod.node_name + " is ending", now),
          kLook);
    }
    const std::string text = "it sleeps; set spec.state to Running to resume it";
    return Telling(
        Report(w, SuspendPhase::kSuspended, "Suspended", text, now, {{"suspendedAt", FormatTime(now)}, {"attempt", nullptr}}),
        Say(false, "Suspended",
            TargetText(w) + " sleeps" + AfterIdleness(w) + ": " + std::to_string(s.checkpoints.size()) + " pods are stored, and ended"));
  }
  const WallTime until = ParseTime(s.attempt.started_at).value_or(WallTime()) + kAttempt + kStop;
  const bool sound = SamePods(w) && AllStored(w);
  if (sound && now < until) {
    return Again(Stop(w, now), kSoon);
  }
  // A leader of an earlier term may still be about to stop it. It means the version that it saw.
  if (!Fenced(*w.object, *w.target)) return PatchTarget(FencePatch(*w.object), "it is not to be stopped any more");
  const Json undone = {{"durable", false}, {"sealedPod", nullptr}};
  if (!sound) return TakeBack(w, kChanged, "its pods changed after they were stored", now, undone);
  return TakeBack(w, "StopRefused", TargetText(w) + " could not be stopped within " + FormatDuration(kStop), now, undone);
}

Step NextSuspending(const World& w, WallTime now) {
  if (!StatusOf(w).attempt.reason.empty()) return Undo(w, now);
  if (!w.target) return TakeBack(w, "TargetMissing", "there is no " + TargetText(w) + " any more", now, {{"durable", false}});
  return StatusOf(w).durable ? NextDurable(w, now) : NextNotDurable(w, now);
}

// --- Suspended, Resuming --------------------------------------------------------------------------------------------------------------

Step NextSuspended(const World& w, WallTime now) {
  if (!w.target) return Missing(w, now);
  if (!Stopped(*w.object, *w.target)) return Woken(w, now);
  if (!api::AsleepMark(w.target->meta)) {
    // Without it nobody could tell later whether it was started again.
    return PatchTarget(StopPatch(*w.object, {w.object->meta.name, StatusOf(w).replicas, StatusOf(w).suspended_at}), "its mark was removed");
  }
  if (!Wanted(w))
    return Telling(Report(w, SuspendPhase::kResuming, "Resuming", "it starts again", now),
                   Say(false, "Resuming", TargetText(w) + " starts again"));
  return Report(w, SuspendPhase::kSuspended, "Suspended", "it sleeps; set spec.state to Running to resume it", now);
}

bool Runs(const Member& member) { return member.pod->phase == "Running" && !member.pod->meta.terminating() && !Gated(*member.pod); }

// The checkpoints of pods that were never ended, because somebody scaled the workload up again in time: they are frozen.
std::vector<CheckpointPtr> OfPodsThatStay(const World& w) {
  std::vector<CheckpointPtr> out;
  for (const CheckpointPtr& c : w.kept) {
    if (!c || c->status.phase != Phase::kReady || (c->status.claim && !Reclaimed(*c))) continue;
    const Member* member = MemberOf(w, c->spec.pod_uid);
    if (member != nullptr && !member->pod->meta.terminating()) out.push_back(c);
  }
  return out;
}

// How many of its pods went on, from the checkpoints or because they were never ended; nothing while one has not said yet what became of
// it.
std::optional<int64_t> WentOn(const World& w) {
  const auto& before = StatusOf(w).checkpoints;
  int64_t went = std::count_if(before.begin(), before.end(), [&](const api::SuspendedPod& pod) {
    const Member* member = MemberOf(w, pod.pod_uid);
    return member != nullptr && !member->pod->meta.terminating();
  });
  for (const CheckpointPtr& c : w.kept) {
    if (!c || !c->status.claim || MemberOf(w, c->status.claim->pod_uid) == nullptr) continue;
    const api::Restore* outcome = OutcomeOfClaim(*c);
    if (outcome == nullptr) return std::nullopt;
    went += outcome->outcome == "Restored" ? 1 : 0;
  }
  return went;
}

Step Resumed(const World& w, int64_t run, int64_t went, WallTime now) {
  const bool all = went == run;
  const std::string text = std::to_string(went) + " of " + std::to_string(run) + " pods went on from their checkpoints" +
                           (all ? "" : "; see the events of the others, and whether its template has changed since it was suspended");
  const api::Condition restored{.type = kRestored,
                                .status = all ? "True" : "False",
                                .reason = all ? "Restored" : "ColdStart",
                                .message = text,
                                .observed_generation = w.object->meta.generation};
  const bool overridden = Overridden(w);
  return Telling(
      Report(w, SuspendPhase::kRunning, overridden ? "Overridden" : "Running", overridden ? OverrideText(w) : "it runs again", now,
             {{"checkpoints", Json::array()},
              {"durable", false},
              {"sealedPod", nullptr},
              {"freed", nullptr},
              {"suspendedAt", nullptr},
              {"attempt", nullptr}},
             restored),
      Say(!all, all ? "Resumed" : "ColdStart", TargetText(w) + " runs again: " + text));
}

Step NextResuming(const World& w, WallTime now) {
  if (!w.target) return Missing(w, now);
  const bool stopped = Stopped(*w.object, *w.target);
  if (api::AsleepMark(w.target->meta)) {
    if (!stopped) return PatchTarget(UnmarkPatch(), "it does not sleep");
    // A bare pod that went on is not made a second time for somebody who deleted it.
    const bool went_on = IsPod(*w.object) && !w.kept.empty() && w.kept[0] && OutcomeOfClaim(*w.kept[0]) != nullptr;
    return went_on ? Resumed(w, 1, 1, now) : Start(w);
  }
  const bool job = w.object->spec.target_kind == "Job";
  if (const std::vector<CheckpointPtr> frozen = OfPodsThatStay(w); !frozen.empty()) {
    // Only when its controller has seen that they are to stay.
    const bool settled =
        (job || w.target->observed_generation >= w.target->meta.generation) && w.target->pods == SizeOf(*w.object, *w.target);
    Step thaw;
    thaw.why = "it was scaled up before its pods were ended: they run on";
    for (const CheckpointPtr& c : frozen) {
      if (settled && !c->meta.terminating()) thaw.checkpoints.push_back(c);
    }
    if (thaw.checkpoints.empty()) return Again(std::move(thaw), kSoon);
    thaw.action = Action::kDiscard;
    thaw.live = true;
    return thaw;
  }
  const int64_t run = std::count_if(w.members.begin(), w.members.end(), Runs);
  const int64_t expected = job ? std::max<int64_t>(w.target->pods, 1) : SizeOf(*w.object, *w.target);
  const auto went = WentOn(w);
  if (stopped || w.target->finished || (run >= expected && went)) return Resumed(w, run, went.value_or(0), now);
  std::string message = std::to_string(run) + " of " + std::to_string(expected) + " pods run";
  for (const Member& member : w.members) {
    if (Runs(member)) continue;
    message += "; pod " + member.pod->meta.name + " is Pending";
    if (Gated(*member.pod)) {
      message += ": it waits for its checkpoint";
    } else if (!member.pod->unscheduled.empty()) {
      message += ": " + member.pod->unscheduled;
    }
    break;
  }
  const bool overridden = Overridden(w);
  return Again(
      Report(w, SuspendPhase::kResuming, overridden ? "Overridden" : "Resuming", (overridden ? OverrideText(w) + "; " : "") + message, now),
      kLook);
}

// --- the schedule ---------------------------------------------------------------------------------------------------------------------

// What is due by it, if anything; it comes before everything else.
std::optional<Step> NextScheduled(const World& w, WallTime now) {
  const auto& schedule = *w.schedule;
  const auto mark = api::ScheduledMark(w.object->meta);
  const std::string of = w.object->spec.schedule.text();
  Step step;
  step.action = Action::kPatchObject;
  if (!mark || mark->of != of) {
    step.patch = {{"metadata", {{"annotations", {{api::kScheduled, api::Scheduled{of, now, false}.ToAnnotation()}}}}}};
    step.why = "its schedule is new: what was due before now does not count";
    return step;
  }
  if (schedule.last && schedule.last->at > mark->at) {
    const bool suspend = schedule.last->suspend;
    step.patch = {{"metadata", {{"annotations", {{api::kScheduled, api::Scheduled{of, schedule.last->at, suspend}.ToAnnotation()}}}}},
                  {"spec", {{"state", suspend ? "Suspended" : "Running"}}}};
    step.why = "due by its schedule since " + FormatTime(schedule.last->at);
    step.notice = Say(false, "Scheduled", std::string("to be ") + (suspend ? "suspended" : "resumed") + ", as its schedule says");
    return step;
  }
  api::Condition condition{.type = kScheduled, .status = "True", .reason = "Scheduled", .observed_generation = w.object->meta.generation};
  if (!schedule.problem.empty()) {
    condition.status = "False";
    condition.reason = "Invalid";
    condition.message = "the schedule is not followed: " + schedule.problem;
  } else if (schedule.next) {
    condition.message = std::string(schedule.next->suspend ? "to be suspended at " : "to be resumed at ") + FormatTime(schedule.next->at);
  } else {
    condition.message = "nothing is due any more";
  }
  std::vector<api::Condition> conditions = StatusOf(w).conditions;
  if (!kube::SetCondition(conditions, condition, now)) return std::nullopt;
  step.action = Action::kPatchStatus;
  step.why = condition.message;
  step.patch = {{"status", {{"conditions", api::ToJson(conditions)}}}};
  return step;
}

Step NextOf(const World& w, WallTime now) {
  switch (StatusOf(w).phase) {
    case SuspendPhase::kRunning:
    case SuspendPhase::kFailed:
      return NextRunning(w, now);
    case SuspendPhase::kSuspending:
      return NextSuspending(w, now);
    case SuspendPhase::kSuspended:
      return NextSuspended(w, now);
    case SuspendPhase::kResuming:
      return NextResuming(w, now);
  }
  return {};
}

Step NextUnscheduled(const World& w, WallTime now) {
  std::optional<Duration> again;
  if (auto step = NextIdle(w, now, &again)) return *step;
  Step step = NextOf(w, now);
  if (again) step.again = std::min(step.again.value_or(*again), *again);
  return step;
}

bool HasFinalizer(const World& w) {
  const auto& all = w.object->meta.finalizers;
  return std::find(all.begin(), all.end(), api::SuspendedWorkload::kFinalizer) != all.end();
}

Step NextDeleting(const World& w, WallTime now) {
  if (!HasFinalizer(w)) return {};
  const auto& s = StatusOf(w);
  Step leave;
  leave.action = Action::kDropFinalizer;
  leave.live = true;
  const bool marked = w.target && api::AsleepMark(w.target->meta);
  switch (s.phase) {
    case SuspendPhase::kRunning:
    case SuspendPhase::kFailed:
      if (w.target && w.rival.empty()) return Unwatch(w).value_or(leave);
      return leave;
    case SuspendPhase::kSuspending:
      break;  // taken back, or, when it is too late for that, through to the end and back
    case SuspendPhase::kSuspended:
      if (!w.target) return leave;
      if (w.object->spec.keep_on_delete) {
        leave.notice = Say(false, "LeftAsleep",
                           TargetText(w) + " stays asleep: scale it up to resume it (it had " + std::to_string(s.replicas) + " pods)");
        return leave;
      }
      break;
    case SuspendPhase::kResuming:
      if (!marked) return leave;
      break;
  }
  return NextOf(w, now);
}

}  // namespace

bool Overridden(const World& w) {
  if (!w.object->spec.suspended || StatusOf(w).overridden_generation != w.object->meta.generation) return false;
  const auto scheduled = api::ScheduledMark(w.object->meta);
  const auto at = ParseTime(StatusOf(w).overridden_at);
  return !scheduled || !scheduled->suspended || !at || scheduled->at <= *at;
}

Duration Backoff(int64_t failures) {
  Duration wait = kFirstRetry;
  for (int64_t i = 1; i < failures && wait < kLastRetry; ++i) wait *= 2;
  return std::min(wait, kLastRetry);
}

Step Next(const World& seen, WallTime now) {
  if (seen.object->meta.terminating()) return NextDeleting(seen, now);
  if (!HasFinalizer(seen)) {
    Step step;
    step.action = Action::kAddFinalizer;
    return step;
  }
  if (!seen.schedule) {
    std::vector<api::Condition> conditions = StatusOf(seen).conditions;
    if (!kube::RemoveCondition(conditions, kScheduled)) return NextUnscheduled(seen, now);
    Step step;
    step.action = Action::kPatchStatus;
    step.why = "it has no schedule any more";
    step.patch = {{"status", {{"conditions", api::ToJson(conditions)}}}};
    return step;
  }
  if (auto step = NextScheduled(seen, now)) return *step;
  Step step = NextUnscheduled(seen, now);
  if (seen.schedule->next) {
    const Duration due = std::max<Duration>(seen.schedule->next->at - now, std::chrono::milliseconds(100));
    step.again = std::min(step.again.value_or(due), due);
  }
  return step;
}

}  // namespace holdfast::reconcilers::suspendedworkload
