// Cuts: the checkpoints of a group are assigned together, go through the barrier together, and fail together.
#include <gtest/gtest.h>

#include "reconcilers/checkpoint/step.h"
#include "tests/unit/reconcilers/world.h"

namespace holdfast::reconcilers::checkpoint {
namespace {

using api::Phase;
using namespace reconcilers::testing;  // NOLINT(google-build-using-namespace)

kube::Pod MemberPod(const std::string& letter) {
  kube::Pod pod = WebPod("ring-" + letter, "uid-" + letter);
  pod.meta.annotations = {{api::kMemberOf, "ring"}};
  pod.node_name = "node-" + letter;
  return pod;
}

// Two members, each with its Checkpoint: A opened the cut. World(i) is what the step of one of them sees.
struct Ring {
  std::vector<kube::Pod> pods = {MemberPod("a"), MemberPod("b")};
  std::vector<bool> there = {true, true}, pod_there = {true, true};
  std::vector<api::Checkpoint> cps;
  api::Cut cut;

  explicit Ring(Phase phase = Phase::kPending) {
    for (const char* letter : {"a", "b"}) {
      api::Checkpoint c = phase == Phase::kPending ? WebDrain() : InPhase(phase);
      c.meta.name = std::string("manual-") + letter;
      c.meta.uid = std::string("ckpt-") + letter;
      c.spec.pod_name = std::string("ring-") + letter;
      c.spec.pod_uid = std::string("uid-") + letter;
      c.spec.final = false;
      c.spec.trigger = api::Trigger::kManual;
      c.status.started_at = phase == Phase::kPending ? "" : FormatTime(kStart);
      cps.push_back(c);
    }
    cut = {"ring", "ckpt-a", {{"ring-a", "uid-a", "manual-a"}, {"ring-b", "uid-b", "manual-b"}}};
    for (api::Checkpoint& c : cps) c.spec.cut = cut;
  }

  void Frozen(size_t i, int at) {
    cps[i].status.phase = Phase::kFreezing;
    cps[i].status.frozen_at = FormatTime(At(at));
  }
  // At the second barrier, or on the way there.
  void Dumping(size_t i, const std::string& dumped_at) {
    Frozen(i, 1);
    cps[i].status.phase = Phase::kDumping;
    cps[i].status.all_frozen_at = FormatTime(At(2));
    cps[i].status.dumped_at = dumped_at;
  }
  void Failed(size_t i, const std::string& reason, const std::string& message) {
    cps[i].status.phase = Phase::kFailed;
    cps[i].status.conditions = {{"Ready", "False", reason, message, FormatTime(kStart), 1}};
  }

  World Of(size_t i) const {
    World w;
    w.checkpoint = Share(cps[i]);
    if (pod_there[i]) w.pod = Share(pods[i]);
    w.node = Share(ReadyNode("node-" + std::string(1, static_cast<char>('a' + i))));
    w.lineage.owner = WebOwner();
    w.group = "ring";
    for (size_t m = 0; m < cps.size(); ++m) {
      group::Member member{cut.members[m], there[m] ? Share(cps[m]) : nullptr, !there[m], pod_there[m] ? Share(pods[m]) : nullptr, nullptr};
      w.cut.push_back(member);
      w.mates.push_back({{pods[m].meta.name, pods[m].meta.uid, ""}, nullptr, false, Share(pods[m]), nullptr});
    }
    if (cps[i].spec.cut.none()) w.cut.clear();
    return w;
  }
};

std::string PhaseOf(const Step& step) { return GetString(step.patch, {"status", "phase"}); }
std::string ReasonOf(const Step& step) { return GetString(GetArray(step.patch, {"status", "conditions"}).at(0), {"reason"}); }
std::string MessageOf(const Step& step) { return GetString(GetArray(step.patch, {"status", "conditions"}).at(0), {"message"}); }
std::string WordOf(const Step& step) { return GetString(step.patch, {"status", "barrier", "allFrozenAt"}); }
std::string LastWordOf(const Step& step) { return GetString(step.patch, {"status", "barrier", "allDumpedAt"}); }

TEST(Group, ACheckpointOfAMemberNamesTheWholeCutBeforeAnythingElse) {
  Ring ring;
  ring.cps[0].spec.cut = {};
  const Step step = Next(ring.Of(0), At(1));
  ASSERT_EQ(step.action, Action::kPrepare);
  const api::Checkpoint named = api::Checkpoint::FromJson(step.patch);
  EXPECT_EQ(named.spec.cut.group, "ring");
  EXPECT_EQ(named.spec.cut.id, "ckpt-a");
  ASSERT_EQ(named.spec.cut.members.size(), 2u);
  EXPECT_EQ(named.spec.cut.members[0].checkpoint, "manual-a") << "the opener first";
  EXPECT_EQ(named.spec.cut.members[1].pod_uid, "uid-b");
  EXPECT_EQ(Next(ring.Of(0), At(2)).patch, step.patch) << "the same again, whoever leads then";
}

TEST(Group, AFinalCheckpointOfAMemberOpensNoCut) {
  Ring ring;
  ring.cps[0].spec.cut = {};
  ring.cps[0].spec.final = true;
  EXPECT_EQ(PhaseOf(Next(ring.Of(0), At(1))), "Assigned");
}

TEST(Group, TheOpenerHasTheOthersMade) {
  Ring ring;
  ring.there[1] = false;
  EXPECT_EQ(Next(ring.Of(0), At(1)).action, Action::kOpenCut);
}

TEST(Group, AllAreAssignedOnceAllAreThere) {
  const Ring ring;
  for (size_t i : {0, 1}) EXPECT_EQ(PhaseOf(Next(ring.Of(i), At(1))), "Assigned") << i;
}

TEST(Group, NobodyIsFrozenForAMemberThatCannotBeFrozenNow) {
  Ring ring;
  ring.pods[1].container_statuses[0].running = false;
  for (size_t i : {0, 1}) {
    const Step step = Next(ring.Of(i), At(1));
    EXPECT_NE(PhaseOf(step), "Assigned") << i;
    EXPECT_EQ(ReasonOf(step), "Waiting") << i;
  }
  World w = Ring().Of(0);
  w.cut[1].other = Share(InPhase(Phase::kDumping, "ring-b", "uid-b"));
  EXPECT_EQ(ReasonOf(Next(w, At(1))), "Waiting");
}

TEST(Group, NoCutIsOpenedWhileAMemberIsBeingReplaced) {
  Ring ring;
  ring.cps[0].spec.cut = {};
  World w = ring.Of(0);
  w.leaving = "ring-b";
  Step step = Next(w, At(600));
  EXPECT_EQ(step.action, Action::kPatchStatus);
  EXPECT_EQ(ReasonOf(step), "Deadline") << "not for ever";
  step = Next(w, At(60));
  EXPECT_EQ(ReasonOf(step), "Waiting");
  EXPECT_NE(MessageOf(step).find("ring-b"), std::string::npos);
  // Gone, and the one in its place has not been created yet.
  w.leaving = "";
  w.mates.pop_back();
  w.mates_before = 2;
  EXPECT_EQ(ReasonOf(Next(w, At(1))), "Waiting");
  EXPECT_EQ(Next(w, At(5)).action, Action::kPrepare) << "the group has become smaller";
}

TEST(Group, WhatCannotBeAMemberIsRefusedByNameBeforeACutIsOpened) {
  Ring ring;
  ring.cps[0].spec.cut = {};
  ring.pods[1].runtime_class = "";
  Step step = Next(ring.Of(0), At(1));
  EXPECT_EQ(ReasonOf(step), "Unsupported");
  EXPECT_NE(MessageOf(step).find("ring-b"), std::string::npos);
  World named = ring.Of(0);
  named.group = "Not A Name";
  EXPECT_EQ(ReasonOf(Next(named, At(1))), "Unsupported");
  World many = Ring().Of(0);
  api::Checkpoint c = *many.checkpoint;
  c.spec.cut = {};
  many.checkpoint = Share(c);
  many.mates.resize(group::kMaxMembers + 1, many.mates[0]);
  EXPECT_EQ(ReasonOf(Next(many, At(1))), "Unsupported");
}

TEST(Group, ACutThatAUserWroteIsNotBelieved) {
  Ring ring;
  ring.cut.members[0].pod_uid = "another";
  EXPECT_EQ(ReasonOf(Next(ring.Of(0), At(1))), "Unsupported");
  World stranger = Ring().Of(0);
  stranger.group = "other";
  EXPECT_EQ(ReasonOf(Next(stranger, At(1))), "Unsupported");
}

TEST(Group, TheWordComesWhenAllAreFrozenAndNotBefore) {
  Ring ring(Phase::kAssigned);
  ring.Frozen(0, 1);
  EXPECT_EQ(WordOf(Next(ring.Of(0), At(2))), "");
  ring.Frozen(1, 2);
  for (size_t i : {0, 1}) EXPECT_EQ(WordOf(Next(ring.Of(i), At(3))), FormatTime(At(3))) << i;
  ring.cps[0].status.all_frozen_at = FormatTime(At(3));
  EXPECT_EQ(Next(ring.Of(0), At(4)).action, Action::kNothing) << "once";
  EXPECT_EQ(WordOf(Next(ring.Of(1), At(4))), FormatTime(At(4))) << "a leader that comes next says it to the rest";
}

TEST(Group, NobodyGoesOnBeforeAllAreDumped) {
  Ring ring(Phase::kDumping);
  ring.Dumping(0, FormatTime(At(3)));
  ring.Dumping(1, "");
  for (size_t i : {0, 1}) EXPECT_EQ(Next(ring.Of(i), At(4)).action, Action::kNothing) << i << ": B's sockets may still be read";
  ring.Dumping(1, FormatTime(At(5)));
  for (size_t i : {0, 1}) EXPECT_EQ(LastWordOf(Next(ring.Of(i), At(6))), FormatTime(At(6))) << i;
  ring.cps[0].status.all_dumped_at = FormatTime(At(6));
  EXPECT_EQ(Next(ring.Of(0), At(7)).action, Action::kNothing) << "once";
  ring.cps[0].status.phase = Phase::kReady;
  EXPECT_EQ(LastWordOf(Next(ring.Of(1), At(7))), FormatTime(At(7))) << "a leader that comes next says it to the rest";
}

TEST(Group, AnAgentOfAnEarlierReleaseSaysByStoringThatItsPodIsDumped) {
  Ring ring(Phase::kDumping);
  ring.Dumping(0, FormatTime(At(3)));
  ring.Dumping(1, "");
  ring.cps[1].status.phase = Phase::kStoring;
  EXPECT_EQ(LastWordOf(Next(ring.Of(0), At(4))), FormatTime(At(4)));
  EXPECT_EQ(Next(ring.Of(1), At(4)).action, Action::kNothing) << "it has gone on already";
}

TEST(Group, AMemberThatIsNotDumpedInTimeIsTheCulpritAndHoldsNobodyLonger) {
  Ring ring(Phase::kDumping);
  ring.Dumping(0, FormatTime(At(3)));
  ring.Dumping(1, "");
  EXPECT_EQ(PhaseOf(Next(ring.Of(0), At(47))), "");
  EXPECT_EQ(ReasonOf(Next(ring.Of(1), At(48))), "Deadline");
  EXPECT_EQ(ReasonOf(Next(ring.Of(0), At(48))), "GroupMemberFailed");
  EXPECT_NE(MessageOf(Next(ring.Of(0), At(48))).find("member ring-b of group ring: Deadline: it was not dumped within 45s"),
            std::string::npos)
      << MessageOf(Next(ring.Of(0), At(48)));
}

TEST(Group, AMemberThatFailsWhileAnotherIsDumpedThawsThatOne) {
  Ring ring(Phase::kDumping);
  ring.Dumping(0, FormatTime(At(3)));
  ring.Failed(1, "DumpFailed", "CRIU: io_uring");
  EXPECT_EQ(ReasonOf(Next(ring.Of(0), At(4))), "GroupMemberFailed");
}

TEST(Group, AMemberThatFailsFailsAllWithItsNameAndReason) {
  for (const Phase phase : {Phase::kPending, Phase::kAssigned, Phase::kFreezing, Phase::kDumping, Phase::kStoring, Phase::kReady}) {
    Ring ring(phase);
    ring.Failed(1, "DumpFailed", "CRIU: io_uring");
    const Step step = Next(ring.Of(0), At(5));
    ASSERT_EQ(PhaseOf(step), "Failed") << api::PhaseName(phase);
    EXPECT_EQ(ReasonOf(step), "GroupMemberFailed");
    EXPECT_NE(MessageOf(step).find("member ring-b of group ring: DumpFailed: CRIU: io_uring"), std::string::npos) << MessageOf(step);
  }
}

TEST(Group, TheOneThatFailedFirstIsNamedNotOneThatFailedForIt) {
  Ring ring(Phase::kAssigned);
  ring.cps.push_back(ring.cps[0]);
  ring.pods.push_back(MemberPod("c"));
  ring.there.push_back(true);
  ring.pod_there.push_back(true);
  ring.cut.members.push_back({"ring-c", "uid-c", "manual-c"});
  ring.Failed(1, "GroupMemberFailed", "member ring-c of group ring: StoreFull: full");
  ring.Failed(2, "StoreFull", "full");
  EXPECT_NE(MessageOf(Next(ring.Of(0), At(5))).find("member ring-c of group ring: StoreFull: full"), std::string::npos);
}

TEST(Group, AMemberThatIsNotFrozenInTimeIsTheCulprit) {
  Ring ring(Phase::kAssigned);
  ring.Frozen(0, 1);
  EXPECT_EQ(PhaseOf(Next(ring.Of(1), At(20))), "");
  const Step late = Next(ring.Of(1), At(21));
  EXPECT_EQ(ReasonOf(late), "Deadline");
  EXPECT_NE(MessageOf(Next(ring.Of(0), At(21))).find("ring-b"), std::string::npos);
}

TEST(Group, APodThatLeavesBeforeTheWordFailsTheCutAndAfterItDoesNot) {
  for (const bool gone : {false, true}) {
    Ring ring(Phase::kAssigned);
    ring.Frozen(0, 1);
    ring.Frozen(1, 1);
    if (gone) ring.pod_there[1] = false;
    ring.pods[1].meta.deletion_timestamp = FormatTime(At(2));
    EXPECT_EQ(ReasonOf(Next(ring.Of(1), At(3))), "PodGone");
    EXPECT_EQ(ReasonOf(Next(ring.Of(0), At(3))), "GroupMemberFailed");
    for (api::Checkpoint& c : ring.cps) c.status.all_frozen_at = FormatTime(At(2));
    EXPECT_EQ(Next(ring.Of(0), At(3)).action, Action::kNothing);
  }
}

TEST(Group, ACheckpointThatIsDeletedMeanwhileFailsTheOthers) {
  Ring ring(Phase::kFreezing);
  ring.there[1] = false;
  EXPECT_EQ(ReasonOf(Next(ring.Of(0), At(3))), "GroupMemberFailed");
  ring.there[1] = true;
  ring.cps[1].meta.deletion_timestamp = FormatTime(At(2));
  EXPECT_EQ(ReasonOf(Next(ring.Of(0), At(3))), "GroupMemberFailed");
}

TEST(Group, AReadyOneOutlivesTheDeletionOfAnotherAndWhatWasClaimedIsNotTakenBack) {
  Ring ring(Phase::kReady);
  ring.there[1] = false;
  EXPECT_EQ(Next(ring.Of(0), At(3)).action, Action::kNothing) << "it is not good any more, but it is not for us to say so for ever";
  ring.there[1] = true;
  ring.Failed(1, "StoreFull", "full");
  ring.cps[0].status.claim = api::Claim{"next", "uid-next", FormatTime(At(1))};
  EXPECT_EQ(Next(ring.Of(0), At(3)).action, Action::kNothing);
}

}  // namespace
}  // namespace holdfast::reconcilers::checkpoint

namespace holdfast::reconcilers::group {
namespace {

using api::Phase;
using namespace reconcilers::testing;  // NOLINT(google-build-using-namespace)

api::Checkpoint Taken(const std::string& letter, const std::string& cut) {
  api::Checkpoint c = InPhase(Phase::kReady, "ring-" + letter, "uid-" + letter);
  c.meta.name = c.meta.uid = cut + "-" + letter;
  c.spec.final = false;
  c.spec.trigger = api::Trigger::kInterval;
  c.spec.cut = {"ring", cut, {{"ring-a", "uid-a", cut + "-a"}, {"ring-b", "uid-b", cut + "-b"}}};
  return c;
}

kube::Pod Successor(const std::string& name, bool gated) {
  kube::Pod pod = WebPod(name, "uid-" + name);
  pod.meta.annotations = {{api::kMemberOf, "ring"}};
  if (gated) pod.scheduling_gates = {api::kClaimGate};
  return pod;
}

TEST(Cut, IsWholeWhenEachMemberHasAGoodCheckpointOfIt) {
  FakeView view;
  view.checkpoints = {Share(Taken("a", "k")), Share(Taken("b", "k"))};
  EXPECT_EQ(WholenessOf(view, *view.checkpoints[0]).why, "");
  struct {
    const char* what;
    void (*change)(api::Checkpoint*);
  } const kCases[] = {
      {"not done", [](api::Checkpoint* c) { c->status.phase = Phase::kStoring; }},
      {"failed", [](api::Checkpoint* c) { c->status.phase = Phase::kFailed; }},
      {"being deleted", [](api::Checkpoint* c) { c->meta.deletion_timestamp = FormatTime(At(1)); }},
      {"of another cut under its name", [](api::Checkpoint* c) { c->spec.cut.id = "other"; }},
      {"gone", [](api::Checkpoint* c) { c->meta.name = "elsewhere"; }},
      {"damaged",
       [](api::Checkpoint* c) {
         c->status.conditions.push_back({api::kDamaged, "True", "Unreadable", "", "", 1});
       }},
  };
  for (const auto& a : kCases) {
    api::Checkpoint b = Taken("b", "k");
    a.change(&b);
    view.checkpoints[1] = Share(b);
    EXPECT_NE(WholenessOf(view, *view.checkpoints[0]).why.find("ring-b"), std::string::npos) << a.what;
  }
}

TEST(Cut, IsBeyondReachWhileAMemberRunsFromElsewhere) {
  FakeView view;
  view.checkpoints = {Share(Taken("a", "k")), Share(Taken("b", "k"))};
  const api::Checkpoint& mine = *view.checkpoints[1];
  const kube::Pod pod = Successor("ring-b2", true);
  view.pods = {Share(pod)};
  EXPECT_EQ(GoneBeyond(view, mine, pod), "") << "nobody else runs";
  view.pods.push_back(Share(Successor("ring-a2", true)));
  EXPECT_EQ(GoneBeyond(view, mine, pod), "") << "the other one waits as well";
  view.pods[1] = Share(Successor("ring-a2", false));
  EXPECT_EQ(GoneBeyond(view, mine, pod), "ring-a2") << "it started cold, or never stopped";
  api::Checkpoint theirs = Taken("a", "k");
  theirs.status.claim = api::Claim{"ring-a2", "uid-ring-a2", ""};
  view.checkpoints[0] = Share(theirs);
  EXPECT_EQ(GoneBeyond(view, mine, pod), "") << "it goes on from the same cut";
  theirs.spec.cut.id = "earlier";
  view.checkpoints[0] = Share(theirs);
  EXPECT_EQ(GoneBeyond(view, mine, pod), "ring-a2") << "it goes on from another one";
  view.pods[1] = Share(Successor("ring-a2", true));
  EXPECT_EQ(GoneBeyond(view, mine, pod), "ring-a2") << "and will, once it is let through";
  kube::Pod ending = Successor("ring-a2", false);
  ending.meta.deletion_timestamp = FormatTime(At(1));
  view.pods[1] = Share(ending);
  EXPECT_EQ(GoneBeyond(view, mine, pod), "") << "what it did is lost anyway";
}

TEST(Cut, IsNotGoneBackToWhileAnyMemberMayStillRun) {
  FakeView view;
  view.checkpoints = {Share(Taken("a", "k")), Share(Taken("b", "k"))};
  view.nodes = {Share(ReadyNode("node-a"))};
  const api::Checkpoint& mine = *view.checkpoints[1];
  const kube::Pod pod = Successor("ring-b2", true);
  kube::Pod ending = Successor("ring-a", false);
  ending.meta.uid = "uid-a";
  ending.meta.deletion_timestamp = FormatTime(At(1));
  ending.node_name = "node-a";
  view.pods = {Share(pod), Share(ending)};
  EXPECT_EQ(GoneBeyond(view, mine, pod), "") << "what it did is lost";
  ASSERT_TRUE(EndingBeside(view, mine, pod)) << "but it does it until its end, and would speak to what is restored";
  EXPECT_EQ(EndingBeside(view, mine, pod)->pod, "ring-a");
  EXPECT_FALSE(EndingBeside(view, mine, pod)->gone);
  ending.phase = "Succeeded";
  view.pods[1] = Share(ending);
  EXPECT_FALSE(EndingBeside(view, mine, pod));
  view.pods.pop_back();
  api::Checkpoint theirs = Taken("a", "k");
  theirs.status.node_name = "node-a";
  view.checkpoints[0] = Share(theirs);
  ASSERT_TRUE(EndingBeside(view, mine, pod)) << "it is gone, and its node has not said that it has ended";
  EXPECT_TRUE(EndingBeside(view, mine, pod)->gone);
  theirs.status.claim = api::Claim{"ring-a2", "uid-ring-a2", ""};
  view.checkpoints[0] = Share(theirs);
  EXPECT_FALSE(EndingBeside(view, mine, pod)) << "who claimed it knew";
  theirs.status.claim.reset();
  theirs.status.conditions.push_back({api::kPodEnded, "True", "NothingLeft", "", FormatTime(At(1)), 1});
  view.checkpoints[0] = Share(theirs);
  EXPECT_FALSE(EndingBeside(view, mine, pod));
  EXPECT_FALSE(EndingBeside(view, WebDrain(), pod)) << "of no cut";
}

TEST(Cut, IsBeyondReachForTheOthersOfAMemberThatWasDrainedMeanwhile) {
  FakeView view;
  view.checkpoints = {Share(Taken("a", "k")), Share(Taken("b", "k")), Share(InPhase(Phase::kReady, "ring-a", "uid-a"))};
  const kube::Pod pod = Successor("ring-b2", true);
  view.pods = {Share(pod)};
  EXPECT_EQ(GoneBeyond(view, *view.checkpoints[1], pod), "ring-a");
}

TEST(Cut, WhoIsBeingReplacedAndHowManyThereWereIsKnown) {
  FakeView view;
  kube::Pod b = Successor("ring-b2", false);
  view.pods = {Share(Successor("ring-a2", false)), Share(b)};
  EXPECT_EQ(LeavingOf(view, b.meta.ns, "ring"), "");
  b.meta.deletion_timestamp = FormatTime(At(1));
  view.pods[1] = Share(b);
  EXPECT_EQ(LeavingOf(view, b.meta.ns, "ring"), "ring-b2");
  b.phase = "Succeeded";
  view.pods[1] = Share(b);
  EXPECT_EQ(LeavingOf(view, b.meta.ns, "ring"), "") << "it has ended, and only its object is left";
  kube::Pod a = Successor("ring-a", false);
  a.meta.uid = "uid-a";
  EXPECT_TRUE(LastCutOf(view, a).none());
  api::Checkpoint failed = Taken("a", "later");
  failed.status.phase = Phase::kFailed;
  view.checkpoints = {Share(Taken("a", "k")), Share(failed)};
  EXPECT_EQ(LastCutOf(view, a).id, "k");
  EXPECT_EQ(LastCutOf(view, a).members.size(), 2u);
}

}  // namespace
}  // namespace holdfast::reconcilers::group
