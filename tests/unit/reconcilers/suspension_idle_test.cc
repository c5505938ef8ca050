// spec.idle: what the agents say of the pods, put together and acted upon.
#include <gtest/gtest.h>

#include "reconcilers/suspendedworkload/idle.h"
#include "tests/unit/reconcilers/world.h"

namespace holdfast::reconcilers::suspendedworkload {
namespace {

using api::Phase;
using api::SuspendPhase;
using namespace reconcilers::testing;  // NOLINT(google-build-using-namespace)

constexpr int kAfter = 1800;
const api::IdleWatch kWatch{std::chrono::seconds(kAfter)};

void Say(kube::Pod* pod, const char* status, const char* reason, const std::string& message, WallTime since) {
  std::erase_if(pod->conditions, [](const api::Condition& c) { return c.type == api::kIdle; });
  pod->conditions.push_back({api::kIdle, status, reason, message, FormatTime(since), 0});
}

Member IdleMember(const std::string& name, const std::string& uid, WallTime since) {
  kube::Pod pod = WebPod(name, uid);
  pod.meta.annotations[api::kIdleWatch] = kWatch.ToAnnotation();
  Say(&pod, "True", "Idle", "nothing of it is used", since);
  return {Share(pod), WebOwner(), Share(ReadyNode()), {}};
}

World Idle(bool suspended = false) {
  api::SuspendedWorkload s = SleeperOfWeb(suspended);
  s.spec.idle = kWatch;
  World w;
  w.object = Share(s);
  w.target = Share(Web());
  w.protection = {true, Share(api::RestorePolicy()), ""};
  w.members = {IdleMember("web-a", "uid-a", kStart)};
  return w;
}

void ChangeObject(World* w, const std::function<void(api::SuspendedWorkload*)>& change) {
  api::SuspendedWorkload object = *w->object;
  change(&object);
  w->object = Share(object);
}
void ChangePod(World* w, const std::function<void(kube::Pod*)>& change) {
  kube::Pod pod = *w->members[0].pod;
  change(&pod);
  w->members[0].pod = Share(pod);
}

// After the patch of `step`, as the API server makes it.
void Take(World* w, const Step& step) {
  ChangeObject(w, [&](api::SuspendedWorkload* s) {
    if (const Json* state = Find(step.patch, {"spec", "state"})) {
      s->spec.suspended = *state == "Suspended";
      ++s->meta.generation;
    }
    for (const auto& [key, value] : GetObject(step.patch, {"metadata", "annotations"}).items())
      s->meta.annotations[key] = value.get<std::string>();
    if (const Json* conditions = Find(step.patch, {"status", "conditions"})) {
      s->status.conditions.clear();
      for (const Json& condition : *conditions) s->status.conditions.push_back(api::Condition::FromJson(condition));
      if (step.patch["status"].contains("lastActivity")) s->status.last_activity = GetString(step.patch, {"status", "lastActivity"});
    }
  });
}

std::string IdleIn(const World& w, const char* what) {
  const api::Condition* condition = kube::FindCondition(w.object->status.conditions, "Idle");
  if (condition == nullptr) return "";
  return std::string(what) == "status"   ? condition->status.str()
         : std::string(what) == "reason" ? condition->reason.str()
                                         : condition->message.str();
}

TEST(Idleness, ItsPodsAreAskedForOnceEach) {
  World w = Idle();
  ChangePod(&w, [](kube::Pod* p) { p->meta.annotations.erase(api::kIdleWatch); });
  const Step step = Next(w, At(0));
  ASSERT_EQ(step.action, Action::kPatchPod);
  EXPECT_EQ(step.pod->meta.name, "web-a");
  EXPECT_EQ(GetString(step.patch, {"metadata", "annotations", api::kIdleWatch}), kWatch.ToAnnotation());
  ChangePod(&w, [&](kube::Pod* p) { p->meta.annotations[api::kIdleWatch] = api::IdleWatch{std::chrono::hours(2)}.ToAnnotation(); });
  EXPECT_EQ(Next(w, At(0)).action, Action::kPatchPod) << "what was asked before is another question";
}

TEST(Idleness, WhoeverDoesNotRunIsNotAskedForYet) {
  World w = Idle();
  ChangePod(&w, [](kube::Pod* p) {
    p->meta.annotations.erase(api::kIdleWatch);
    p->phase = "Pending";
  });
  Take(&w, Next(w, At(0)));
  EXPECT_EQ(IdleIn(w, "status"), "Unknown");
  EXPECT_EQ(IdleIn(w, "reason"), "Waiting");
}

TEST(Idleness, BeforeItsTimeItSaysWhenItWillBeSuspended) {
  World w = Idle();
  const Step step = Next(w, At(600));
  ASSERT_EQ(step.action, Action::kPatchStatus);
  EXPECT_EQ(GetString(step.patch, {"status", "lastActivity"}), FormatTime(kStart));
  Take(&w, step);
  EXPECT_EQ(IdleIn(w, "status"), "True");
  EXPECT_NE(IdleIn(w, "message").find(FormatTime(At(kAfter))), std::string::npos) << IdleIn(w, "message");
  Take(&w, Next(w, At(601)));  // phase and condition Suspended
  EXPECT_FALSE(w.object->spec.suspended);
}

TEST(Idleness, ItComesBackWhenTheTimeIsOver) {
  World w = Idle();
  for (int i = 0; i < 2; ++i) {
    const Step step = Next(w, At(600));
    Take(&w, step);
    ChangeObject(&w, [&](api::SuspendedWorkload* s) { s->status.observed_generation = s->meta.generation; });
  }
  const Step step = Next(w, At(600));
  EXPECT_EQ(step.action, Action::kNothing);
  EXPECT_EQ(step.again, Duration(std::chrono::seconds(kAfter - 600)));
}

TEST(Idleness, AfterItsTimeItIsWhatTheUserCouldHaveAskedFor) {
  World w = Idle();
  const Step step = Next(w, At(kAfter));
  ASSERT_EQ(step.action, Action::kPatchObject);
  EXPECT_TRUE(step.live) << "decided again on what the API server has";
  EXPECT_EQ(GetString(step.patch, {"spec", "state"}), "Suspended");
  ASSERT_TRUE(step.notice);
  EXPECT_EQ(step.notice->note, "Deployment web was idle for 30m: to be suspended");
  Take(&w, step);
  ASSERT_TRUE(api::IdledMark(w.object->meta));
  EXPECT_EQ(api::IdledMark(w.object->meta)->since, kStart);
  const Step begin = Next(w, At(kAfter + 1));
  EXPECT_EQ(GetString(begin.patch, {"status", "phase"}), "Suspending");
}

TEST(Idleness, OneOfSeveralPodsThatIsUsedIsEnough) {
  World w = Idle();
  w.members.push_back(IdleMember("web-b", "uid-b", At(1000)));
  w.target = Share(Web(2));
  Take(&w, Next(w, At(kAfter)));
  EXPECT_FALSE(w.object->spec.suspended) << "the last of them counts";
  ChangePod(&w, [](kube::Pod* p) { Say(p, "False", "Active", "it uses 300m of CPU", At(1)); });
  Take(&w, Next(w, At(9000)));
  EXPECT_EQ(IdleIn(w, "status"), "False");
  EXPECT_EQ(IdleIn(w, "message"), "pod web-a: it uses 300m of CPU");
  EXPECT_TRUE(w.object->status.last_activity.empty());
  ChangePod(&w, [](kube::Pod* p) { Say(p, "True", "Idle", "", At(2000)); });
  EXPECT_EQ(GetString(Next(w, At(2000 + kAfter)).patch, {"spec", "state"}), "Suspended");
}

struct Unmeasured {
  const char* what;
  void (*change)(kube::Pod*);
  const char* message;
};

TEST(Idleness, WhatCannotBeMeasuredIsNotIdleAndTheStatusSaysWhy) {
  const Unmeasured cases[] = {
      {"no answer", [](kube::Pod* p) { p->conditions.clear(); }, "the agent of node node-a has not said yet"},
      {"the agent cannot", [](kube::Pod* p) { Say(p, "Unknown", "NotMeasured", "no Jupyter server runs in it", kStart); },
       "no Jupyter server"},
      {"no time", [](kube::Pod* p) { p->conditions.back().last_transition_time = "yesterday"; }, "pod web-a"},
      {"it ends", [](kube::Pod* p) { p->meta.deletion_timestamp = FormatTime(kStart); }, "it does not run"},
  };
  for (const Unmeasured& c : cases) {
    SCOPED_TRACE(c.what);
    World w = Idle();
    ChangePod(&w, c.change);
    Take(&w, Next(w, At(9000)));
    EXPECT_FALSE(w.object->spec.suspended);
    EXPECT_EQ(IdleIn(w, "status"), "Unknown");
    EXPECT_NE(IdleIn(w, "message").find(c.message), std::string::npos) << IdleIn(w, "message");
  }
}

TEST(Idleness, WhatIsInTheWayIsWaitedForBeforeTheStateIsSet) {
  World w = Idle();
  w.store_down = true;
  const Step step = Next(w, At(kAfter));
  ASSERT_EQ(step.action, Action::kPatchStatus);
  Take(&w, step);
  EXPECT_FALSE(w.object->spec.suspended);
  EXPECT_NE(IdleIn(w, "message").find("store"), std::string::npos);
}

TEST(Idleness, WhoIsUsedAgainBeforeTheFreezeRunsOn) {
  World w = Idle();
  Take(&w, Next(w, At(kAfter)));
  ChangePod(&w, [](kube::Pod* p) { Say(p, "False", "Active", "kernel python3 is busy", At(kAfter)); });
  const Step step = Next(w, At(kAfter + 1));
  ASSERT_EQ(step.action, Action::kPatchObject);
  EXPECT_EQ(GetString(step.patch, {"spec", "state"}), "Running");
  Take(&w, step);
  EXPECT_FALSE(api::IdledMark(w.object->meta));
}

TEST(Idleness, AnAgentThatSeesUseAtTheLastMomentStopsItWithoutAFailure) {
  World w = Idle(true);
  api::Checkpoint c = InPhase(Phase::kFailed);
  c.spec.trigger = api::Trigger::kIdle;
  c.status.conditions = {{"Ready", "False", api::reason::kNotIdle, "it is not idle: kernel python3 is busy", FormatTime(kStart), 1}};
  w.kept = {Share(c)};
  w.members[0].checkpoints = w.kept;
  ChangeObject(&w, [&](api::SuspendedWorkload* s) {
    s->status.phase = SuspendPhase::kSuspending;
    s->status.checkpoints = {{"web-a", "uid-a", "", c.meta.name}};
    s->status.attempt.started_at = FormatTime(At(kAfter));
  });
  const Step back = Next(w, At(kAfter + 1));
  EXPECT_FALSE(back.notice) << "nothing has failed";
  ChangeObject(&w, [&](api::SuspendedWorkload* s) { s->status.attempt.reason = GetString(back.patch, {"status", "attempt", "reason"}); });
  const Step undone = Next(w, At(kAfter + 2));
  EXPECT_EQ(GetString(undone.patch, {"status", "phase"}), "Running");
  EXPECT_EQ(GetInt(undone.patch, {"status", "attempt", "failures"}), 0);
}

TEST(Idleness, TheUsersOwnWishNeedsNone) {
  World w = Idle(true);
  ChangePod(&w, [](kube::Pod* p) { Say(p, "False", "Active", "it uses 300m of CPU", At(1)); });
  EXPECT_EQ(GetString(Next(w, At(2)).patch, {"status", "phase"}), "Suspending");
}

TEST(Idleness, WhoScalesItUpWakesItUntilItIsIdleAgain) {
  World w = Idle();
  Take(&w, Next(w, At(kAfter)));
  ChangeObject(&w, [](api::SuspendedWorkload* s) { s->status.overridden_generation = s->meta.generation; });
  const Step step = Next(w, At(kAfter + 60));
  ASSERT_EQ(step.action, Action::kPatchObject);
  EXPECT_EQ(GetString(step.patch, {"spec", "state"}), "Running");
  World own = Idle(true);
  ChangeObject(&own, [](api::SuspendedWorkload* s) { s->status.overridden_generation = s->meta.generation; });
  EXPECT_NE(Next(own, At(kAfter + 60)).action, Action::kPatchObject) << "the user's own state is the user's to change";
}

TEST(Idleness, WhatTheScheduleSaysAfterItHoldsThoughItIsUsed) {
  World w = Idle();
  Take(&w, Next(w, At(kAfter)));
  ChangePod(&w, [](kube::Pod* p) { Say(p, "False", "Active", "it uses 300m of CPU", At(kAfter)); });
  ChangeObject(&w, [](api::SuspendedWorkload* s) {
    s->meta.annotations[api::kScheduled] = api::Scheduled{"", At(kAfter + 1), true}.ToAnnotation();
  });
  EXPECT_EQ(GetString(Next(w, At(kAfter + 2)).patch, {"status", "phase"}), "Suspending");
}

TEST(Idleness, WhatSleepsForItSaysSoAndKeepsTheTime) {
  World w = Idle();
  Take(&w, Next(w, At(kAfter)));
  kube::Workload web = *w.target;
  web.replicas = web.pods = 0;
  web.meta.annotations = {{api::kAsleep, api::Asleep{"nb", 1, FormatTime(At(kAfter))}.ToAnnotation()}};
  w.target = Share(web);
  w.members.clear();
  api::Checkpoint c = InPhase(Phase::kReady);
  w.kept = {Share(c)};
  ChangeObject(&w, [&](api::SuspendedWorkload* s) {
    s->status.phase = SuspendPhase::kSuspending;
    s->status.durable = true;
    s->status.checkpoints = {{"web-a", "uid-a", "", c.meta.name}};
    s->status.last_activity = FormatTime(kStart);
  });
  const Step asleep = Next(w, At(kAfter + 5));
  ASSERT_TRUE(asleep.notice);
  EXPECT_EQ(asleep.notice->note, "Deployment web sleeps after 30m of idleness: 1 pods are stored, and ended");
  EXPECT_FALSE(asleep.patch["status"].contains("lastActivity"));
}

TEST(Idleness, WithoutItNothingOfItIsLeft) {
  World w = Idle();
  Take(&w, Next(w, At(600)));
  ChangeObject(&w, [](api::SuspendedWorkload* s) { s->spec.idle.reset(); });
  const Step step = Next(w, At(601));
  ASSERT_EQ(step.action, Action::kPatchPod);
  EXPECT_TRUE(step.patch["metadata"]["annotations"][api::kIdleWatch].is_null());
  ChangePod(&w, [](kube::Pod* p) { p->meta.annotations.erase(api::kIdleWatch); });
  Take(&w, Next(w, At(602)));
  EXPECT_EQ(IdleIn(w, "status"), "");
  EXPECT_TRUE(w.object->status.last_activity.empty());
}

TEST(Idleness, AnObjectThatGoesAsksForNothingAnyMore) {
  World w = Idle();
  ChangeObject(&w, [](api::SuspendedWorkload* s) { s->meta.deletion_timestamp = FormatTime(kStart); });
  EXPECT_EQ(Next(w, At(1)).action, Action::kPatchPod);
  ChangePod(&w, [](kube::Pod* p) { p->meta.annotations.erase(api::kIdleWatch); });
  EXPECT_EQ(Next(w, At(1)).action, Action::kDropFinalizer);
}

}  // namespace
}  // namespace holdfast::reconcilers::suspendedworkload
