#include <gtest/gtest.h>

#include "reconcilers/drain/admission.h"
#include "reconcilers/drain/eviction_answer.h"
#include "reconcilers/drain/step.h"
#include "tests/unit/reconcilers/world.h"

namespace holdfast::reconcilers::drain {
namespace {

using api::Phase;
using namespace reconcilers::testing;  // NOLINT(google-build-using-namespace)

EvictionWorld Asked() {
  EvictionWorld w;
  w.ns = "default";
  w.name = "web-a";
  w.pod = Share(WebPod());
  w.node = Share(ReadyNode());
  w.protection.on = true;
  w.protection.policy = Share(api::RestorePolicy());
  return w;
}

EvictionAnswer Answer(const api::Checkpoint& c, int seconds) {
  EvictionWorld w = Asked();
  w.checkpoints = {Share(c)};
  return AnswerEviction(w, At(seconds));
}

TEST(Drain, TheFirstRequestMakesACheckpointAndIsHeldBack) {
  const EvictionAnswer answer = AnswerEviction(Asked(), At(0));
  EXPECT_FALSE(answer.allow);
  EXPECT_TRUE(answer.create);
  EXPECT_EQ(answer.ordinal, 0);
  EXPECT_EQ(answer.message, "holdfast: checkpointing default/web-a (asked for)");
}

// Its state would be nobody's: what it is restored from is used, and its processes run for a moment at most.
TEST(Drain, APodThatIsBeingRestoredIsNotLetGo) {
  EvictionWorld w = Asked();
  kube::Pod pod = WebPod();
  pod.phase = "Pending";
  w.pod = Share(pod);
  api::Checkpoint from = InPhase(Phase::kReady, "web-0", "uid-old");
  auto allowed = [&](int seconds) {
    w.restored_from = Share(from);
    const EvictionAnswer answer = AnswerEviction(w, At(seconds));
    EXPECT_FALSE(answer.create) << "it is made when the pod runs";
    return answer.allow;
  };
  EXPECT_TRUE(allowed(20)) << "nobody has claimed it";
  from.status.claim = api::Claim{"web-a", "uid-a", FormatTime(At(12))};
  EXPECT_TRUE(allowed(20)) << "its restore has not begun: the next one shall have it";
  from.status.restores = {{"web-a", "node-b", FormatTime(At(15)), "Started", "", 0, false, "uid-a"}};
  EXPECT_FALSE(allowed(20));
  EXPECT_FALSE(allowed(15 + 299));
  EXPECT_TRUE(allowed(15 + 301)) << "whoever drains is not held by a node that says nothing";
  from.status.claim->pod_uid = "uid-b";
  EXPECT_TRUE(allowed(20)) << "another pod's";
  from.status.claim->pod_uid = "uid-a";
  from.status.restores.push_back({"web-a", "node-b", FormatTime(At(17)), "Failed", "", 0, false, "uid-a"});
  EXPECT_TRUE(allowed(20)) << "nothing of it ran";
  w.restored_from = nullptr;
  EXPECT_TRUE(AnswerEviction(w, At(20)).allow);
}

// kubectl repeats its request by name until it hears of success or that the pod is gone.
TEST(Drain, ARepeatedRequestDoesNotEvictThePodOfTheSameNameThatTookItsPlace) {
  EvictionWorld w = Asked();
  w.predecessors = {Share(InPhase(Phase::kReady, "web-a", "uid-old"))};  // durable at 10 s
  for (const char* phase : {"Pending", "Running"}) {
    kube::Pod pod = WebPod();
    pod.phase = phase;
    w.pod = Share(pod);
    const EvictionAnswer answer = AnswerEviction(w, At(15));
    EXPECT_FALSE(answer.allow) << phase;
    EXPECT_TRUE(answer.gone) << phase;
    EXPECT_FALSE(answer.create) << phase;
  }
  EXPECT_FALSE(AnswerEviction(w, At(10 + 60)).gone) << "a minute later it is a request of its own";
  w.asked_uid = "uid-a";
  EXPECT_FALSE(AnswerEviction(w, At(15)).gone) << "this very pod is meant";
  w.asked_uid.clear();
  kube::Node drained = ReadyNode();
  drained.unschedulable = true;
  w.node = Share(drained);
  EXPECT_FALSE(AnswerEviction(w, At(15)).gone) << "its own node is being drained";
}

TEST(Drain, ShowsHowFarItIs) {
  api::Checkpoint c = InPhase(Phase::kStoring);
  c.status.progress_total = 2254857830;  // 2.1 GiB
  c.status.progress_bytes = c.status.progress_total * 2 / 5;
  const EvictionAnswer answer = Answer(c, 5);
  EXPECT_FALSE(answer.allow);
  EXPECT_FALSE(answer.create);
  EXPECT_EQ(answer.message, "holdfast: checkpointing default/web-a (2.1 GiB, 40 %)");
  EXPECT_EQ(Answer(InPhase(Phase::kFreezing), 1).message, "holdfast: checkpointing default/web-a (freezing)");
  EXPECT_NE(Answer(InPhase(Phase::kReady), 11).message.find("evicting"), std::string::npos);
}

TEST(Drain, LetsGoAfterTheDeadline) {
  EXPECT_FALSE(Answer(InPhase(Phase::kDumping), 114).allow) << "the agent has the first word at its deadline";
  const EvictionAnswer answer = Answer(InPhase(Phase::kDumping), 115);
  EXPECT_TRUE(answer.allow);
  ASSERT_TRUE(answer.notice);
  EXPECT_TRUE(answer.notice->warning);
  EXPECT_NE(answer.notice->note.find("evicted without its state"), std::string::npos);
}

TEST(Drain, OneInTheQueueOfItsNodeIsHeldWhileTheStoreIsThere) {
  api::Checkpoint c = InPhase(Phase::kPending);
  EXPECT_TRUE(Answer(c, 115).allow);
  c.status.conditions[0].reason = api::reason::kQueued;
  EXPECT_FALSE(Answer(c, 115).allow);
  EXPECT_FALSE(Answer(c, 3614).allow);
  EXPECT_TRUE(Answer(c, 3615).allow) << "nobody waits for ever";
  EvictionWorld w = Asked();
  w.checkpoints = {Share(c)};
  w.store_down = true;
  EXPECT_FALSE(AnswerEviction(w, At(114)).allow);
  EXPECT_TRUE(AnswerEviction(w, At(115)).allow);
}

TEST(Drain, LetsGoWithTheReasonWhenItsCheckpointFailed) {
  api::Checkpoint c = InPhase(Phase::kFailed);
  c.status.conditions[0].message = "the store is full (80 GiB of 80 GiB)";
  const EvictionAnswer answer = Answer(c, 20);
  EXPECT_TRUE(answer.allow);
  EXPECT_EQ(answer.notice->note, "evicted without its state: the store is full (80 GiB of 80 GiB)");
}

TEST(Drain, ALaterDrainGetsAnAttemptOfItsOwn) {
  const EvictionAnswer answer = Answer(InPhase(Phase::kFailed), 10 + 600);
  EXPECT_FALSE(answer.allow);
  EXPECT_TRUE(answer.create);
  EXPECT_EQ(answer.ordinal, 1);
}

TEST(Drain, AfterAReclaimThePodRunsOnAndTheNextAttemptComesLater) {
  api::Checkpoint c = InPhase(Phase::kReady);
  c.status.claim = api::Claim{"web-a", "uid-a", FormatTime(At(40))};
  EvictionAnswer answer = Answer(c, 50);
  EXPECT_FALSE(answer.allow);
  EXPECT_FALSE(answer.create);
  answer = Answer(c, 100);
  EXPECT_TRUE(answer.create);
  EXPECT_EQ(answer.ordinal, 1);
}

TEST(Drain, AFrozenPodThatNobodyEvictsIsLetGoInTheEnd) { EXPECT_TRUE(Answer(InPhase(Phase::kReady), 10 + 60).allow); }

struct Passing {
  const char* what;
  void (*change)(EvictionWorld*, kube::Pod*);
  const char* notice;  // part of the event's note; empty: no event
};

const Passing kPassing[] = {
    {"unknown pod", [](EvictionWorld*, kube::Pod* p) { p->meta.name = "none"; }, ""},
    {"unprotected", [](EvictionWorld* w, kube::Pod*) { w->protection.on = false; }, ""},
    {"pending", [](EvictionWorld*, kube::Pod* p) { p->phase = "Pending"; }, ""},
    {"ended", [](EvictionWorld*, kube::Pod* p) { p->phase = "Succeeded"; }, ""},
    {"terminating", [](EvictionWorld*, kube::Pod* p) { p->meta.deletion_timestamp = "2026-06-01T12:00:00Z"; }, ""},
    {"another uid asked for", [](EvictionWorld* w, kube::Pod*) { w->asked_uid = "uid-z"; }, ""},
    {"policy without drain",
     [](EvictionWorld* w, kube::Pod*) {
       api::RestorePolicy policy;
       policy.spec.triggers.drain = false;
       w->protection.policy = Share(policy);
     },
     ""},
    {"plain runc", [](EvictionWorld*, kube::Pod* p) { p->runtime_class = ""; }, "restart it to protect it"},
    {"node without agent", [](EvictionWorld* w, kube::Pod*) { w->node = nullptr; }, "node-a"},
    {"store down", [](EvictionWorld* w, kube::Pod*) { w->store_down = true; }, "store does not answer"},
    {"user namespace", [](EvictionWorld*, kube::Pod* p) { p->host_users = false; }, "hostUsers"},
    {"malformed annotation",
     [](EvictionWorld* w, kube::Pod*) {
       w->protection.on = false;
       w->protection.problem = "the pod has holdfast.dev/protect: \"maybe\"";
     },
     "maybe"},
};

TEST(Drain, WhatCannotBeKeptPassesAtOnceAndSaysWhyWhereItWasWanted) {
  for (const Passing& c : kPassing) {
    SCOPED_TRACE(c.what);
    EvictionWorld w = Asked();
    kube::Pod pod = *w.pod;
    c.change(&w, &pod);
    w.pod = pod.meta.name == "none" ? nullptr : Share(pod);
    const EvictionAnswer answer = AnswerEviction(w, At(0));
    EXPECT_TRUE(answer.allow);
    EXPECT_FALSE(answer.create);
    EXPECT_EQ(answer.notice.has_value(), *c.notice != '\0');
    if (answer.notice) {
      EXPECT_NE(answer.notice->note.find(c.notice), std::string::npos) << answer.notice->note;
    }
  }
}

TEST(Drain, EvictsWhatIsDurableAndNothingElse) {
  for (Phase phase :
       {Phase::kPending, Phase::kAssigned, Phase::kFreezing, Phase::kDumping, Phase::kStoring, Phase::kReady, Phase::kFailed}) {
    const Step step = Next({Share(InPhase(phase)), Share(WebPod()), {}}, At(20));
    EXPECT_EQ(step.action == Action::kEvict, phase == Phase::kReady) << api::PhaseName(phase);
  }
  api::Checkpoint manual = InPhase(Phase::kReady);
  manual.spec.trigger = api::Trigger::kManual;
  EXPECT_EQ(Next({Share(manual), Share(WebPod()), {}}, At(20)).action, Action::kNothing);
  api::Checkpoint not_final = InPhase(Phase::kReady);
  not_final.spec.final = false;
  EXPECT_EQ(Next({Share(not_final), Share(WebPod()), {}}, At(20)).action, Action::kNothing);
  EXPECT_EQ(Next({Share(InPhase(Phase::kReady)), nullptr, {}}, At(20)).action, Action::kNothing);
}

TEST(Drain, TakesThePodBackWhenItsEvictionIsRefusedForTooLong) {
  const Status refused(Code::kResourceExhausted, "Cannot evict pod as it would violate the pod's disruption budget.");
  Step step = Next({Share(InPhase(Phase::kReady)), Share(WebPod()), refused}, At(39));
  EXPECT_EQ(step.action, Action::kNothing);
  EXPECT_EQ(*step.again, kEvictRetry);
  step = Next({Share(InPhase(Phase::kReady)), Share(WebPod()), refused}, At(40));
  EXPECT_EQ(step.action, Action::kReclaim);
  EXPECT_TRUE(step.notice);
}

TEST(Drain, NeverTakesBackWhatASuccessorHasClaimed) {
  api::Checkpoint c = InPhase(Phase::kReady);
  c.status.claim = api::Claim{"web-b", "uid-b", FormatTime(At(12))};
  const Step step = Next({Share(c), Share(WebPod()), Status(Code::kResourceExhausted, "budget")}, At(1000));
  EXPECT_EQ(step.action, Action::kNothing);
  EXPECT_TRUE(step.again);
}

TEST(Drain, APodThatIsGoneOrReplacedNeedsNoEviction) {
  for (Code code : {Code::kNotFound, Code::kConflict, Code::kOk}) {
    const Step step = Next({Share(InPhase(Phase::kReady)), Share(WebPod()), Status(code, "")}, At(1000));
    EXPECT_EQ(step.action, Action::kNothing);
    EXPECT_FALSE(step.again);
  }
}

constexpr int64_t kSmall = int64_t{10} << 20;  // so that all fit beside each other on a node of which nothing is known

Seat SeatOf(const std::string& name, Phase phase = Phase::kPending, int priority = 0) {
  kube::Pod pod = WebPod(name, "uid-" + name);
  pod.priority = priority;
  return {Share(InPhase(phase, name, "uid-" + name)), Share(pod), kSmall};
}

PdbPtr Budget(int64_t allowed) {
  PodDisruptionBudget budget;
  budget.meta.ns = "default";
  budget.meta.name = "web";
  const Json selector = {{"matchLabels", {{"app", "web"}}}};
  budget.selector = api::LabelSelector::FromJson(&selector);
  budget.disruptions_allowed = allowed;
  return Share(budget);
}

TEST(DrainAdmission, TakesOneSlotOfTheBudgetEach) {
  Traffic traffic;
  traffic.budgets = {Budget(1)};
  EXPECT_TRUE(Admit(SeatOf("a"), traffic).granted);
  traffic.granted = {SeatOf("b", Phase::kDumping)};
  const checkpoint::Admission full = Admit(SeatOf("a"), traffic);
  EXPECT_FALSE(full.granted);
  EXPECT_TRUE(full.budget);
  EXPECT_EQ(full.waits_for, "PodDisruptionBudget default/web allows no disruption now");
  traffic.budgets = {Budget(2)};
  EXPECT_TRUE(Admit(SeatOf("a"), traffic).granted);
}

TEST(DrainAdmission, ABudgetOfOtherPodsDoesNotMatter) {
  PodDisruptionBudget other = *Budget(0);
  const Json selector = {{"matchLabels", {{"app", "db"}}}};
  other.selector = api::LabelSelector::FromJson(&selector);
  Traffic traffic;
  traffic.budgets = {Share(other)};
  EXPECT_TRUE(Admit(SeatOf("a"), traffic).granted);
}

TEST(DrainAdmission, LimitsEachNodeAndServesPriorityFirst) {
  Traffic traffic;
  traffic.max_per_node = 2;
  traffic.granted = {SeatOf("x", Phase::kDumping)};
  traffic.waiting = {SeatOf("low", Phase::kPending, 1), SeatOf("high", Phase::kPending, 9)};
  EXPECT_TRUE(Admit(SeatOf("high", Phase::kPending, 9), traffic).granted);
  EXPECT_FALSE(Admit(SeatOf("low", Phase::kPending, 1), traffic).granted);
  traffic.granted.push_back(SeatOf("y", Phase::kReady));
  EXPECT_FALSE(Admit(SeatOf("high", Phase::kPending, 9), traffic).granted) << "a frozen pod that is still there takes its place";
}

TEST(DrainAdmission, AQueueIsOneOnlyWhileThoseBeforeGetOn) {
  Traffic traffic;
  traffic.max_per_node = 2;
  traffic.granted = {SeatOf("x", Phase::kDumping), SeatOf("y", Phase::kDumping)};
  traffic.now = At(114);
  EXPECT_TRUE(Admit(SeatOf("a"), traffic).queued);
  traffic.now = At(115);
  EXPECT_FALSE(Admit(SeatOf("a"), traffic).queued) << "their agent should have ended them by now";
  traffic.granted[0] = SeatOf("x", Phase::kReady);
  EXPECT_TRUE(Admit(SeatOf("a"), traffic).queued) << "one of them is being evicted";
}

TEST(DrainAdmission, OnesThatABudgetHoldsDoNotHoldOthers) {
  Seat held = SeatOf("held", Phase::kPending, 9);
  kube::Pod other = WebPod("other", "uid-other");
  other.meta.labels = {{"app", "db"}};
  Traffic traffic;
  traffic.max_per_node = 1;
  traffic.budgets = {Budget(0)};
  traffic.waiting = {held};
  EXPECT_TRUE(Admit({Share(InPhase(Phase::kPending, "other", "uid-other")), Share(other)}, traffic).granted);
}

Seat SeatIn(const std::string& ns, const std::string& name, Phase phase = Phase::kPending, int priority = 0) {
  Seat seat = SeatOf(name, phase, priority);
  kube::Pod pod = *seat.pod;
  api::Checkpoint checkpoint = *seat.checkpoint;
  pod.meta.ns = checkpoint.meta.ns = ns;
  return {Share(checkpoint), Share(pod), kSmall};
}

// Hole 11: a tenant with many pods, or slow ones and long deadlines, does not keep a node's drain from all others.
TEST(DrainAdmission, ANamespaceThatHasAllButOnePlaceLeavesItToOthersThatWait) {
  Traffic traffic;
  traffic.max_per_node = 4;
  for (const char* name : {"x", "y", "z"}) traffic.granted.push_back(SeatIn("hog", name, Phase::kDumping));
  const Seat next = SeatIn("hog", "next", Phase::kPending, 9), other = SeatIn("other", "late");
  traffic.waiting = {next};
  EXPECT_TRUE(Admit(next, traffic).granted) << "nobody else waits";
  traffic.waiting = {next, other};
  const checkpoint::Admission held = Admit(next, traffic);
  EXPECT_FALSE(held.granted);
  EXPECT_TRUE(held.queued);
  EXPECT_NE(held.waits_for.find("namespace hog has all but one of the 4"), std::string::npos) << held.waits_for;
  EXPECT_TRUE(Admit(other, traffic).granted) << "though the other is before it by priority";
  traffic.granted.push_back(SeatIn("other", "early", Phase::kDumping));
  EXPECT_FALSE(Admit(other, traffic).granted) << "there is no place";
  kube::Pod elsewhere = *other.pod;
  elsewhere.node_name = "node-b";
  traffic.granted.pop_back();
  traffic.waiting = {next, {other.checkpoint, Share(elsewhere), kSmall}};
  EXPECT_TRUE(Admit(next, traffic).granted) << "it does not wait on this node";
}

TEST(DrainAdmission, WhereANodeHasOnePlaceItIsForWhoeverIsFirst) {
  Traffic traffic;
  traffic.max_per_node = 1;
  const Seat first = SeatIn("one", "a", Phase::kPending, 1), second = SeatIn("two", "b");
  traffic.waiting = {first, second};
  EXPECT_TRUE(Admit(first, traffic).granted);
  EXPECT_FALSE(Admit(second, traffic).granted);
}

}  // namespace
}  // namespace holdfast::reconcilers::drain
