#include "reconcilers/group/cut.h"

#include <algorithm>

namespace holdfast::reconcilers::group {
namespace {

using api::Phase;
namespace reason = api::reason;

bool OfCut(const CheckpointPtr& c, const api::Cut& cut) { return c && c->spec.cut.id == cut.id; }

// Its pod matters until it may be dumped.
std::string GoneMeanwhile(const Member& m) {
  if (!m.checkpoint || m.checkpoint->done() || !m.checkpoint->status.all_frozen_at.empty()) return "";
  if (!m.pod) return "the pod does not exist any more";
  return Leaves(*m.pod) ? m.pod->meta.terminating() ? "the pod is being deleted" : "the pod has ended (" + m.pod->phase + ")" : "";
}

// Since when one of them waits for the others; nothing: none does.
struct Since {
  std::optional<WallTime> frozen, dumped;
};

Since FirstOf(const std::vector<Member>& members) {
  Since first;
  auto earlier = [](std::optional<WallTime>* first, const kube::SharedString& text) {
    const auto at = ParseTime(text);
    if (at && (!*first || *at < **first)) *first = at;
  };
  for (const Member& m : members) {
    if (!m.checkpoint) continue;
    earlier(&first.frozen, m.checkpoint->status.frozen_at);
    earlier(&first.dumped, m.checkpoint->status.dumped_at);
  }
  return first;
}

// An agent of an earlier release does not say so, but stores what is dumped.
bool IsDumped(const api::Checkpoint& c) {
  return !c.status.dumped_at.empty() || c.status.phase == Phase::kStoring || c.status.phase == Phase::kReady;
}

std::optional<Trouble> TroubleOf(const Member& m, bool opening, const Since& first, WallTime now) {
  const std::string pod = m.who.pod_name.str();
  if (!m.checkpoint)
    return m.gone && !opening ? std::optional(Trouble{pod, reason::kDumpFailed, "its Checkpoint " + m.who.checkpoint + " was deleted"})
                              : std::nullopt;
  const api::Checkpoint& c = *m.checkpoint;
  if (c.status.phase == Phase::kFailed) {
    const api::Condition* ready = c.Ready();
    return Trouble{pod, ready != nullptr ? ready->reason.str() : "", ready != nullptr ? ready->message.str() : "it failed"};
  }
  if (c.status.phase == Phase::kReady) return std::nullopt;
  if (c.meta.terminating()) return Trouble{pod, reason::kDumpFailed, "its Checkpoint " + c.meta.name + " is being deleted"};
  if (const std::string gone = GoneMeanwhile(m); !gone.empty()) return Trouble{pod, reason::kPodGone, gone};
  if (c.status.frozen_at.empty() && first.frozen && now - *first.frozen >= kLateAfter)
    return Trouble{pod, reason::kDeadline, "it was not frozen within " + FormatDuration(kLateAfter) + " of the first member"};
  if (!IsDumped(c) && first.dumped && now - *first.dumped >= kDumpLateAfter) {
    return Trouble{
        pod, reason::kDeadline,
        "it was not dumped within " + FormatDuration(kDumpLateAfter) + " of the first member, and nobody stands still for it longer"};
  }
  return std::nullopt;
}

}  // namespace

std::string GroupOf(const kube::Pod& pod) { return pod.meta.Annotation(api::kMemberOf); }

bool Leaves(const kube::Pod& pod) { return pod.meta.terminating() || Ended(pod); }

std::vector<PodPtr> MembersOf(const View& view, const std::string& ns, const std::string& group) {
  std::vector<PodPtr> members;
  for (PodPtr& pod : view.PodsIn(ns)) {
    if (GroupOf(*pod) == group && !Leaves(*pod)) members.push_back(std::move(pod));
  }
  std::sort(members.begin(), members.end(), [](const PodPtr& a, const PodPtr& b) { return a->meta.name < b->meta.name; });
  return members;
}

std::string LeavingOf(const View& view, const std::string& ns, const std::string& group) {
  for (const PodPtr& pod : view.PodsIn(ns)) {
    if (GroupOf(*pod) == group && pod->meta.terminating() && !Ended(*pod)) return pod->meta.name;
  }
  return "";
}

api::Cut LastCutOf(const View& view, const kube::Pod& pod) {
  CheckpointPtr newest;
  for (const CheckpointPtr& c : view.CheckpointsOfPod(pod.meta.uid)) {
    if (c->status.phase == Phase::kReady && c->spec.cut.group == GroupOf(pod) && (!newest || Newer(c, newest))) newest = c;
  }
  return newest ? newest->spec.cut : api::Cut{};
}

std::optional<Trouble> TroubleOf(const std::vector<Member>& members, WallTime now) {
  if (members.empty()) return std::nullopt;
  const CheckpointPtr& opener = members[0].checkpoint;
  const bool opening = opener && opener->status.phase == Phase::kPending;
  const Since first = FirstOf(members);
  std::optional<Trouble> found;
  for (const Member& m : members) {
    std::optional<Trouble> trouble = TroubleOf(m, opening, first, now);
    // Most fail because one did.
    if (trouble && (!found || found->reason == reason::kGroupMemberFailed)) found = std::move(trouble);
  }
  return found;
}

bool AllFrozen(const std::vector<Member>& members) {
  return std::all_of(members.begin(), members.end(), [](const Member& m) {
    return m.checkpoint && UnderWay(*m.checkpoint) && !m.checkpoint->meta.terminating() && !m.checkpoint->status.frozen_at.empty();
  });
}

bool AllDumped(const std::vector<Member>& members) {
  return std::all_of(members.begin(), members.end(),
                     [](const Member& m) { return m.checkpoint && !m.checkpoint->meta.terminating() && IsDumped(*m.checkpoint); });
}

Wholeness WholenessOf(const View& view, const api::Checkpoint& checkpoint) {
  const api::Cut& cut = checkpoint.spec.cut;
  Wholeness found;
  auto at_least = [&](decltype(found.state) state, const std::string& why) {
    if (state > found.state) found = {state, "its cut is not whole: " + why};
  };
  for (const api::CutMember& member : cut.members) {
    const CheckpointPtr c = view.GetCheckpoint(checkpoint.meta.ns, member.checkpoint);
    const std::string which = "Checkpoint " + member.checkpoint + " of member " + member.pod_name;
    if (!OfCut(c, cut)) {
      at_least(Wholeness::kBroken, which + " is gone");
    } else if (c->meta.terminating()) {
      at_least(Wholeness::kBroken, which + " is being deleted");
    } else if (c->status.phase == Phase::kFailed || c->status.phase == Phase::kDeleting) {
      at_least(Wholeness::kBroken, which + " has failed");
    } else if (c->status.phase != Phase::kReady) {
      at_least(Wholeness::kUnderWay, which + " is " + std::string(api::PhaseName(c->status.phase)));
    } else if (DamageOf(*c) != nullptr) {
      at_least(Wholeness::kDamaged, which + " is damaged");
    }
  }
  return found;
}

std::string GoneBeyond(const View& view, const api::Checkpoint& checkpoint, const kube::Pod& pod) {
  const api::Cut& cut = checkpoint.spec.cut;
  if (cut.none()) return "";
  for (const PodPtr& mate : MembersOf(view, checkpoint.meta.ns, cut.group)) {
    if (mate->meta.uid == pod.meta.uid) continue;
    const std::vector<CheckpointPtr> claimed = view.CheckpointsClaimedBy(mate->meta.uid);
    const bool from_it = std::any_of(claimed.begin(), claimed.end(), [&](const CheckpointPtr& c) { return OfCut(c, cut); });
    if (!from_it && !(claimed.empty() && Gated(*mate))) return mate->meta.name;
  }
  // One that was drained meanwhile goes on from there.
  for (const api::CutMember& member : cut.members) {
    for (const CheckpointPtr& c : view.CheckpointsOfPod(member.pod_uid)) {
      if (HoldsItsPod(*c) && c->spec.pod_uid != checkpoint.spec.pod_uid) return member.pod_name.str();
    }
  }
  return "";
}

std::optional<Ending> EndingBeside(const View& view, const api::Checkpoint& checkpoint, const kube::Pod& pod) {
  const api::Cut& cut = checkpoint.spec.cut;
  if (cut.none()) return std::nullopt;
  for (const PodPtr& mate : view.PodsIn(checkpoint.meta.ns)) {
    if (GroupOf(*mate) != cut.group || mate->meta.uid == pod.meta.uid || !mate->meta.terminating() || Ended(*mate)) continue;
    NodePtr node = view.GetNode(mate->node_name);
    if (!OutOfService(node.get())) return Ending{mate->meta.name, std::move(node), false};
  }
  for (const api::CutMember& member : cut.members) {
    const CheckpointPtr c = view.GetCheckpoint(checkpoint.meta.ns, member.checkpoint);
    // To whom it was given found that its pod had ended.
    if (!OfCut(c, cut) || c->spec.pod_uid == checkpoint.spec.pod_uid || c->status.claim) continue;
    if (GetPodWithUid(view, checkpoint.meta.ns, member.pod_name, member.pod_uid)) continue;  // seen above, or runs on
    NodePtr node = view.GetNode(c->status.node_name);
    if (EndOf(*c, nullptr, node.get()) == End::kUnconfirmed) return Ending{member.pod_name.str(), std::move(node), true};
  }
  return std::nullopt;
}

}  // namespace holdfast::reconcilers::group
