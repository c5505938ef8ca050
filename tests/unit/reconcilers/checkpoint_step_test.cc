#include <gtest/gtest.h>

#include "reconcilers/checkpoint/step.h"
#include "tests/unit/reconcilers/world.h"

namespace holdfast::reconcilers::checkpoint {
namespace {

using api::Phase;
using namespace reconcilers::testing;  // NOLINT(google-build-using-namespace)

World Seen() {
  World w;
  w.checkpoint = Share(WebDrain());
  w.pod = Share(WebPod());
  w.node = Share(ReadyNode());
  w.lineage.owner = WebOwner();
  w.admission = Admission{.granted = true};
  return w;
}

World With(void (*change)(World*, api::Checkpoint*, kube::Pod*, kube::Node*)) {
  World w = Seen();
  api::Checkpoint c = *w.checkpoint;
  kube::Pod pod = *w.pod;
  kube::Node node = *w.node;
  w.pod = nullptr;
  change(&w, &c, &pod, &node);
  w.checkpoint = Share(c);
  if (pod.meta.name != "none") w.pod = Share(pod);
  w.node = Share(node);
  return w;
}

std::string PhaseOf(const Step& step) { return GetString(step.patch, {"status", "phase"}); }
std::string ReasonOf(const Step& step) { return GetString(GetArray(step.patch, {"status", "conditions"}).at(0), {"reason"}); }
std::string MessageOf(const Step& step) { return GetString(GetArray(step.patch, {"status", "conditions"}).at(0), {"message"}); }

TEST(Checkpoint, IsAssignedToThePodsNodeWithItsOwner) {
  const Step step = Next(Seen(), At(1));
  ASSERT_EQ(step.action, Action::kPatchStatus);
  EXPECT_EQ(PhaseOf(step), "Assigned");
  EXPECT_EQ(GetString(step.patch, {"status", "nodeName"}), "node-a");
  EXPECT_EQ(GetString(step.patch, {"status", "podUID"}), "uid-a");
  EXPECT_EQ(GetString(step.patch, {"status", "owner", "templateHash"}), "h1");
}

TEST(Checkpoint, AnAssignmentOfAnEarlierLeaderIsRenewedOnce) {
  World w = Seen();
  api::Checkpoint c = InPhase(api::Phase::kAssigned);
  c.status.term = 3;
  w.checkpoint = Share(c);
  w.term = 4;
  EXPECT_EQ(Next(w, At(1)).action, Action::kPatchStatus);
  w.term = 3;
  EXPECT_EQ(Next(w, At(1)).action, Action::kNothing);
}

TEST(Checkpoint, FixesTheUidAndTakesTheFinalizerFirst) {
  const Step step = Next(With([](World*, api::Checkpoint* c, kube::Pod*, kube::Node*) {
                           c->spec.pod_uid = "";
                           c->meta.finalizers = {"other/one"};
                         }),
                         At(1));
  ASSERT_EQ(step.action, Action::kPrepare);
  EXPECT_EQ(GetString(step.patch, {"spec", "podRef", "uid"}), "uid-a");
  EXPECT_EQ(step.patch["metadata"]["finalizers"], Json({"other/one", kContentFinalizer}));
}

Json InfoOfWeb() {
  return {{"pod", "web-a"},
          {"podUID", "uid-a"},
          {"node", "node-a"},
          {"final", true},
          {"startedAt", FormatTime(At(-60))},
          {"owner", api::ToJson(WebOwner())},
          {"policy", "gold"},
          {"security", {{"hostPID", true}}},
          {"platform", {{"arch", "amd64"}}},
          {"result", {{"memory_bytes", 1000}, {"files_bytes", -7}}},
          {"containers", {{{"name", "main"}, {"image", "i"}}, {{"name", "plain"}, {"restorable", false}}}}};
}

Content ContentOfWeb() {
  return {.store = "holdfast-store-1",
          .ns = "default",
          .checkpoint = WebDrain().meta.name,
          .digest = "blake3:1",
          .created = FormatTime(At(-50)),
          .stored_bytes = 4096,
          .info = InfoOfWeb()};
}

World Adopting(void (*change)(api::Checkpoint*) = nullptr) {
  World w = Seen();
  api::Checkpoint c = *w.checkpoint;
  c.meta.annotations[api::kManifest] = "old-uid";
  c.spec.final = false;
  c.spec.trigger = api::Trigger::kManual;
  if (change != nullptr) change(&c);
  w.checkpoint = Share(c);
  w.pod = nullptr;
  w.content = ContentOfWeb();
  return w;
}

TEST(Adoption, ACheckpointThatEtcdLostIsReadyAsTheStoreHasIt) {
  World w = Adopting();
  const Step step = Next(w, At(1));
  ASSERT_EQ(step.action, Action::kPatchStatus) << step.why;
  const api::Checkpoint made = api::Checkpoint::FromJson(step.patch);
  EXPECT_EQ(made.status.phase, Phase::kReady);
  EXPECT_EQ(made.status.manifest_id, "old-uid");
  EXPECT_EQ(made.store(), "holdfast-store-1") << "the one that has it";
  EXPECT_EQ(made.status.manifest_digest, "blake3:1");
  EXPECT_EQ(made.status.owner.uid, WebOwner().uid);
  EXPECT_EQ(made.status.policy, "gold");
  EXPECT_EQ(made.status.security, R"({"hostPID":true})") << "hole 9: made anew it is as narrow as it was";
  EXPECT_EQ(made.status.node_name, "node-a");
  EXPECT_EQ(made.status.stored_bytes, 4096);
  EXPECT_EQ(made.status.memory_bytes, 1000);
  EXPECT_EQ(made.status.files_bytes, 0) << "nothing odd reaches the API";
  EXPECT_EQ(made.status.arch, "amd64");
  EXPECT_EQ(made.status.completed_at, FormatTime(At(-50))) << "as old as it is";
  ASSERT_EQ(made.status.containers.size(), 2u);
  EXPECT_TRUE(made.status.containers[0].restorable);
  EXPECT_FALSE(made.status.containers[1].restorable);
  ASSERT_TRUE(step.notice);
  EXPECT_EQ(step.notice->reason, "Adopted");
}

TEST(Adoption, AsksTheStoreOnceItHoldsTheObject) {
  World w = Adopting([](api::Checkpoint* c) { c->meta.finalizers.clear(); });
  w.content.reset();
  EXPECT_EQ(Next(w, At(1)).action, Action::kPrepare) << "nothing is promised before its deletion would take the content along";
  w = Adopting();
  w.content.reset();
  EXPECT_EQ(Next(w, At(1)).action, Action::kAskStore);
}

TEST(Adoption, WaitsForAStoreThatDoesNotAnswerAsLongAsItTakes) {
  World w = Adopting();
  w.content = Status(Code::kUnavailable, "no answer");
  for (int at : {1, 10'000}) {
    const Step step = Next(w, At(at));
    ASSERT_EQ(step.action, Action::kPatchStatus);
    EXPECT_EQ(PhaseOf(step), "Pending");
    ASSERT_TRUE(step.again);
    EXPECT_GE(*step.again, std::chrono::seconds(1));
  }
}

TEST(Adoption, TakesNothingThatIsNotItsOwn) {
  struct Case {
    const char* what;
    World world;
  };
  std::vector<Case> cases = {
      {"no uid", Adopting([](api::Checkpoint* c) { c->spec.pod_uid = ""; })},
      {"final: a pod could get it that went on long ago", Adopting([](api::Checkpoint* c) { c->spec.final = true; })},
      {"an interval's, which pods get by themselves", Adopting([](api::Checkpoint* c) { c->spec.trigger = api::Trigger::kInterval; })},
      {"not there", Adopting()},
      {"damaged", Adopting()},
      {"another namespace's", Adopting()},
      {"of another name: there could be two of it", Adopting()},
      {"another pod's", Adopting()},
  };
  cases[3].world.content = Status(Code::kNotFound, "no such manifest");
  cases[4].world.content = Status(Code::kDataLoss, "its manifest is damaged");
  Content content = ContentOfWeb();
  content.ns = "other";
  cases[5].world.content = content;
  content = ContentOfWeb();
  content.checkpoint = "another";
  cases[6].world.content = content;
  content = ContentOfWeb();
  content.info["podUID"] = "uid-z";
  cases[7].world.content = content;
  for (const Case& c : cases) {
    const Step step = Next(c.world, At(1));
    ASSERT_EQ(step.action, Action::kPatchStatus) << c.what;
    EXPECT_EQ(PhaseOf(step), "Failed") << c.what;
    EXPECT_EQ(ReasonOf(step), "NotStored") << c.what;
  }
}

struct Refusal {
  const char* what;
  void (*change)(World*, api::Checkpoint*, kube::Pod*, kube::Node*);
  const char* reason;
  const char* says;
};

const Refusal kRefusals[] = {
    {"no pod", [](World*, api::Checkpoint*, kube::Pod* p, kube::Node*) { p->meta.name = "none"; }, "PodGone", "no such pod"},
    {"another uid", [](World*, api::Checkpoint*, kube::Pod* p, kube::Node*) { p->meta.uid = "uid-z"; }, "PodReplaced", "uid-z"},
    {"terminating", [](World*, api::Checkpoint*, kube::Pod* p, kube::Node*) { p->meta.deletion_timestamp = "2026-06-01T12:00:00Z"; },
     "PodGone", "being deleted"},
    {"ended", [](World*, api::Checkpoint*, kube::Pod* p, kube::Node*) { p->phase = "Succeeded"; }, "PodGone", "has ended"},
    {"user namespace", [](World*, api::Checkpoint*, kube::Pod* p, kube::Node*) { p->host_users = false; }, "Unsupported", "hostUsers"},
    {"other runtime class", [](World*, api::Checkpoint*, kube::Pod* p, kube::Node*) { p->runtime_class = "kata"; }, "Unsupported", "kata"},
    {"plain runc, final", [](World*, api::Checkpoint*, kube::Pod* p, kube::Node*) { p->runtime_class = ""; }, "Unsupported",
     "restart it to protect it"},
    {"kata, not final",
     [](World*, api::Checkpoint* c, kube::Pod* p, kube::Node*) {
       p->runtime_class = "kata";
       c->spec.final = false;
     },
     "Unsupported", "kata"},
    {"nvidia under plain runc",
     [](World*, api::Checkpoint*, kube::Pod* p, kube::Node*) {
       p->containers[0].limits["nvidia.com/gpu"] = "1";
       p->runtime_class = "";
     },
     "Unsupported", "set runtimeClassName: holdfast"},
    {"a part of a GPU",
     [](World*, api::Checkpoint*, kube::Pod* p, kube::Node*) { p->containers[0].limits["nvidia.com/mig-1g.10gb"] = "1"; }, "Unsupported",
     "nvidia.com/mig-1g.10gb"},
    {"amd", [](World*, api::Checkpoint*, kube::Pod* p, kube::Node*) { p->containers[0].limits["amd.com/gpu"] = "2"; }, "Unsupported",
     "only whole NVIDIA ones"},
    {"static pod", [](World*, api::Checkpoint*, kube::Pod* p, kube::Node*) { p->meta.annotations["kubernetes.io/config.mirror"] = "x"; },
     "Unsupported", "static pod"},
    {"windows", [](World*, api::Checkpoint*, kube::Pod*, kube::Node* n) { n->meta.labels["kubernetes.io/os"] = "windows"; }, "Unsupported",
     "windows"},
    {"node without an agent", [](World*, api::Checkpoint*, kube::Pod*, kube::Node* n) { n->meta.labels.erase(api::kNodeReady); },
     "Unsupported", "not ready for checkpoints"},
    {"unknown container", [](World*, api::Checkpoint* c, kube::Pod*, kube::Node*) { c->spec.containers = {"sidecar"}; }, "Unsupported",
     "it has: main"},
    {"finished container",
     [](World*, api::Checkpoint*, kube::Pod* p, kube::Node*) {
       p->restart_policy = "Never";
       p->container_statuses[0].running = false;
       p->container_statuses[0].terminated = true;
     },
     "Unsupported", "has finished"},
    {"job at its limit",
     [](World* w, api::Checkpoint*, kube::Pod*, kube::Node*) {
       kube::Workload job;
       job.meta.name = "sum";
       job.backoff_limit = 0;
       w->lineage.owner.kind = "Job";
       w->lineage.workload = Share(job);
     },
     "Unsupported", "DisruptionTarget"},
};

TEST(Checkpoint, RefusesWhatCannotWorkBeforeAnythingIsFrozen) {
  for (const Refusal& c : kRefusals) {
    SCOPED_TRACE(c.what);
    const Step step = Next(With(c.change), At(1));
    ASSERT_EQ(step.action, Action::kPatchStatus);
    EXPECT_EQ(PhaseOf(step), "Failed");
    EXPECT_EQ(ReasonOf(step), c.reason);
    EXPECT_NE(MessageOf(step).find(c.says), std::string::npos) << MessageOf(step);
    EXPECT_NE(MessageOf(step).find("default/web-a"), std::string::npos) << MessageOf(step);
    ASSERT_TRUE(step.notice);
    EXPECT_TRUE(step.notice->warning);
    EXPECT_EQ(step.notice->on_pod, std::string(c.what) != "no pod" && std::string(c.what) != "another uid");
  }
}

TEST(Checkpoint, AJobThatIgnoresDisruptionsMayBeDrained) {
  World w = With([](World* world, api::Checkpoint*, kube::Pod*, kube::Node*) {
    kube::Workload job;
    job.backoff_limit = 0;
    job.ignores_disruption_target = true;
    world->lineage.owner.kind = "Job";
    world->lineage.workload = Share(job);
  });
  EXPECT_EQ(PhaseOf(Next(w, At(1))), "Assigned");
}

TEST(Checkpoint, APlainPodMayHaveANonFinalOne) {
  EXPECT_EQ(PhaseOf(Next(With([](World*, api::Checkpoint* c, kube::Pod* p, kube::Node*) {
                           p->runtime_class = "";
                           c->spec.final = false;
                           c->spec.trigger = api::Trigger::kManual;
                         }),
                         At(1))),
            "Assigned");
}

TEST(Checkpoint, WaitsForAPodThatDoesNotRunYetAndSaysSoOnce) {
  World w = With([](World*, api::Checkpoint*, kube::Pod* p, kube::Node*) { p->phase = "Pending"; });
  Step step = Next(w, At(1));
  ASSERT_EQ(step.action, Action::kPatchStatus);
  EXPECT_EQ(PhaseOf(step), "Pending");
  EXPECT_EQ(ReasonOf(step), "Waiting");
  ASSERT_TRUE(step.again);
  EXPECT_LE(*step.again, std::chrono::seconds(99));
  api::Checkpoint told = *w.checkpoint;
  told.status.conditions = {{"Ready", "False", "Waiting", MessageOf(step), FormatTime(At(1)), 0}};
  w.checkpoint = Share(told);
  EXPECT_EQ(Next(w, At(2)).action, Action::kNothing);
}

TEST(Checkpoint, AnEndlessReasonIsWrittenOnceToo) {
  World w = Seen();
  w.admission = Admission{.waits_for = std::string(100000, 'x'), .budget = true};
  const Step step = Next(w, At(1));
  ASSERT_EQ(step.action, Action::kPatchStatus);
  api::Checkpoint told = *w.checkpoint;
  told.status.conditions = {*api::Checkpoint::FromJson(step.patch).Ready()};
  EXPECT_LE(told.Ready()->message.size(), 4096u);
  w.checkpoint = Share(told);
  EXPECT_EQ(Next(w, At(2)).action, Action::kNothing);
}

TEST(Checkpoint, GivesUpWaitingAtItsDeadline) {
  World w = With([](World*, api::Checkpoint*, kube::Pod* p, kube::Node*) { p->phase = "Pending"; });
  const Step step = Next(w, At(100));
  EXPECT_EQ(PhaseOf(step), "Failed");
  EXPECT_EQ(ReasonOf(step), "Deadline");
}

TEST(Checkpoint, WaitsWhileAnotherOneHasThePodInHand) {
  World w = Seen();
  w.other = Share(InPhase(Phase::kDumping));
  EXPECT_EQ(PhaseOf(Next(w, At(1))), "Pending");
}

TEST(Checkpoint, ADrainAsksForItsTurnAndAManualOneDoesNot) {
  World w = Seen();
  w.admission.reset();
  EXPECT_EQ(Next(w, At(1)).action, Action::kAskAdmission);
  api::Checkpoint manual = *w.checkpoint;
  manual.spec.trigger = api::Trigger::kManual;
  w.checkpoint = Share(manual);
  EXPECT_EQ(PhaseOf(Next(w, At(1))), "Assigned");
}

TEST(Checkpoint, BehindABudgetItWaitsAndThenGoesWithoutATrace) {
  World w = Seen();
  w.admission = Admission{.waits_for = "PodDisruptionBudget default/web allows no disruption now", .budget = true};
  Step step = Next(w, At(1));
  EXPECT_EQ(PhaseOf(step), "Pending");
  EXPECT_EQ(*step.again, std::chrono::seconds(2));
  step = Next(w, At(100));
  EXPECT_EQ(step.action, Action::kDelete) << "nothing was frozen; a Failed one would let the next eviction go without trying";
}

TEST(Checkpoint, InTheQueueOfItsNodeItWaitsBeyondItsDeadlineWhichBeginsWithItsTurn) {
  World w = Seen();
  w.admission = Admission{.waits_for = "4 of at most 4 checkpoints are under way on node node-a, 11 wait before it", .queued = true};
  const Step waits = Next(w, At(500));
  EXPECT_EQ(PhaseOf(waits), "Pending");
  EXPECT_EQ(ReasonOf(waits), "Queued");
  EXPECT_EQ(*waits.again, std::chrono::seconds(2));
  EXPECT_EQ(ReasonOf(Next(w, At(3600))), "Deadline") << "nobody waits for ever";
  w.admission = Admission{.granted = true};
  api::Checkpoint c = InPhase(Phase::kAssigned);
  const Step turn = Next(w, At(500));
  ASSERT_EQ(PhaseOf(turn), "Assigned");
  c.status.started_at = GetString(turn.patch, {"status", "startedAt"});
  w.checkpoint = Share(c);
  EXPECT_EQ(Next(w, At(614)).action, Action::kNothing);
  EXPECT_EQ(ReasonOf(Next(w, At(615))), "Deadline");
}

TEST(Checkpoint, BehindOthersThatDoNotGetOnItWaitsUntilItsDeadline) {
  World w = Seen();
  w.admission = Admission{.waits_for = "4 of at most 4 checkpoints are under way on node node-a"};
  EXPECT_EQ(ReasonOf(Next(w, At(99))), "Waiting");
  EXPECT_EQ(ReasonOf(Next(w, At(100))), "Deadline");
}

// Hole 5: one deadline, written down, which all go by.
TEST(Checkpoint, ItsDeadlineIsWrittenWithTheAssignmentAndNoLongerThanADrainMayHave) {
  World w = Seen();
  EXPECT_EQ(GetString(Next(w, At(500)).patch, {"status", "deadlineAt"}), FormatTime(At(600)));
  w.admission = Admission{.granted = true, .most = std::chrono::seconds(40)};
  EXPECT_EQ(GetString(Next(w, At(500)).patch, {"status", "deadlineAt"}), FormatTime(At(540)));
  w.admission = Admission{.granted = true, .most = std::chrono::hours(1)};
  EXPECT_EQ(GetString(Next(w, At(500)).patch, {"status", "deadlineAt"}), FormatTime(At(600)));
  api::Checkpoint c = InPhase(Phase::kAssigned);
  c.status.started_at = FormatTime(At(500));
  c.status.deadline_at = FormatTime(At(540));
  w.checkpoint = Share(c);
  EXPECT_EQ(Next(w, At(554)).action, Action::kNothing);
  EXPECT_EQ(ReasonOf(Next(w, At(555))), "Deadline");
  c.status.deadline_at = "";  // of an earlier release
  w.checkpoint = Share(c);
  EXPECT_EQ(Next(w, At(614)).action, Action::kNothing);
}

api::Checkpoint After(const World& w, const Step& step) {
  api::Checkpoint c = *w.checkpoint;
  const api::Checkpoint written = api::Checkpoint::FromJson(step.patch);
  c.status.phase = written.status.phase;
  c.status.conditions = written.status.conditions;
  if (!written.status.queued_until.empty()) c.status.queued_until = written.status.queued_until;
  return c;
}

TEST(Checkpoint, InTheQueueItSaysItsPlaceAndHowLongItWaits) {
  World w = Seen();
  w.admission = Admission{.waits_for = "3 wait before it", .queued = true, .position = 4, .about = std::chrono::seconds(80)};
  const Step waits = Next(w, At(1));
  EXPECT_EQ(waits.patch["status"]["queue"], Json({{"position", 4}, {"about", "1m20s"}, {"until", FormatTime(At(3600))}}));
  ASSERT_TRUE(waits.notice);
  EXPECT_EQ(waits.notice->reason, "Queued");
  EXPECT_TRUE(waits.notice->on_pod);
  w.checkpoint = Share(After(w, waits));
  EXPECT_EQ(Next(w, At(3)).action, Action::kNothing);
  w.admission = Admission{.waits_for = "2 wait before it", .queued = true, .position = 3};
  const Step nearer = Next(w, At(5));
  EXPECT_EQ(nearer.patch["status"]["queue"], Json({{"position", 3}, {"about", nullptr}, {"until", FormatTime(At(3600))}}));
  EXPECT_FALSE(nearer.notice) << "told once";
  w.admission = Admission{.granted = true};
  EXPECT_TRUE(Next(w, At(500)).patch["status"]["queue"].is_null());
}

// Hole 5: time in the queue counted, once something else was in its way for a moment.
TEST(Checkpoint, WhatIsInItsWayAfterItsTimeInTheQueueHasTimeOfItsOwn) {
  World w = Seen();
  w.admission = Admission{.waits_for = "3 wait before it", .queued = true, .position = 4};
  w.checkpoint = Share(After(w, Next(w, At(1))));
  w.admission = Admission{.waits_for = "its eviction would fail: no answer"};
  const Step step = Next(w, At(500));
  EXPECT_EQ(PhaseOf(step), "Pending");
  EXPECT_EQ(GetString(step.patch, {"status", "queue", "until"}), FormatTime(At(600)));
  w.checkpoint = Share(After(w, step));
  EXPECT_EQ(WaitedForUntil(*w.checkpoint), At(615)) << "the eviction is held back as long";
  EXPECT_EQ(Next(w, At(599)).action, Action::kNothing);
  const Step failed = Next(w, At(600));
  EXPECT_EQ(ReasonOf(failed), "Deadline");
  w.admission = Admission{.waits_for = "3 wait before it", .queued = true, .position = 4};
  EXPECT_EQ(GetString(Next(w, At(550)).patch, {"status", "queue", "until"}), FormatTime(At(3600))) << "in the queue again";
  w.admission = Admission{.waits_for = "PodDisruptionBudget default/web allows no disruption now", .budget = true};
  EXPECT_EQ(PhaseOf(Next(w, At(550))), "Pending");
  EXPECT_EQ(Next(w, At(600)).action, Action::kDelete);
}

World Stopping(Phase phase) {
  World w = Seen();
  api::Checkpoint c = InPhase(phase);
  c.spec.trigger = api::Trigger::kStop;
  c.spec.deadline = std::chrono::minutes(10);
  w.checkpoint = Share(c);
  w.admission.reset();
  kube::Pod pod = *w.pod;
  pod.meta.deletion_timestamp = FormatTime(At(30));
  w.pod = Share(pod);
  return w;
}

TEST(Checkpoint, OfAPodThatIsBeingStoppedIsAssignedAtOnce) {
  EXPECT_EQ(PhaseOf(Next(Stopping(Phase::kPending), At(1))), "Assigned");
  World manual = Stopping(Phase::kPending);
  manual.checkpoint = Share(WebDrain());
  EXPECT_EQ(ReasonOf(Next(manual, At(1))), "PodGone") << "any other one comes too late";
}

TEST(Checkpoint, OfAStoppedPodThatIsGoneIsNotWaitedForWhenNoAgentTookItUp) {
  World w = Stopping(Phase::kAssigned);
  EXPECT_EQ(Next(w, At(100)).action, Action::kNothing);
  w.pod = nullptr;
  EXPECT_EQ(Next(w, At(59)).action, Action::kNothing);
  EXPECT_EQ(ReasonOf(Next(w, At(60))), "PodGone");
}

TEST(Checkpoint, OfAStoppedPodGoesWhenNobodyWentOnFromIt) {
  World w = Stopping(Phase::kReady);
  w.pod = nullptr;
  EXPECT_EQ(Next(w, At(60)).action, Action::kNothing);
  EXPECT_EQ(Next(w, At(3700)).action, Action::kDelete);
  api::Checkpoint c = *w.checkpoint;
  c.spec.pinned = true;
  w.checkpoint = Share(c);
  EXPECT_EQ(Next(w, At(3700)).action, Action::kNothing);
  c.spec.pinned = false;
  c.spec.trigger = api::Trigger::kDrain;
  w.checkpoint = Share(c);
  EXPECT_EQ(Next(w, At(3700)).action, Action::kNothing) << "that of a drain stays";
}

TEST(Checkpoint, WhatNoPodCouldBeRestoredFromSaysSoOnceAndUntilItCould) {
  World w;
  api::Checkpoint c = InPhase(Phase::kReady);
  for (const char* n : {"1", "2", "3"}) {
    c.status.restores.push_back(
        {std::string("web-") + n, "node-b", FormatTime(At(12)), "Failed", "CRIU: Error", 0, false, std::string("uid-") + n, 3});
  }
  w.checkpoint = Share(c);
  const Step step = Next(w, At(20));
  ASSERT_EQ(step.action, Action::kPatchStatus);
  ASSERT_TRUE(step.notice);
  EXPECT_EQ(step.notice->reason, std::string("Quarantined"));
  EXPECT_NE(step.notice->note.find("holdfast.dev/from-checkpoint"), std::string::npos) << step.notice->note;
  const api::Checkpoint marked = api::Checkpoint::FromJson(step.patch);
  const api::Condition* said = kube::FindCondition(marked.status.conditions, api::kQuarantined);
  ASSERT_NE(said, nullptr);
  EXPECT_EQ(said->status, "True");
  EXPECT_NE(said->message.str().find("in 9 attempts"), std::string::npos) << said->message.str();
  c.status.conditions = marked.status.conditions;
  w.checkpoint = Share(c);
  EXPECT_EQ(Next(w, At(21)).action, Action::kNothing) << "once";
  c.status.restores.push_back({"web-9", "node-b", FormatTime(At(30)), "Restored", "", 0.5, false, "uid-9"});
  w.checkpoint = Share(c);
  const Step mended = Next(w, At(31));
  ASSERT_EQ(mended.action, Action::kPatchStatus);
  EXPECT_EQ(kube::FindCondition(api::Checkpoint::FromJson(mended.patch).status.conditions, api::kQuarantined), nullptr);
}

TEST(Checkpoint, TheControllerGivesUpOnlyWhatNoAgentTookUp) {
  for (Phase phase : {Phase::kFreezing, Phase::kDumping, Phase::kStoring}) {
    World w = Seen();
    w.checkpoint = Share(InPhase(phase));
    EXPECT_EQ(Next(w, At(100000)).action, Action::kNothing) << api::PhaseName(phase) << ": a commit may be on its way";
  }
  World w = Seen();
  w.checkpoint = Share(InPhase(Phase::kAssigned));
  EXPECT_EQ(Next(w, At(114)).action, Action::kNothing);
  EXPECT_EQ(ReasonOf(Next(w, At(115))), "Deadline");
}

TEST(Checkpoint, WaitsWhileItsNamespaceIsOverItsQuotaAndThenFails) {
  World w = Seen();
  w.over_quota = "the checkpoints of namespace default take 6 GiB of its quota 5 GiB";
  const Step wait = Next(w, At(1));
  EXPECT_EQ(PhaseOf(wait), "Pending");
  EXPECT_EQ(MessageOf(wait), w.over_quota);
  EXPECT_TRUE(wait.again);
  const Step failed = Next(w, At(101));
  EXPECT_EQ(PhaseOf(failed), "Failed");
  EXPECT_EQ(ReasonOf(failed), "StoreFull");
}

TEST(Checkpoint, RemembersThePolicyThatItsPodFollowed) {
  World w = Seen();
  EXPECT_FALSE(Next(w, At(1)).patch["status"].contains("policy")) << "the built-in one has no name";
  w.policy = "gold";
  EXPECT_EQ(GetString(Next(w, At(1)).patch, {"status", "policy"}), "gold");
  // Hole 9: what it was allowed is written down by who cannot lie about it, before its node has a word.
  kube::Pod privileged = *w.pod;
  privileged.containers[0].security = R"({"privileged":true})";
  w.pod = Share(privileged);
  EXPECT_EQ(Next(w, At(1)).patch["status"]["security"]["containers"][0]["privileged"], true);
}

TEST(Checkpoint, DeletionTakesTheContentLast) {
  World w = Seen();
  w.pod = nullptr;
  api::Checkpoint c = InPhase(Phase::kReady);
  c.meta.deletion_timestamp = FormatTime(At(20));
  w.checkpoint = Share(c);
  EXPECT_EQ(Next(w, At(20)).action, Action::kRemoveContent);

  c.meta.finalizers.clear();
  w.checkpoint = Share(c);
  EXPECT_EQ(Next(w, At(20)).action, Action::kNothing);
}

TEST(Checkpoint, DeletionWaitsForTheAgentAndForWhoRestores) {
  World w = Seen();
  api::Checkpoint c = InPhase(Phase::kStoring);
  c.meta.deletion_timestamp = FormatTime(At(20));
  w.checkpoint = Share(c);
  EXPECT_EQ(Next(w, At(20)).action, Action::kNothing);
  EXPECT_EQ(Next(w, At(116)).action, Action::kRemoveContent);

  c = InPhase(Phase::kReady);
  c.meta.deletion_timestamp = FormatTime(At(20));
  c.status.claim = api::Claim{"web-b", "uid-b", FormatTime(At(15))};
  kube::Pod claimant = WebPod("web-b", "uid-b");
  claimant.phase = "Pending";
  w.claimant = Share(claimant);
  w.checkpoint = Share(c);
  EXPECT_EQ(Next(w, At(20)).action, Action::kNothing);
  claimant.phase = "Failed";  // and stays, as a Job's does
  w.claimant = Share(claimant);
  EXPECT_EQ(Next(w, At(20)).action, Action::kRemoveContent);
  claimant.phase = "Pending";
  w.claimant = Share(claimant);
  c.status.restores = {{"web-b", "node-b", FormatTime(At(18)), "Restored", "", 0.5}};
  w.checkpoint = Share(c);
  EXPECT_EQ(Next(w, At(20)).action, Action::kRemoveContent);
}

TEST(Checkpoint, DeletingTheOneOfAFrozenPodThawsThePod) {
  World w = Seen();
  api::Checkpoint c = InPhase(Phase::kReady);
  c.meta.deletion_timestamp = FormatTime(At(20));
  w.checkpoint = Share(c);
  EXPECT_EQ(Next(w, At(20)).action, Action::kReclaim);
  // Not while a scale-down may be on its way that rests on it: the process would run on, and be ended.
  w.relied_on = true;
  const Step step = Next(w, At(20));
  EXPECT_EQ(step.action, Action::kNothing);
  EXPECT_TRUE(step.again);
}

TEST(LostInTheMiddle, ACheckpointThatALostNodeWasMakingFails) {
  World w;
  api::Checkpoint c = InPhase(Phase::kStoring);
  c.spec.final = false;
  w.checkpoint = Share(c);
  EXPECT_EQ(Next(w, At(60)).action, Action::kNothing) << "its deadline has not passed";
  EXPECT_EQ(Next(w, At(200)).action, Action::kPatchStatus) << "its node's object was deleted";
  kube::Node node = ReadyNode();
  w.node = Share(node);
  EXPECT_EQ(Next(w, At(200)).action, Action::kNothing) << "its agent may still come back";
  node.taint_keys = {"node.kubernetes.io/out-of-service"};
  w.node = Share(node);
  const Step step = Next(w, At(200));
  EXPECT_EQ(GetString(step.patch, {"status", "phase"}), "Failed");
  EXPECT_NE(step.why.find("node-a"), std::string::npos);
  c.spec.final = true;
  w.checkpoint = Share(c);
  EXPECT_EQ(Next(w, At(200)).action, Action::kNothing) << "its pod may be frozen, and committed";
}

}  // namespace
}  // namespace holdfast::reconcilers::checkpoint
