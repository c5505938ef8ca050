#include "reconcilers/checkpoint/step.h"

#include <algorithm>

#include "api/pod.h"
#include "api/security.h"
#include "kube/utf8.h"
#include "reconcilers/support.h"

namespace holdfast::reconcilers::checkpoint {
namespace {

using api::Phase;
namespace reason = api::reason;
using std::chrono::seconds;

constexpr Duration kAdmissionRetry = seconds(2);
constexpr Duration kStoreRetry = seconds(5);
constexpr std::chrono::minutes kNobodyCame{60};
constexpr Duration kUptake = seconds(60);
constexpr Duration kBarrierLook = seconds(2);     // for who is late
constexpr Duration kReplacedWithin = seconds(5);  // so soon a pod that is gone has one in its place, if it is to have one
constexpr Duration kQuotaRetry = seconds(10);     // retention may make room
constexpr size_t kMaxQuarantineText = 2000;       // in a condition

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
Step Wait(const World& w, const std::string& message, Duration again, WallTime now, const char* why = reason::kWaiting) {
  const api::Checkpoint& c = *w.checkpoint;
  const api::Condition* ready = c.Ready();
  Step step;
  Json patch = api::PhasePatch(c, Phase::kPending, why, message, now);
  // As the patch has it: a message that was shortened would differ for ever.
  const api::Condition next = *api::Checkpoint::FromJson(patch).Ready();
  if (ready == nullptr || ready->reason != next.reason || ready->message != next.message) step = Patch(std::move(patch), message);
  const WallTime until = DeadlineOf(c);
  step.again = now < until ? std::clamp<Duration>(until - now, std::chrono::milliseconds(100), again) : again;
  return step;
}

bool Queued(const api::Checkpoint& c) { return c.Ready() != nullptr && c.Ready()->reason == reason::kQueued; }

// In the queue of its node. Its place, and how long it waits at most, are told with the words.
Step Queue(const World& w, WallTime now) {
  const api::Checkpoint& c = *w.checkpoint;
  const Admission& turn = *w.admission;
  Step step = Wait(w, turn.waits_for, kAdmissionRetry, now, reason::kQueued);
  step.again = kAdmissionRetry;
  if (step.action != Action::kPatchStatus) return step;
  const WallTime until = Queued(c) ? QueuedUntil(c) : CreatedAt(c) + kTurnComes;
  step.patch["status"]["queue"] = api::QueueJson(std::max<int64_t>(1, turn.position), until, turn.about);
  if (c.status.queued_until.empty())
    step.notice = Notice{false, reason::kQueued, "waits for its turn to be checkpointed: " + turn.waits_for, true, false};
  return step;
}

// Until when one waits that is not in the queue, or not any more: the time that it was there does not count.
WallTime PatienceOf(const api::Checkpoint& c, WallTime now) {
  if (c.status.queued_until.empty()) return DeadlineOf(c);
  return Queued(c) ? std::min<WallTime>(QueuedUntil(c), now + c.spec.deadline) : QueuedUntil(c);
}

// Something else than its turn is in the way.
Step WaitForAdmission(const World& w, WallTime now) {
  const api::Checkpoint& c = *w.checkpoint;
  const WallTime until = PatienceOf(c, now);
  Step step = Wait(w, w.admission->waits_for, kAdmissionRetry, now);
  if (step.action == Action::kPatchStatus && !c.status.queued_until.empty())
    step.patch["status"]["queue"] = {{"until", FormatTime(until)}, {"position", Json()}, {"about", Json()}};
  step.again = std::clamp<Duration>(until - now, std::chrono::milliseconds(100), kAdmissionRetry);
  return step;
}

Step WaitOrGiveUp(const World& w, const std::string& message, WallTime now) {
  if (now >= DeadlineOf(*w.checkpoint)) {
    return Fail(w, reason::kDeadline,
                "the deadline of " + FormatDuration(w.checkpoint->spec.deadline) + " passed before it began: " + message, now);
  }
  return Wait(w, message, w.checkpoint->spec.deadline, now);
}

bool Wanted(const api::Checkpoint& c, const std::string& container) {
  const auto& names = c.spec.containers;
  return names.empty() || std::find(names.begin(), names.end(), container) != names.end();
}

bool IsGroupName(const std::string& name) {
  auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !name.empty() && name.size() <= 63 && plain(name.front()) && plain(name.back()) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return plain(c) || c == '-'; });
}

// A container that spec.containers names and the pod does not have.
std::optional<std::string> UnknownContainer(const World& w) {
  for (const std::string& name : w.checkpoint->spec.containers) {
    const auto all = w.pod->LastingContainers();
    if (std::any_of(all.begin(), all.end(), [&](const kube::Container* c) { return c->name == name; })) continue;
    std::string known;
    for (const kube::Container* container : all) known += (known.empty() ? "" : ", ") + container->name.str();
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
  if (std::find(finalizers.begin(), finalizers.end(), kContentFinalizer) == finalizers.end()) finalizers.emplace_back(kContentFinalizer);
  step.patch["metadata"]["finalizers"] = finalizers;
  if (c.spec.pod_uid.empty()) step.patch["spec"]["podRef"] = {{"name", c.spec.pod_name}, {"uid", w.pod->meta.uid}};
  return step;
}

bool HasFinalizer(const api::Checkpoint& c) {
  return std::find(c.meta.finalizers.begin(), c.meta.finalizers.end(), kContentFinalizer) != c.meta.finalizers.end();
}

// Why a pod cannot be dumped at this moment, though it may be later. `other`: see World.
std::optional<std::string> NotYet(const api::Checkpoint* c, const kube::Pod& pod, const CheckpointPtr& other) {
  // What its containers that have not run yet were to go on from goes on with the others.
  const bool in_part = c != nullptr && c->spec.final && api::RunsInPart(pod);
  if (pod.phase != "Running" && !in_part) return "the pod is not running yet (" + (pod.phase.empty() ? "Pending" : pod.phase) + ")";
  for (const kube::Container* container : pod.LastingContainers()) {
    if (c != nullptr && !Wanted(*c, container->name)) continue;
    const kube::ContainerStatus* status = pod.StatusOf(container->name);
    if (!in_part && (status == nullptr || !status->running)) {
      return "container " + container->name + " is not running" +
             (status != nullptr && !status->reason.empty() ? " (" + status->reason + ")" : "");
    }
  }
  if (other) return "Checkpoint " + other->meta.name + " has this pod in hand";
  return std::nullopt;
}

std::optional<std::string> FinishedContainer(const World& w) {
  for (const kube::Container& container : w.pod->containers) {
    const kube::ContainerStatus* status = w.pod->StatusOf(container.name);
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
  patch["status"]["security"] = api::SecurityOf(pod);
  if (!w.policy.empty()) patch["status"]["policy"] = w.policy;
  Duration within = w.checkpoint->spec.deadline;
  if (w.admission && w.admission->most) within = std::min(within, *w.admission->most);
  patch["status"]["startedAt"] = FormatTime(now);
  patch["status"]["deadlineAt"] = FormatTime(now + within);
  if (!w.checkpoint->status.queued_until.empty()) patch["status"]["queue"] = Json();
  Step step = Patch(std::move(patch), "assigned to node " + pod.node_name);
  step.again = within + kAgentGrace;
  return step;
}

std::string MemberText(const std::string& pod, const std::string& group) { return "member " + pod + " of group " + group; }

// What others wait for tells them nothing, so they look again soon.
Step WaitForMember(const World& w, const std::string& message, WallTime now) {
  Step step = WaitOrGiveUp(w, message, now);
  if (step.again) step.again = std::min<Duration>(*step.again, kBarrierLook);
  return step;
}

// The first checkpoint of a group's cut names the others, before any of them is made: a leader that comes next makes the same.
Step OpenCut(const World& w, WallTime now) {
  const api::Checkpoint& c = *w.checkpoint;
  if (!IsGroupName(w.group)) {
    return Fail(
        w, reason::kUnsupported,
        std::string(api::kMemberOf) + ": \"" + w.group.substr(0, 64) + "\" is no name of a group: write a DNS label, such as ring-1", now);
  }
  if (w.mates.size() > group::kMaxMembers) {
    return Fail(w, reason::kUnsupported,
                "group " + w.group + " has " + std::to_string(w.mates.size()) + " pods, and at most " + std::to_string(group::kMaxMembers) +
                    " can stand still together",
                now);
  }
  // A cut without a member that is just being replaced would be the newest, and take the others where that one cannot follow.
  if (!w.leaving.empty()) return WaitForMember(w, MemberText(w.leaving, w.group) + ": it is being deleted", now);
  const auto asked = ParseTime(c.meta.creation_timestamp);
  if (w.mates.size() < w.mates_before && asked && now - *asked < kReplacedWithin) {
    return WaitForMember(w,
                         "group " + w.group + " had " + std::to_string(w.mates_before) + " members at its last cut, and has " +
                             std::to_string(w.mates.size()),
                         now);
  }
  for (const group::Member& mate : w.mates) {
    const std::string who = MemberText(mate.who.pod_name.str(), w.group) + ": ";
    if (auto why = Unprotected(*mate.pod)) return Fail(w, reason::kUnsupported, who + *why, now);
    if (auto why = NotYet(nullptr, *mate.pod, mate.other)) return WaitForMember(w, who + *why, now);
  }
  api::Cut cut{w.group, c.meta.uid, {{c.spec.pod_name, c.spec.pod_uid, c.meta.name}}};
  for (const group::Member& mate : w.mates) {
    if (mate.who.pod_uid == c.spec.pod_uid) continue;
    cut.members.push_back({mate.who.pod_name, mate.who.pod_uid, api::CheckpointName(c.spec.trigger, mate.who.pod_name.str(), c.meta.uid)});
  }
  Step step;
  step.action = Action::kPrepare;
  step.why = "opens a cut of group " + w.group + " with " + std::to_string(cut.members.size()) + " members";
  step.patch["spec"]["cut"] = api::ToJson(cut);
  return step;
}

// Of a cut all fail together, with the culprit's name.
std::optional<Step> FailWithCut(const World& w, WallTime now) {
  const api::Checkpoint& c = *w.checkpoint;
  if (c.spec.cut.none()) return std::nullopt;
  const std::optional<group::Trouble> trouble = group::TroubleOf(w.cut, now);
  if (!trouble) return std::nullopt;
  if (trouble->pod == c.spec.pod_name.str()) return Fail(w, trouble->reason.c_str(), trouble->message, now);
  return Fail(w, reason::kGroupMemberFailed,
              MemberText(trouble->pod, c.spec.cut.group.str()) + ": " + trouble->reason + ": " + trouble->message, now);
}

// What is still missing before the members of a cut may be frozen.
std::optional<Step> AwaitCut(const World& w, WallTime now) {
  const api::Checkpoint& c = *w.checkpoint;
  const bool own = std::any_of(w.cut.begin(), w.cut.end(), [&](const group::Member& m) {
    return m.who.checkpoint == c.meta.name && m.who.pod_uid == c.spec.pod_uid && m.who.pod_name == c.spec.pod_name;
  });
  if (!own) return Fail(w, reason::kUnsupported, "spec.cut does not name it among its members: leave spec.cut to the controller", now);
  if (c.spec.cut.group != w.group) return Fail(w, reason::kUnsupported, "its pod is not of group " + c.spec.cut.group, now);
  if (auto why = Unprotected(*w.pod)) return Fail(w, reason::kUnsupported, *why, now);
  const bool complete = std::all_of(w.cut.begin(), w.cut.end(), [](const group::Member& m) { return m.checkpoint != nullptr; });
  if (!complete && c.spec.cut.id == c.meta.uid && now < DeadlineOf(c)) {
    Step step;
    step.action = Action::kOpenCut;
    step.why = "the others of its cut";
    step.again = seconds(1);
    return step;
  }
  if (!complete) return WaitForMember(w, "waits for the other checkpoints of its cut", now);
  for (const group::Member& m : w.cut) {
    const std::string who = MemberText(m.who.pod_name.str(), c.spec.cut.group.str()) + ": ";
    if (!m.pod) return WaitForMember(w, who + "its pod is not known", now);
    if (m.checkpoint->status.phase != Phase::kPending) continue;
    if (m.checkpoint->spec.pod_uid.empty() || !HasFinalizer(*m.checkpoint)) return WaitForMember(w, who + "it is not prepared yet", now);
    if (auto why = NotYet(m.checkpoint.get(), *m.pod, m.other)) return WaitForMember(w, who + *why, now);
  }
  return std::nullopt;
}

// The barrier, once for each member: the word that all of them stand still, and then, that all of them are dumped.
std::optional<Step> AtBarrier(const World& w, WallTime now) {
  const api::Checkpoint& c = *w.checkpoint;
  if (c.spec.cut.none() || !c.status.all_dumped_at.empty() || c.status.phase == Phase::kStoring) return std::nullopt;
  const bool dumping = !c.status.all_frozen_at.empty();
  const bool all =
      dumping ? !c.status.dumped_at.empty() && group::AllDumped(w.cut) : !c.status.frozen_at.empty() && group::AllFrozen(w.cut);
  if (!all) {
    Step step;
    step.again = kBarrierLook;
    return step;
  }
  return Patch({{"status", {{"barrier", {{dumping ? "allDumpedAt" : "allFrozenAt", FormatTime(now)}}}}}},
               std::string("all members of its group are ") + (dumping ? "dumped" : "frozen"));
}

Json StatusOf(const api::Checkpoint& c, const Content& content) {
  const Json& info = content.info;
  const int64_t memory = std::max<int64_t>(GetInt(info, {"result", "memory_bytes"}), 0),
                files = std::max<int64_t>(GetInt(info, {"result", "files_bytes"}), 0);
  const api::Owner owner{GetString(info, {"owner", "kind"}), GetString(info, {"owner", "name"}), GetString(info, {"owner", "uid"}),
                         GetString(info, {"owner", "templateHash"}), GetString(info, {"owner", "ordinal"})};
  Json status = {{"podUID", c.spec.pod_uid.str()},
                 {"manifest", {{"store", content.store}, {"id", c.meta.Annotation(api::kManifest)}, {"digest", content.digest}}},
                 {"size", api::SizeJson(memory, files, content.stored_bytes)},
                 {"summary", api::SummaryJson(memory + files, content.stored_bytes)},
                 {"containers", Json::array()}};
  if (const std::string node = GetString(info, {"node"}); !node.empty()) status["nodeName"] = node;
  if (const std::string policy = GetString(info, {"policy"}); !policy.empty()) status["policy"] = policy;
  if (const Json& security = GetObject(info, {"security"}); !security.empty()) status["security"] = security;
  if (!owner.kind.empty()) status["owner"] = api::ToJson(owner);
  if (const Json& platform = GetObject(info, {"platform"}); !platform.empty()) status["platform"] = platform;
  if (const std::string started = GetString(info, {"startedAt"}); ParseTime(started)) status["startedAt"] = started;
  if (ParseTime(content.created)) status["completedAt"] = content.created;
  for (const Json& json : GetArray(info, {"containers"})) {
    api::CheckpointContainer container;
    container.name = GetString(json, {"name"});
    container.image = GetString(json, {"image"});
    container.image_digest = GetString(json, {"imageDigest"});
    container.restorable = GetBool(json, {"restorable"}, true);  // not told by earlier agents: the restore finds out
    if (!container.restorable)
      container.reason = "taken under plain runc: what it changed in its root filesystem is only in rootfs-diff.tar";
    status["containers"].push_back(api::ToJson(container));
  }
  return status;
}

// Made anew around what the store has, since its object was lost with etcd, or it comes from another cluster. It carries the name and the
// pod of then, so there are never two for one content; and it is a snapshot, whatever it was: what its pod did afterwards is not known, so
// no pod gets it without asking.
Step Adopt(const World& w, WallTime now) {
  const api::Checkpoint& c = *w.checkpoint;
  const std::string what = std::string(api::kManifest) + ": \"" + c.meta.Annotation(api::kManifest).substr(0, 253) + "\" ",
                    hint = ": use what \"holdfast-store checkpoints\" prints";
  if (c.spec.pod_uid.empty() || c.spec.final || c.spec.trigger != api::Trigger::kManual)
    return Fail(w, reason::kNotStored, what + "needs spec.podRef.uid, final: false and trigger: Manual" + hint, now);
  if (!HasFinalizer(c)) return Prepare(w);
  if (!w.content) {
    Step step;
    step.action = Action::kAskStore;
    return step;
  }
  const Status& read = w.content->status();
  if (read.code() == Code::kNotFound || read.code() == Code::kInvalidArgument || read.code() == Code::kDataLoss)
    return Fail(w, reason::kNotStored, what + "cannot be used: " + read.message(), now);
  if (!read.ok()) {
    Step step = Wait(w, "the store does not answer: " + read.message(), kStoreRetry, now);
    step.again = kStoreRetry;  // also after its deadline, which is a dump's
    return step;
  }
  const Content& content = **w.content;
  if (content.ns != c.meta.ns || content.checkpoint != c.meta.name || GetString(content.info, {"podUID"}) != c.spec.pod_uid.str()) {
    return Fail(w, reason::kNotStored, what + "is of Checkpoint " + content.ns + "/" + content.checkpoint + ", or of another pod" + hint,
                now);
  }
  const std::string from = "made anew from what the store has of it, from " + content.created;
  Json patch = api::PhasePatch(c, Phase::kReady, reason::kCompleted, from, now);
  patch["status"].update(StatusOf(c, content));
  Step step = Patch(std::move(patch), from);
  step.notice = Notice{false, "Adopted", from, false, true};
  return step;
}

Step NextPending(const World& w, WallTime now) {
  const api::Checkpoint& c = *w.checkpoint;
  if (!c.meta.Annotation(api::kManifest).empty()) return Adopt(w, now);
  if (!w.pod) return Fail(w, reason::kPodGone, "there is no such pod", now);
  if (!c.spec.pod_uid.empty() && w.pod->meta.uid != c.spec.pod_uid) {
    return Fail(w, reason::kPodReplaced,
                "the pod of that name is another one now (uid " + w.pod->meta.uid + ", asked for was " + c.spec.pod_uid + ")", now);
  }
  if (c.spec.pod_uid.empty() || !HasFinalizer(c)) return Prepare(w);
  if (auto step = FailWithCut(w, now)) return *step;
  const bool on_stop = c.spec.trigger == api::Trigger::kStop;
  if (w.pod->meta.terminating() && !on_stop) return Fail(w, reason::kPodGone, "the pod is being deleted", now);
  if (w.pod->phase == "Succeeded" || w.pod->phase == "Failed")
    return Fail(w, reason::kPodGone, "the pod has ended (" + w.pod->phase + ")", now);
  if (auto why = UnknownContainer(w)) return Fail(w, reason::kUnsupported, *why, now);
  if (auto why = UnsupportedPod(*w.pod)) return Fail(w, reason::kUnsupported, *why, now);
  if (w.pod->node_name.empty()) return WaitOrGiveUp(w, "the pod has no node yet", now);
  if (auto why = UnsupportedHere(*w.pod, w.node.get(), c.spec.final)) return Fail(w, reason::kUnsupported, *why, now);
  if (auto why = FinishedContainer(w)) return Fail(w, reason::kUnsupported, *why, now);
  if (auto why = JobWouldFail(w)) return Fail(w, reason::kUnsupported, *why, now);
  if (!w.over_quota.empty()) {
    if (now >= DeadlineOf(c)) return Fail(w, reason::kStoreFull, w.over_quota, now);
    return Wait(w, w.over_quota, kQuotaRetry, now);
  }
  if (auto why = NotYet(&c, *w.pod, w.other)) return WaitOrGiveUp(w, *why, now);
  // A final one is no older than what the others have seen: it needs none of them.
  if (!w.group.empty() && !c.spec.final && c.spec.cut.none()) return OpenCut(w, now);
  if (!c.spec.cut.none()) {
    if (auto step = AwaitCut(w, now)) return *step;
  }
  if (c.spec.trigger != api::Trigger::kDrain) return Assign(w, now);

  if (!w.admission) {
    Step step;
    step.action = Action::kAskAdmission;
    return step;
  }
  if (w.admission->granted) return Assign(w, now);
  // Its deadline begins with its turn: what waits behind many others shall not be lost for it.
  if (w.admission->queued && now < (Queued(c) ? QueuedUntil(c) : CreatedAt(c) + kTurnComes)) return Queue(w, now);
  if (now < PatienceOf(c, now)) return WaitForAdmission(w, now);
  if (!w.admission->budget) {
    const std::string limit = c.status.queued_until.empty()
                                  ? "the deadline of " + FormatDuration(c.spec.deadline)
                                  : "its time in the queue of its node, until " + FormatTime(QueuedUntil(c)) + ",";
    return Fail(w, reason::kDeadline, limit + " passed before it began: " + w.admission->waits_for, now);
  }
  // The budget holds the pod anyway, and whoever drains may have given up by now. Nothing is frozen: the next eviction request begins anew.
  Step step;
  step.action = Action::kDelete;
  step.why = w.admission->waits_for;
  step.notice = Notice{false, reason::kWaiting, "not checkpointed: " + w.admission->waits_for + "; the next eviction request tries again",
                       true, false};
  return step;
}

Step NextAssigned(const World& w, WallTime now) {
  const api::Checkpoint& c = *w.checkpoint;
  const WallTime until = DeadlineOf(c) + kAgentGrace;
  // Of a stop the deadline is the store's; its dump begins at once, or the pod ends without one.
  if (const bool pod_there = w.pod && w.pod->meta.uid == c.spec.pod_uid; c.spec.trigger == api::Trigger::kStop && !pod_there) {
    const WallTime begins_by = ParseTime(c.status.started_at).value_or(CreatedAt(c)) + kUptake;
    if (now >= begins_by) return Fail(w, reason::kPodGone, "the pod has ended, and its agent did not report a dump", now);
    Step step;
    step.again = begins_by - now;
    return step;
  }
  if (now >= until) {
    return Fail(w, reason::kDeadline,
                "the agent on node " + w.checkpoint->status.node_name + " did not take it up by its deadline, " + FormatTime(DeadlineOf(c)),
                now);
  }
  if (auto step = FailWithCut(w, now)) return *step;
  // An agent takes nothing from a leader whose term is over, so what was in flight when we came goes on in ours. PatchStatus adds it.
  Step step = w.checkpoint->status.term < w.term ? Patch({{"status", Json::object()}}, "taken over from an earlier leader") : Step{};
  step.again = c.spec.cut.none() ? until - now : std::min<Duration>(until - now, kBarrierLook);
  return step;
}

// An agent that is gone with its node ends nothing. A final one is left as it is: its pod may be frozen there, and only its agent can tell
// what was committed.
Step NextInAgentsHands(const World& w, WallTime now) {
  const api::Checkpoint& c = *w.checkpoint;
  if (auto step = FailWithCut(w, now)) return *step;
  if (auto step = AtBarrier(w, now)) return *step;
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

// Told to people; who is given it goes by status.restores.
std::optional<Step> MarkQuarantined(const api::Checkpoint& c, WallTime now) {
  const bool is = Quarantined(c), told = kube::FindCondition(c.status.conditions, api::kQuarantined) != nullptr;
  if (is == told) return std::nullopt;
  std::vector<api::Condition> conditions = c.status.conditions;
  const std::string text = is ? "given to no pod by itself any more: " + QuarantineText(c) : "";
  if (is) {
    kube::SetCondition(conditions,
                       {.type = api::kQuarantined,
                        .status = "True",
                        .reason = "RestoresFailed",
                        .message = kube::Clip(text, kMaxQuarantineText),
                        .observed_generation = c.meta.generation},
                       now);
  } else {
    kube::RemoveCondition(conditions, api::kQuarantined);
  }
  Step step = Patch({{"status", {{"conditions", api::ToJson(conditions)}}}}, is ? text : "a pod was restored from it");
  if (is) {
    step.notice = Notice{true, api::kQuarantined,
                         text + ". To try it once more: a pod with the annotation " + api::kFromCheckpoint + ": " + c.meta.name +
                             "; to do without its state, delete it",
                         false, true};
  }
  return step;
}

// Made of a pod that was stopped because its owner would make it anew, which it then did not: a later one is no successor of it.
Step NextReady(const World& w, WallTime now) {
  const api::Checkpoint& c = *w.checkpoint;
  const bool failed = std::any_of(w.cut.begin(), w.cut.end(),
                                  [](const group::Member& m) { return m.checkpoint && m.checkpoint->status.phase == Phase::kFailed; });
  if (failed && !c.status.claim) {
    if (auto step = FailWithCut(w, now)) return *step;
  }
  if (auto step = MarkQuarantined(c, now)) return *step;
  Step step;
  if (c.spec.trigger != api::Trigger::kStop || !Unclaimed(c) || c.spec.pinned) return step;
  const WallTime until = CompletedAt(c) + kNobodyCame;
  if (now < until) {
    step.again = until - now;
    return step;
  }
  step.action = Action::kDelete;
  step.why = "no pod went on from it within " + FormatDuration(kNobodyCame);
  step.notice = Notice{true, "NotClaimed", "deleted: " + step.why, false, true};
  return step;
}

bool InUse(const World& w) {
  return w.claimant && w.claimant->phase != "Running" && !Ended(*w.claimant) && !Reclaimed(*w.checkpoint) &&
         OutcomeOfClaim(*w.checkpoint) == nullptr;
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
    if (w.relied_on) {
      step.again = seconds(1);
      step.why = "its pod is being ended; it is thawed once that is called off";
      return step;
    }
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
    case Phase::kFreezing:
    case Phase::kDumping:
    case Phase::kStoring:
      return NextInAgentsHands(seen, now);
    case Phase::kReady:
      return NextReady(seen, now);
    default:
      return {};
  }
}

}  // namespace holdfast::reconcilers::checkpoint
