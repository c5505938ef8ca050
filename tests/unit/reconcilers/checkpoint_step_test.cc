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
  w.admission = Admission{true, "", false};
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
    {"nvidia", [](World*, api::Checkpoint*, kube::Pod* p, kube::Node*) { p->containers[0].limits["nvidia.com/gpu"] = "1"; }, "Unsupported",
     "GPU checkpointing is not available on this node"},
    {"amd", [](World*, api::Checkpoint*, kube::Pod* p, kube::Node*) { p->containers[0].limits["amd.com/gpu"] = "2"; }, "Unsupported",
     "GPU"},
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
  w.admission = Admission{false, std::string(100000, 'x'), true};
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
  w.admission = Admission{false, "PodDisruptionBudget default/web allows no disruption now", true};
  Step step = Next(w, At(1));
  EXPECT_EQ(PhaseOf(step), "Pending");
  EXPECT_EQ(*step.again, std::chrono::seconds(2));
  step = Next(w, At(100));
  EXPECT_EQ(step.action, Action::kDelete) << "nothing was frozen; a Failed one would let the next eviction go without trying";
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

TEST(Checkpoint, TtlEndsOnlyWhatNobodyNeeds) {
  struct Case {
    const char* what;
    void (*change)(World*, api::Checkpoint*);
    Action action;
  };
  const Case kCases[] = {
      {"over", [](World*, api::Checkpoint*) {}, Action::kDelete},
      {"not over", [](World*, api::Checkpoint* c) { c->spec.ttl = std::chrono::hours(2); }, Action::kNothing},
      {"pinned", [](World*, api::Checkpoint* c) { c->spec.pinned = true; }, Action::kNothing},
      {"last good of a live workload", [](World* w, api::Checkpoint*) { w->last_good = true; }, Action::kNothing},
      {"being restored",
       [](World* w, api::Checkpoint* c) {
         c->status.claim = api::Claim{"web-b", "uid-b", FormatTime(At(20))};
         kube::Pod claimant = WebPod("web-b", "uid-b");
         claimant.phase = "Pending";
         w->claimant = Share(claimant);
       },
       Action::kNothing},
  };
  for (const Case& c : kCases) {
    World w = Seen();
    w.pod = nullptr;
    api::Checkpoint ready = InPhase(Phase::kReady);
    ready.spec.ttl = std::chrono::hours(1);
    c.change(&w, &ready);
    w.checkpoint = Share(ready);
    EXPECT_EQ(Next(w, At(3611)).action, c.action) << c.what;
  }
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
}

// Restored drain checkpoints, newest first: number i was claimed by pod uid-(i), taken from uid-(i+1).
std::vector<CheckpointPtr> Lineage(int count) {
  std::vector<CheckpointPtr> out;
  for (int i = 0; i < count; ++i) {
    api::Checkpoint c = InPhase(Phase::kReady, "web-" + std::to_string(i + 1), "uid-" + std::to_string(i + 1));
    c.status.completed_at = FormatTime(At(1000 - i));
    c.status.claim = api::Claim{"web-" + std::to_string(i), "uid-" + std::to_string(i), FormatTime(At(1000 - i))};
    c.status.restores = {{"web-" + std::to_string(i), "node-b", FormatTime(At(1001 - i)), "Restored", "", 0.5}};
    out.push_back(Share(c));
  }
  return out;
}

TEST(Retention, KeepsTheNewestOfEachOwner) {
  const auto dropped = Superseded(Lineage(5), 3, [](const std::string& uid) { return uid == "uid-0"; });
  ASSERT_EQ(dropped.size(), 2u);
  EXPECT_EQ(dropped[0]->spec.pod_uid, "uid-4");
  EXPECT_EQ(dropped[1]->spec.pod_uid, "uid-5");
}

TEST(Retention, NeverTakesTheLastGoodOneOfALivePod) {
  // Five replicas, each restored from a checkpoint of its own and alive.
  std::vector<CheckpointPtr> replicas;
  for (const CheckpointPtr& c : Lineage(5)) {
    api::Checkpoint own = *c;
    own.spec.pod_uid = "gone-" + own.spec.pod_uid;
    replicas.push_back(Share(own));
  }
  EXPECT_TRUE(Superseded(replicas, 3, [](const std::string&) { return true; }).empty());
}

TEST(Retention, LeavesPinnedUnclaimedAndOtherTriggersAlone) {
  auto all = Lineage(5);
  api::Checkpoint pinned = *all[4], unclaimed = *all[3];
  pinned.spec.pinned = true;
  unclaimed.status.claim.reset();
  all[4] = Share(pinned);
  all[3] = Share(unclaimed);
  EXPECT_TRUE(Superseded(all, 3, [](const std::string&) { return false; }).empty());
}

TEST(Retention, CountsOrdinalsApart) {
  auto all = Lineage(4);
  api::Checkpoint other = *all[3];
  other.status.owner.ordinal = "1";
  all[3] = Share(other);
  EXPECT_TRUE(Superseded(all, 3, [](const std::string&) { return false; }).empty());
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

// `count` unclaimed ones of one pod, newest first.
std::vector<CheckpointPtr> Intervals(int count, const std::string& pod_uid, Phase phase = Phase::kReady) {
  std::vector<CheckpointPtr> all;
  for (int i = 0; i < count; ++i) {
    api::Checkpoint c = InPhase(phase, "pod-" + pod_uid, pod_uid);
    c.meta.name = c.meta.uid = pod_uid + "-" + std::to_string(i);
    c.spec.final = false;
    c.spec.trigger = api::Trigger::kInterval;
    c.status.completed_at = FormatTime(At(1000 - 10 * i));
    all.push_back(Share(c));
  }
  return all;
}

TEST(Retention, KeepsTheNewestIntervalOnesOfEachPod) {
  auto all = Intervals(5, "uid-a");
  for (const CheckpointPtr& c : Intervals(3, "uid-b")) all.push_back(c);
  const auto dropped = Superseded(all, 3, [](const std::string&) { return true; });
  ASSERT_EQ(dropped.size(), 2u) << "replicas share an owner, not a state";
  EXPECT_EQ(dropped[0]->meta.name, "uid-a-3");
  EXPECT_EQ(dropped[1]->meta.name, "uid-a-4");
}

TEST(Retention, OfALostPodDropsWhatWillNeverBeRestored) {
  auto all = Intervals(3, "uid-a");
  api::Checkpoint used = *all[0];
  used.status.claim = api::Claim{"web-b", "uid-b", FormatTime(At(1100))};
  all[0] = Share(used);
  auto lives = [](const std::string& uid) { return uid == "uid-b"; };
  EXPECT_TRUE(Superseded(all, 3, lives).empty()) << "the restore may still fail";
  used.status.restores = {{"web-b", "node-b", FormatTime(At(1101)), "Restored", "", 1.0}};
  all[0] = Share(used);
  auto dropped = Superseded(all, 3, lives);
  ASSERT_EQ(dropped.size(), 2u) << "what the heir came from stays";
  EXPECT_EQ(dropped[0]->meta.name, "uid-a-1");
  for (const CheckpointPtr& c : Intervals(1, "uid-b")) {
    api::Checkpoint newer = *c;
    newer.status.completed_at = FormatTime(At(2000));
    all.push_back(Share(newer));
  }
  EXPECT_EQ(Superseded(all, 3, lives).size(), 3u) << "the heir has one of its own now";
  EXPECT_EQ(Superseded(all, 3, [](const std::string&) { return true; }).size(), 2u) << "the old pod's node is still to learn of the claim";
}

TEST(Retention, KeepsAFewFailedIntervalOnesWhileTheirPodLives) {
  EXPECT_EQ(Superseded(Intervals(5, "uid-a", Phase::kFailed), 3, [](const std::string&) { return true; }).size(), 2u);
  EXPECT_EQ(Superseded(Intervals(5, "uid-a", Phase::kFailed), 3, [](const std::string&) { return false; }).size(), 5u);
}

}  // namespace
}  // namespace holdfast::reconcilers::checkpoint
