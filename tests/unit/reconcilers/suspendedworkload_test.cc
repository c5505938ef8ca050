#include <gtest/gtest.h>

#include "reconcilers/suspendedworkload/step.h"
#include "tests/unit/reconcilers/world.h"

namespace holdfast::reconcilers::suspendedworkload {
namespace {

using api::Phase;
using api::SuspendPhase;
using namespace reconcilers::testing;  // NOLINT(google-build-using-namespace)

constexpr char kName[] = "suspend-web-a-uid-a";

api::SuspendedWorkload Object(bool suspended = true) { return SleeperOfWeb(suspended); }

kube::Workload Sleeping(int64_t replicas = 1) {
  kube::Workload web = Web(0);
  web.meta.annotations = {{api::kAsleep, api::Asleep{"nb", replicas, FormatTime(At(20))}.ToAnnotation()}};
  return web;
}

Member MemberOf(const std::string& name = "web-a", const std::string& uid = "uid-a") {
  return {Share(WebPod(name, uid)), WebOwner(), Share(ReadyNode()), {}};
}

// Of the pod web-a, as the attempt makes it.
api::Checkpoint Kept(Phase phase) {
  api::Checkpoint c = InPhase(phase);
  c.meta.name = kName;
  c.spec.trigger = api::Trigger::kSuspend;
  return c;
}

World Awake(api::SuspendedWorkload object = Object()) {
  World w;
  w.object = Share(std::move(object));
  w.target = Share(Web());
  w.protection = {true, Share(api::RestorePolicy()), ""};
  w.members = {MemberOf()};
  return w;
}

// An attempt that began at kStart, with the checkpoint in this phase; kDeleting: there is none yet.
World Suspending(Phase phase, bool durable = false, api::SuspendedWorkload object = Object()) {
  object.status.phase = SuspendPhase::kSuspending;
  object.status.checkpoints = {{"web-a", "uid-a", "", kName}};
  object.status.attempt.started_at = FormatTime(kStart);
  object.status.replicas = 1;
  object.status.durable = durable;
  World w = Awake(std::move(object));
  w.kept = {phase == Phase::kDeleting ? nullptr : Share(Kept(phase))};
  if (w.kept[0]) w.members[0].checkpoints = w.kept;
  return w;
}

World Asleep(bool suspended = true) {
  api::SuspendedWorkload object = Object(suspended);
  object.status.phase = SuspendPhase::kSuspended;
  object.status.checkpoints = {{"web-a", "uid-a", "", kName}};
  object.status.replicas = 1;
  object.status.durable = true;
  World w = Awake(std::move(object));
  w.target = Share(Sleeping());
  w.members.clear();
  w.kept = {Share(Kept(Phase::kReady))};
  return w;
}

void Change(World* w, const std::function<void(api::SuspendedWorkload*)>& change) {
  api::SuspendedWorkload object = *w->object;
  change(&object);
  w->object = Share(object);
}

std::string PhaseIn(const Step& step) { return GetString(step.patch, {"status", "phase"}); }
std::string ReasonIn(const Step& step) { return GetString(step.patch["status"]["conditions"].at(0), {"reason"}); }
std::string MessageIn(const Step& step) { return GetString(step.patch["status"]["conditions"].at(0), {"message"}); }

TEST(Suspension, TakesTheFinalizerBeforeAnythingElse) {
  api::SuspendedWorkload object = Object();
  object.meta.finalizers.clear();
  EXPECT_EQ(Next(Awake(object), At(0)).action, Action::kAddFinalizer);
}

TEST(Suspension, WritesWhichCheckpointsItWillMakeBeforeItMakesAny) {
  const Step step = Next(Awake(), At(0));
  ASSERT_EQ(step.action, Action::kPatchStatus);
  EXPECT_EQ(PhaseIn(step), "Suspending");
  const Json& plan = step.patch["status"]["checkpoints"];
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(GetString(plan[0], {"checkpoint"}), kName);
  EXPECT_EQ(GetString(plan[0], {"podUID"}), "uid-a");
  EXPECT_EQ(step.patch["status"]["replicas"], 1);
  EXPECT_EQ(step.patch["status"]["durable"], false);
}

TEST(Suspension, AnEarlierAttemptsNameIsNotUsedAgain) {
  World w = Awake();
  w.members[0].checkpoints = {Share(Kept(Phase::kFailed))};
  const Step step = Next(w, At(0));
  EXPECT_EQ(GetString(step.patch["status"]["checkpoints"][0], {"checkpoint"}), std::string(kName) + "-1");
}

struct Unready {
  const char* what;
  void (*change)(World*);
  const char* reason;
};

void ChangeTarget(World* w, const std::function<void(kube::Workload*)>& change) {
  kube::Workload target = *w->target;
  change(&target);
  w->target = Share(target);
}
void ChangePod(World* w, const std::function<void(kube::Pod*)>& change) {
  kube::Pod pod = *w->members[0].pod;
  change(&pod);
  w->members[0].pod = Share(pod);
}

const Unready kUnready[] = {
    {"no workload", [](World* w) { w->target = nullptr; }, "TargetMissing"},
    {"another object came first", [](World* w) { w->rival = "other"; }, "Conflict"},
    {"no pods", [](World* w) { ChangeTarget(w, [](kube::Workload* t) { t->replicas = 0; }); }, "NothingRuns"},
    {"a pod is missing", [](World* w) { ChangeTarget(w, [](kube::Workload* t) { t->replicas = t->pods = t->updated_pods = 2; }); },
     "Waiting"},
    {"a rollout", [](World* w) { ChangeTarget(w, [](kube::Workload* t) { t->updated_pods = 0; }); }, "Waiting"},
    {"a rollout that nobody has seen yet", [](World* w) { ChangeTarget(w, [](kube::Workload* t) { t->meta.generation = 2; }); }, "Waiting"},
    {"more pods than it says", [](World* w) { w->members.push_back(MemberOf("web-b", "uid-b")); }, "Waiting"},
    {"volumes would be deleted", [](World* w) { ChangeTarget(w, [](kube::Workload* t) { t->scaling_deletes_volumes = true; }); },
     "Unsupported"},
    {"a pod starts", [](World* w) { ChangePod(w, [](kube::Pod* p) { p->phase = "Pending"; }); }, "Waiting"},
    {"a pod ends", [](World* w) { ChangePod(w, [](kube::Pod* p) { p->meta.deletion_timestamp = "2026-06-01T12:00:00Z"; }); }, "Waiting"},
    {"plain runc", [](World* w) { ChangePod(w, [](kube::Pod* p) { p->runtime_class = ""; }); }, "Unsupported"},
    {"opted out", [](World* w) { w->protection.on = false; }, "Unsupported"},
    {"a drain has it in hand", [](World* w) { w->members[0].checkpoints = {Share(InPhase(Phase::kDumping))}; }, "Waiting"},
    {"the store is down", [](World* w) { w->store_down = true; }, "StoreUnavailable"},
    {"the node is busy", [](World* w) { w->busy["node-a"] = 4; }, "Waiting"},
};

TEST(Suspension, WaitsAndSaysWhyWhileItCannotBegin) {
  for (const Unready& c : kUnready) {
    SCOPED_TRACE(c.what);
    World w = Awake();
    c.change(&w);
    const Step step = Next(w, At(0));
    ASSERT_EQ(step.action, Action::kPatchStatus);
    EXPECT_EQ(ReasonIn(step), c.reason);
    EXPECT_FALSE(step.patch["status"].contains("checkpoints"));
    EXPECT_NE(PhaseIn(step), "Suspending");
  }
}

TEST(Suspension, WhatIsSaidOnceIsNotWrittenAgain) {
  World w = Awake();
  w.store_down = true;
  const Json said = Next(w, At(0)).patch["status"];
  Change(&w, [&](api::SuspendedWorkload* s) {
    s->status.observed_generation = GetInt(said, {"observedGeneration"});
    s->status.conditions = {api::Condition::FromJson(said["conditions"][0])};
  });
  const Step step = Next(w, At(5));
  EXPECT_EQ(step.action, Action::kNothing);
  ASSERT_TRUE(step.again);
}

TEST(Suspension, ALargeWorkloadGoesAloneThoughItHasMorePodsThanANodeMayFreeze) {
  World w = Awake();
  w.max_per_node = 1;
  w.members.push_back(MemberOf("web-b", "uid-b"));
  w.target = Share(Web(2));
  EXPECT_EQ(PhaseIn(Next(w, At(0))), "Suspending");
  w.busy["node-a"] = 1;
  EXPECT_EQ(PhaseIn(Next(w, At(0))), "Running");
}

TEST(Suspension, MakesAFinalCheckpointOfEachPod) {
  const Step step = Next(Suspending(Phase::kDeleting), At(1));
  ASSERT_EQ(step.action, Action::kCheckpoint);
  ASSERT_EQ(step.names.size(), 1u);
  EXPECT_EQ(step.names[0].second, kName);
  EXPECT_EQ(step.names[0].first->meta.uid, "uid-a");
}

TEST(Suspension, IsDurableOnlyWhenEachPodIsStored) {
  for (Phase phase : {Phase::kPending, Phase::kAssigned, Phase::kFreezing, Phase::kDumping, Phase::kStoring}) {
    const Step step = Next(Suspending(phase), At(5));
    EXPECT_EQ(step.action, Action::kPatchStatus) << api::PhaseName(phase);
    EXPECT_FALSE(step.patch["status"].contains("durable")) << api::PhaseName(phase);
    ASSERT_TRUE(step.again);
  }
  const Step step = Next(Suspending(Phase::kReady), At(5));
  ASSERT_EQ(step.action, Action::kPatchStatus);
  EXPECT_EQ(step.patch["status"]["durable"], true);
  EXPECT_TRUE(step.live) << "decided on what the API server has, not on a cache";
}

TEST(Suspension, SaysWhatItFreed) {
  World w = Suspending(Phase::kReady);
  ChangePod(&w, [](kube::Pod* p) {
    p->containers[0].requests = {{"cpu", "250m"}, {"memory", "300Mi"}};
    p->containers[0].limits = {{"nvidia.com/gpu", "1"}};
    kube::Container side = p->containers[0];
    side.requests = {{"cpu", "1"}, {"memory", "60Mi"}};
    side.limits.clear();
    p->containers.push_back(side);
  });
  EXPECT_EQ(Next(w, At(5)).patch["status"]["freed"], Json({{"cpu", "1250m"}, {"memory", "360Mi"}, {"gpu", "1"}}));
}

TEST(Suspension, ScalesToZeroOnlyWhenDurableUnderItsOwnMark) {
  const Step step = Next(Suspending(Phase::kReady, true), At(6));
  ASSERT_EQ(step.action, Action::kPatchTarget);
  EXPECT_EQ(step.patch["spec"]["replicas"], 0);
  EXPECT_TRUE(step.live);
  kube::Workload target = Web(0);
  target.meta.annotations = {{api::kAsleep, GetString(step.patch, {"metadata", "annotations", api::kAsleep})}};
  const auto mark = api::AsleepMark(target.meta);
  ASSERT_TRUE(mark);
  EXPECT_EQ(mark->replicas, 1);
  EXPECT_EQ(mark->by, "nb");
}

TEST(Suspension, AJobIsSuspendedAndKeepsItsSize) {
  api::SuspendedWorkload object = Object();
  object.spec.target_kind = "Job";
  World w = Suspending(Phase::kReady, true, object);
  const Step step = Next(w, At(6));
  ASSERT_EQ(step.action, Action::kPatchTarget);
  EXPECT_EQ(step.patch["spec"], Json({{"suspend", true}}));
  EXPECT_EQ(StartPatch(*w.object, 3)["spec"], Json({{"suspend", false}}));
}

TEST(Suspension, IsAsleepWhenItsLastPodIsGone) {
  World w = Suspending(Phase::kReady, true);
  w.target = Share(Sleeping());
  Step step = Next(w, At(7));
  EXPECT_EQ(PhaseIn(step), "Suspending") << "its pod still ends";
  w.members.clear();
  step = Next(w, At(8));
  EXPECT_EQ(PhaseIn(step), "Suspended");
  EXPECT_EQ(GetString(step.patch["status"]["conditions"].at(0), {"status"}), "True");
  EXPECT_EQ(GetString(step.patch, {"status", "suspendedAt"}), FormatTime(At(8)));
  ASSERT_TRUE(step.notice);
  EXPECT_EQ(step.notice->reason, "Suspended");
}

struct Setback {
  const char* what;
  void (*change)(World*);
  const char* reason;
};

const Setback kSetbacks[] = {
    {"it failed",
     [](World* w) {
       api::Checkpoint c = Kept(Phase::kFailed);
       c.status.conditions[0].reason = "StoreUnavailable";
       c.status.conditions[0].message = "no route to the store";
       w->kept = {Share(c)};
     },
     "StoreUnavailable"},
    {"it was deleted",
     [](World* w) {
       api::Checkpoint c = Kept(Phase::kReady);
       c.meta.deletion_timestamp = "2026-06-01T12:00:00Z";
       w->kept = {Share(c)};
     },
     "Changed"},
    {"a drain moved the pod",
     [](World* w) {
       api::Checkpoint c = Kept(Phase::kReady);
       c.status.claim = api::Claim{"web-b", "uid-b", FormatTime(At(5))};
       w->kept = {Share(c)};
     },
     "Changed"},
    {"a pod more", [](World* w) { w->members.push_back(MemberOf("web-b", "uid-b")); }, "Changed"},
    {"another pod", [](World* w) { w->members = {MemberOf("web-b", "uid-b")}; }, "Changed"},
    {"its pod ends", [](World* w) { ChangePod(w, [](kube::Pod* p) { p->meta.deletion_timestamp = "2026-06-01T12:00:00Z"; }); }, "Changed"},
    {"the user scaled it", [](World* w) { ChangeTarget(w, [](kube::Workload* t) { t->replicas = 3; }); }, "Changed"},
    {"the user scaled it to nothing", [](World* w) { ChangeTarget(w, [](kube::Workload* t) { t->replicas = 0; }); }, "Changed"},
    {"the user changed their mind", [](World* w) { Change(w, [](api::SuspendedWorkload* s) { s->spec.suspended = false; }); }, "Changed"},
    {"the workload is gone", [](World* w) { w->target = nullptr; }, "TargetMissing"},
};

TEST(Suspension, IsTakenBackAsAWholeWhenAnyPartOfItFails) {
  for (const Setback& c : kSetbacks) {
    SCOPED_TRACE(c.what);
    World w = Suspending(Phase::kStoring);
    c.change(&w);
    const Step step = Next(w, At(6));
    ASSERT_EQ(step.action, Action::kPatchStatus);
    EXPECT_EQ(PhaseIn(step), "Suspending");
    EXPECT_EQ(GetString(step.patch, {"status", "attempt", "reason"}), c.reason);
    EXPECT_EQ(step.notice.has_value(), std::string(c.reason) != "Changed");
  }
}

TEST(Suspension, GivesUpAtItsDeadline) {
  EXPECT_EQ(GetString(Next(Suspending(Phase::kStoring), At(129)).patch, {"status", "attempt", "reason"}), "");
  EXPECT_EQ(GetString(Next(Suspending(Phase::kStoring), At(130)).patch, {"status", "attempt", "reason"}), "Deadline");
}

World TakenBack(Phase phase) {
  World w = Suspending(phase);
  Change(&w, [](api::SuspendedWorkload* s) {
    s->status.attempt.reason = "DumpFailed";
    s->status.attempt.message = "no";
    s->status.attempt.failures = 1;
  });
  return w;
}

TEST(Suspension, WhatIsTakenBackIsThawedBeforeItIsTriedAgain) {
  for (Phase phase : {Phase::kPending, Phase::kDumping, Phase::kReady}) {
    Step step = Next(TakenBack(phase), At(6));
    ASSERT_EQ(step.action, Action::kDiscard) << api::PhaseName(phase);
    EXPECT_EQ(step.checkpoints[0]->meta.name, kName);
  }
  World leaving = TakenBack(Phase::kReady);
  api::Checkpoint c = *leaving.kept[0];
  c.meta.deletion_timestamp = "2026-06-01T12:00:00Z";
  leaving.kept = {Share(c)};
  EXPECT_EQ(Next(leaving, At(7)).action, Action::kNothing) << "its pod may not be thawed yet";
}

TEST(Suspension, TriesAgainLaterEachTime) {
  Step step = Next(TakenBack(Phase::kFailed), At(6));
  ASSERT_EQ(step.action, Action::kPatchStatus);
  EXPECT_EQ(PhaseIn(step), "Running");
  EXPECT_EQ(ReasonIn(step), "DumpFailed");
  EXPECT_EQ(step.patch["status"]["attempt"]["failures"], 2);
  EXPECT_EQ(GetString(step.patch, {"status", "attempt", "retryAt"}), FormatTime(At(6 + 20)));
  EXPECT_NE(MessageIn(step).find("its pods run on: no; tried again at"), std::string::npos) << MessageIn(step);
  EXPECT_TRUE(step.patch["status"]["checkpoints"].empty());
  EXPECT_EQ(Backoff(1), kFirstRetry);
  EXPECT_EQ(Backoff(100), kLastRetry);

  World w = Awake();
  Change(&w, [](api::SuspendedWorkload* s) { s->status.attempt.retry_at = FormatTime(At(30)); });
  step = Next(w, At(20));
  EXPECT_EQ(step.action, Action::kNothing);
  EXPECT_EQ(*step.again, std::chrono::seconds(10));
  EXPECT_EQ(PhaseIn(Next(w, At(30))), "Suspending");
}

// What is left of a pod that is gone may be the only copy of its state.
TEST(Suspension, NeverDiscardsWhatItsPodHasLeftBehind) {
  World gone = TakenBack(Phase::kReady);
  gone.members.clear();
  EXPECT_EQ(PhaseIn(Next(gone, At(6))), "Running");
  World dying = TakenBack(Phase::kReady);
  ChangePod(&dying, [](kube::Pod* p) { p->meta.deletion_timestamp = "2026-06-01T12:00:00Z"; });
  EXPECT_EQ(PhaseIn(Next(dying, At(6))), "Running");
  World claimed = TakenBack(Phase::kReady);
  api::Checkpoint c = *claimed.kept[0];
  c.status.claim = api::Claim{"web-b", "uid-b", ""};
  claimed.kept = {Share(c)};
  EXPECT_EQ(PhaseIn(Next(claimed, At(6))), "Running");
}

// A leader that is not one any more may still send its patch: it names the version that it saw.
TEST(Suspension, WhatWasDurableIsTakenBackOnlyBehindAnotherVersionOfTheWorkload) {
  World w = Suspending(Phase::kReady, true);
  const int late = 100 + 30 + 60;
  Step step = Next(w, At(late));
  ASSERT_EQ(step.action, Action::kPatchTarget);
  EXPECT_FALSE(step.patch.contains("spec"));
  EXPECT_EQ(GetString(step.patch, {"metadata", "annotations", api::kSuspendUndone}), FormatTime(kStart));
  ChangeTarget(&w, [](kube::Workload* t) { t->meta.annotations = {{api::kSuspendUndone, FormatTime(kStart)}}; });
  step = Next(w, At(late));
  ASSERT_EQ(step.action, Action::kPatchStatus);
  EXPECT_EQ(step.patch["status"]["durable"], false);
  EXPECT_EQ(GetString(step.patch, {"status", "attempt", "reason"}), "StopRefused");
}

TEST(Suspension, OnceDurableItGoesToItsEndAndBackWhenTheUserWantsItToRun) {
  World w = Suspending(Phase::kReady, true, Object(false));
  EXPECT_EQ(Next(w, At(6)).action, Action::kPatchTarget);
  w.target = Share(Sleeping());
  EXPECT_NE(PhaseIn(Next(w, At(7))), "Resuming") << "its pod would stay, and stay frozen";
  ChangePod(&w, [](kube::Pod* p) { p->meta.deletion_timestamp = FormatTime(At(7)); });
  EXPECT_EQ(PhaseIn(Next(w, At(8))), "Resuming");
}

TEST(Suspension, PodsThatAUserKeptByScalingItUpInTimeAreThawed) {
  World w = Asleep();
  Change(&w, [](api::SuspendedWorkload* s) { s->status.phase = SuspendPhase::kResuming; });
  w.members = {MemberOf()};
  kube::Workload target = Web();
  target.meta.generation = 3;
  target.observed_generation = 2;
  w.target = Share(target);
  EXPECT_EQ(Next(w, At(50)).action, Action::kNothing) << "its controller may still end it";
  target.observed_generation = 3;
  w.target = Share(target);
  const Step step = Next(w, At(51));
  ASSERT_EQ(step.action, Action::kDiscard);
  EXPECT_EQ(step.checkpoints[0]->meta.name, kName);
  w.kept = {nullptr};
  EXPECT_EQ(Next(w, At(52)).patch["status"]["conditions"].at(1)["reason"], "Restored") << "it went on where it was";
}

TEST(Suspension, ResumesByScalingBackWithItsMarkTakenAway) {
  World w = Asleep(false);
  Step step = Next(w, At(100));
  EXPECT_EQ(PhaseIn(step), "Resuming");
  Change(&w, [](api::SuspendedWorkload* s) {
    s->status.phase = SuspendPhase::kResuming;
    s->status.replicas = 3;
  });
  step = Next(w, At(100));
  ASSERT_EQ(step.action, Action::kPatchTarget);
  EXPECT_EQ(step.patch["spec"]["replicas"], 3);
  EXPECT_TRUE(step.patch["metadata"]["annotations"][api::kAsleep].is_null());
}

World Resuming(const std::string& claimant, const char* outcome) {
  World w = Asleep(false);
  Change(&w, [](api::SuspendedWorkload* s) { s->status.phase = SuspendPhase::kResuming; });
  w.target = Share(Web());
  w.members = {MemberOf("web-b", "uid-b")};
  api::Checkpoint c = Kept(Phase::kReady);
  if (!claimant.empty()) c.status.claim = api::Claim{"web-b", claimant, FormatTime(At(101))};
  if (outcome != nullptr) c.status.restores = {{"web-b", "node-a", FormatTime(At(102)), outcome, "", 1}};
  w.kept = {Share(c)};
  return w;
}

TEST(Suspension, RunsAgainWhenItsPodsWentOn) {
  const Step step = Next(Resuming("uid-b", "Restored"), At(103));
  ASSERT_EQ(step.action, Action::kPatchStatus);
  EXPECT_EQ(PhaseIn(step), "Running");
  EXPECT_TRUE(step.patch["status"]["checkpoints"].empty());
  EXPECT_TRUE(step.patch["status"]["freed"].is_null());
  const Json& restored = step.patch["status"]["conditions"].at(1);
  EXPECT_EQ(restored["type"], "Restored");
  EXPECT_EQ(restored["status"], "True");
  EXPECT_FALSE(step.notice->warning);
}

TEST(Suspension, SaysWhenAPodStartedColdInstead) {
  for (const World& w : {Resuming("uid-b", "ColdStart"), Resuming("", nullptr)}) {
    const Step step = Next(w, At(103));
    EXPECT_EQ(PhaseIn(step), "Running");
    EXPECT_EQ(step.patch["status"]["conditions"].at(1)["reason"], "ColdStart");
    EXPECT_TRUE(step.notice->warning);
  }
  EXPECT_EQ(PhaseIn(Next(Resuming("uid-b", nullptr), At(103))), "Resuming") << "nobody has said yet what became of it";
}

TEST(Suspension, ShowsWhatAResumeWaitsFor) {
  World w = Resuming("uid-b", nullptr);
  ChangePod(&w, [](kube::Pod* p) {
    p->phase = "Pending";
    p->unscheduled = "0/2 nodes are available: Insufficient memory.";
  });
  Step step = Next(w, At(103));
  EXPECT_EQ(PhaseIn(step), "Resuming");
  EXPECT_EQ(MessageIn(step), "0 of 1 pods run; pod web-b is Pending: 0/2 nodes are available: Insufficient memory.");
  ChangePod(&w, [](kube::Pod* p) { p->scheduling_gates = {api::kClaimGate}; });
  EXPECT_NE(MessageIn(Next(w, At(103))).find("waits for its checkpoint"), std::string::npos);
}

TEST(Suspension, WhoScalesItUpWhileItSleepsHasTheLastWord) {
  World w = Asleep();
  ChangeTarget(&w, [](kube::Workload* t) { t->replicas = 2; });
  Step step = Next(w, At(50));
  EXPECT_EQ(PhaseIn(step), "Resuming");
  EXPECT_EQ(ReasonIn(step), "Overridden");
  EXPECT_EQ(step.patch["status"]["overriddenGeneration"], 2);
  ASSERT_TRUE(step.notice);

  Change(&w, [](api::SuspendedWorkload* s) {
    s->status.phase = SuspendPhase::kResuming;
    s->status.overridden_generation = 2;
  });
  step = Next(w, At(51));
  ASSERT_EQ(step.action, Action::kPatchTarget);
  EXPECT_EQ(step.patch, UnmarkPatch()) << "their number stays";

  World runs = Awake();
  Change(&runs, [](api::SuspendedWorkload* s) { s->status.overridden_generation = 2; });
  EXPECT_EQ(ReasonIn(Next(runs, At(60))), "Overridden");
  Change(&runs, [](api::SuspendedWorkload* s) { s->meta.generation = 4; });
  EXPECT_EQ(PhaseIn(Next(runs, At(61))), "Suspending") << "the user has spoken again";
}

TEST(Suspension, WhoScalesItToNothingAfterwardsIsNotScaledUpAgain) {
  World w = Resuming("", nullptr);
  ChangeTarget(&w, [](kube::Workload* t) { t->replicas = 0; });
  w.members.clear();
  const Step step = Next(w, At(103));
  EXPECT_EQ(step.action, Action::kPatchStatus);
  EXPECT_EQ(PhaseIn(step), "Running");
}

TEST(Suspension, ACheckpointThatAnEarlierLeaderAskedForTooLateIsTakenBack) {
  for (Phase phase : {Phase::kPending, Phase::kDumping, Phase::kReady}) {
    World w = Awake(Object(false));
    w.members[0].checkpoints = {Share(Kept(phase))};
    const Step step = Next(w, At(50));
    ASSERT_EQ(step.action, Action::kDiscard) << api::PhaseName(phase);
    EXPECT_TRUE(step.live);
  }
  World w = Awake(Object(false));
  w.members[0].checkpoints = {Share(InPhase(Phase::kDumping))};
  EXPECT_NE(Next(w, At(50)).action, Action::kDiscard) << "a drain's";
}

TEST(Suspension, AMarkThatSomebodyRemovedIsPutBackWhileItSleeps) {
  World w = Asleep();
  w.target = Share(Web(0));
  const Step step = Next(w, At(50));
  ASSERT_EQ(step.action, Action::kPatchTarget);
  EXPECT_FALSE(GetString(step.patch, {"metadata", "annotations", api::kAsleep}).empty());
}

TEST(Suspension, WhatSleepsAlreadyIsAdopted) {
  World w = Awake();
  w.target = Share(Sleeping(3));
  w.members.clear();
  w.of_owner = {Share(Kept(Phase::kReady)), Share(InPhase(Phase::kReady))};
  const Step step = Next(w, At(50));
  EXPECT_EQ(PhaseIn(step), "Suspended");
  EXPECT_EQ(step.patch["status"]["replicas"], 3);
  ASSERT_EQ(step.patch["status"]["checkpoints"].size(), 1u);
  EXPECT_EQ(GetString(step.patch["status"]["checkpoints"][0], {"checkpoint"}), kName);
}

World Deleted(World w, bool keep = false) {
  Change(&w, [&](api::SuspendedWorkload* s) {
    s->meta.deletion_timestamp = FormatTime(At(90));
    s->spec.keep_on_delete = keep;
  });
  return w;
}

TEST(Suspension, ADeletedObjectGoesWhenItsWorkloadRunsOrMaySleepOn) {
  EXPECT_EQ(Next(Deleted(Awake()), At(90)).action, Action::kDropFinalizer);
  const Step keep = Next(Deleted(Asleep(), true), At(90));
  EXPECT_EQ(keep.action, Action::kDropFinalizer);
  ASSERT_TRUE(keep.notice);
  EXPECT_EQ(PhaseIn(Next(Deleted(Asleep()), At(90))), "Resuming");
  World w = Deleted(Asleep());
  Change(&w, [](api::SuspendedWorkload* s) { s->status.phase = SuspendPhase::kResuming; });
  EXPECT_EQ(Next(w, At(91)).action, Action::kPatchTarget);
  w.target = Share(Web());
  EXPECT_EQ(Next(w, At(92)).action, Action::kDropFinalizer) << "that its pods find room is not waited for";
  w = Deleted(Asleep());
  w.target = nullptr;
  EXPECT_EQ(Next(w, At(90)).action, Action::kDropFinalizer);
}

TEST(Suspension, ADeletionInTheMiddleTakesItBackFirst) {
  World w = Deleted(Suspending(Phase::kStoring));
  EXPECT_EQ(GetString(Next(w, At(90)).patch, {"status", "attempt", "reason"}), "Changed");
}

api::SuspendedWorkload Scheduled(bool suspended, int followed_until) {
  api::SuspendedWorkload object = Object(suspended);
  object.spec.schedule.suspend = "0 20 * * *";
  object.spec.schedule.resume = "0 7 * * *";
  object.spec.schedule.time_zone = "UTC";
  if (followed_until >= 0)
    object.meta.annotations = {{api::kScheduled, api::Scheduled{object.spec.schedule.text(), At(followed_until), false}.ToAnnotation()}};
  return object;
}
constexpr int kHour = 3600;  // kStart is at 12:00

World ScheduledAt(api::SuspendedWorkload object, int seconds) {
  World w = Awake(std::move(object));
  w.schedule = ScheduleOf(*w.object, At(seconds));
  return w;
}

TEST(SuspensionSchedule, WhatWasDueBeforeItWasWrittenDoesNotCount) {
  const Step step = Next(ScheduledAt(Scheduled(false, -1), 9 * kHour), At(9 * kHour));
  ASSERT_EQ(step.action, Action::kPatchObject);
  EXPECT_FALSE(step.patch.contains("spec"));
  api::SuspendedWorkload changed = Scheduled(false, 0);
  changed.spec.schedule.suspend = "0 13 * * *";
  EXPECT_FALSE(Next(ScheduledAt(changed, 2 * kHour), At(2 * kHour)).patch.contains("spec")) << "it was changed";
}

TEST(SuspensionSchedule, SetsTheStateWhenItIsDueAndSaysHowFarItIs) {
  EXPECT_NE(Next(ScheduledAt(Scheduled(false, 0), 8 * kHour - 1), At(8 * kHour - 1)).action, Action::kPatchObject);
  const World due = ScheduledAt(Scheduled(false, 0), 8 * kHour);
  const Step step = Next(due, At(8 * kHour));
  ASSERT_EQ(step.action, Action::kPatchObject);
  EXPECT_EQ(step.patch["spec"]["state"], "Suspended");
  kube::ObjectMeta meta;
  meta.annotations = {{api::kScheduled, GetString(step.patch, {"metadata", "annotations", api::kScheduled})}};
  EXPECT_EQ(api::ScheduledMark(meta)->at, At(8 * kHour));
  // A controller that was away for a day and a half makes up for the last word only.
  const Step late = Next(ScheduledAt(Scheduled(false, 0), 44 * kHour), At(44 * kHour));
  EXPECT_EQ(late.patch["spec"]["state"], "Running");
}

TEST(SuspensionSchedule, WhatTheUserSetsHoldsUntilTheNextTime) {
  World w = ScheduledAt(Scheduled(false, 8 * kHour), 9 * kHour);
  Change(&w, [](api::SuspendedWorkload* s) {
    s->status.conditions = {{"Scheduled", "True", "Scheduled", "to be resumed at 2026-06-02T07:00:00Z", FormatTime(kStart), 2}};
  });
  const Step step = Next(w, At(9 * kHour));
  EXPECT_NE(PhaseIn(step), "Suspending");
  ASSERT_TRUE(step.again);
  EXPECT_EQ(*step.again, std::chrono::hours(10));
}

TEST(SuspensionSchedule, SpeaksAfterAUserWhoScaledItUp) {
  api::SuspendedWorkload object = Scheduled(true, 0);
  object.status.overridden_generation = 2;
  object.status.overridden_at = FormatTime(At(kHour));
  object.status.conditions = {{"Scheduled", "True", "Scheduled", "to be resumed at 2026-06-02T07:00:00Z", FormatTime(kStart), 2}};
  object.meta.annotations = {{api::kScheduled, api::Scheduled{object.spec.schedule.text(), At(8 * kHour), true}.ToAnnotation()}};
  EXPECT_EQ(PhaseIn(Next(ScheduledAt(object, 9 * kHour), At(9 * kHour))), "Suspending");
  object.status.overridden_at = FormatTime(At(8 * kHour + 1));
  EXPECT_EQ(PhaseIn(Next(ScheduledAt(object, 9 * kHour), At(9 * kHour))), "Running");
}

TEST(SuspensionSchedule, OneThatCannotBeFollowedSaysWhy) {
  api::SuspendedWorkload object = Scheduled(false, 0);
  object.spec.schedule.time_zone = "Europe/Atlantis";
  object.meta.annotations = {{api::kScheduled, api::Scheduled{object.spec.schedule.text(), At(0), false}.ToAnnotation()}};
  Step step = Next(ScheduledAt(object, 9 * kHour), At(9 * kHour));
  ASSERT_EQ(step.action, Action::kPatchStatus);
  EXPECT_NE(MessageIn(step).find("there is no time zone Europe/Atlantis"), std::string::npos) << MessageIn(step);
  object.spec.schedule = {};
  object.status.conditions = {api::Condition::FromJson(step.patch["status"]["conditions"][0])};
  step = Next(Awake(object), At(9 * kHour));
  ASSERT_EQ(step.action, Action::kPatchStatus);
  EXPECT_TRUE(step.patch["status"]["conditions"].empty());
}

PodPtr Asking(const std::string& cpu, const std::string& memory, const std::string& gpu = "") {
  kube::Pod pod = WebPod();
  pod.containers.resize(1);
  pod.containers[0].requests = {{"cpu", cpu}, {"memory", memory}};
  if (!gpu.empty()) pod.containers[0].limits = {{"nvidia.com/gpu", gpu}};
  return Share(pod);
}

TEST(Cost, IsWhatThePodsAskForByTheGivenPrices) {
  const std::vector<PodPtr> pods = {Asking("500m", "1Gi"), Asking("1", "512Mi", "2")};
  EXPECT_EQ(Requests(pods, {.cpu = 0.04, .memory_gib = 0.005, .gpu = 1.2})["costPerHour"], "2.4675 USD");
  EXPECT_EQ(Requests(pods, {.gpu = 1.25, .currency = "EUR"})["costPerHour"], "2.50 EUR");
  EXPECT_EQ(Requests({Asking("1m", "1Mi")}, {.cpu = 0.001})["costPerHour"], "0.00 USD");
  EXPECT_FALSE(Requests(pods).contains("costPerHour")) << "no prices";
}

TEST(Cost, APriceIsReadStrictly) {
  EXPECT_EQ(ParsePrice("0.04"), 0.04);
  EXPECT_EQ(ParsePrice("12"), 12.0);
  EXPECT_EQ(ParsePrice("0"), 0.0);
  for (const char* wrong : {"", "-1", "+1", "1e9", "nan", "inf", "0x10", "1,5", ".", "1.", ".5", " 1", "1 ", "9999999999", "1.2.3"})
    EXPECT_FALSE(ParsePrice(wrong)) << wrong;
}

}  // namespace
}  // namespace holdfast::reconcilers::suspendedworkload
