#include <gtest/gtest.h>

#include "reconcilers/claim/step.h"
#include "tests/unit/reconcilers/world.h"

namespace holdfast::reconcilers::claim {
namespace {

using api::Phase;
using namespace reconcilers::testing;  // NOLINT(google-build-using-namespace)

kube::Pod Successor() {
  kube::Pod pod = WebPod("web-b", "uid-b");
  pod.phase = "Pending";
  pod.node_name = "";
  pod.scheduling_gates = {api::kClaimGate};
  pod.meta.creation_timestamp = FormatTime(At(5));
  return pod;
}

World Seen(std::vector<Candidate> candidates) {
  World w;
  w.pod = Share(Successor());
  w.lineage.owner = WebOwner();
  w.protection.on = true;
  w.protection.policy = Share(api::RestorePolicy());
  w.candidates = std::move(candidates);
  return w;
}

Candidate Of(const api::Checkpoint& c, PodPtr pod = nullptr) { return {Share(c), std::move(pod), nullptr, nullptr}; }

PodPtr Dying() {
  kube::Pod pod = WebPod();
  pod.meta.deletion_timestamp = FormatTime(At(12));
  return Share(pod);
}

TEST(Claim, TakesTheNewestFinalReadyOneOfItsSeat) {
  api::Checkpoint old = InPhase(Phase::kReady, "web-z", "uid-z"), fresh = InPhase(Phase::kReady);
  old.status.completed_at = FormatTime(At(-500));
  const Step step = Next(Seen({Of(old), Of(fresh, Dying())}), At(20));
  ASSERT_EQ(step.action, Action::kClaim);
  EXPECT_EQ(step.checkpoint->spec.pod_uid, "uid-a");
}

struct NotMine {
  const char* what;
  void (*change)(api::Checkpoint*);
};
const NotMine kNotMine[] = {
    {"another template", [](api::Checkpoint* c) { c->status.owner.template_hash = "h2"; }},
    {"another owner", [](api::Checkpoint* c) { c->status.owner.uid = "uid-other"; }},
    {"another ordinal", [](api::Checkpoint* c) { c->status.owner.ordinal = "1"; }},
    {"not final", [](api::Checkpoint* c) { c->spec.final = false; }},
    {"claimed by another",
     [](api::Checkpoint* c) {
       c->status.claim = api::Claim{"web-c", "uid-c", ""};
       c->status.restores = {{"web-c", "node-b", FormatTime(At(12)), "Restored", "", 0.5}};
     }},
    {"being deleted", [](api::Checkpoint* c) { c->meta.deletion_timestamp = "2026-06-01T12:00:00Z"; }},
    {"failed", [](api::Checkpoint* c) { c->status.phase = Phase::kFailed; }},
    {"with a container that the pod lacks",
     [](api::Checkpoint* c) {
       c->status.containers = {{"sidecar", "", "", 1, true, ""}};
     }},
    {"not restorable",
     [](api::Checkpoint* c) {
       c->status.containers = {{"main", "", "", 1, false, "io_uring"}};
     }},
};

TEST(Claim, LeavesWhatIsNotItsOwn) {
  for (const NotMine& c : kNotMine) {
    api::Checkpoint other = InPhase(Phase::kReady);
    c.change(&other);
    const Step step = Next(Seen({Of(other)}), At(20));
    EXPECT_EQ(step.action, Action::kCold) << c.what;
    EXPECT_TRUE(step.notice) << "never silently";
  }
}

TEST(Claim, WaitsForTheEndOfAPodThatHasTheStateInVain) {
  api::Checkpoint given = InPhase(Phase::kReady);
  given.status.claim = api::Claim{"web-c", "uid-c", FormatTime(At(11))};
  kube::Pod claimant = WebPod("web-c", "uid-c");
  Candidate candidate = Of(given);
  candidate.claimant = Share(claimant);
  EXPECT_EQ(Next(Seen({candidate}), At(20)).action, Action::kCold) << "it is on its way into another replica";
  claimant.meta.deletion_timestamp = FormatTime(At(15));
  candidate.claimant = Share(claimant);
  EXPECT_EQ(Next(Seen({candidate}), At(20)).action, Action::kWait);
  EXPECT_FALSE(Next(Seen({candidate}), At(20)).notice);
  const Step overdue = Next(Seen({candidate}), At(60));
  ASSERT_TRUE(overdue.notice);
  EXPECT_EQ(overdue.notice->reason, "WaitsForPod");
  candidate.claimant = nullptr;
  EXPECT_EQ(Next(Seen({candidate}), At(20)).action, Action::kWait) << "until the claim is dropped";
  given.status.restores = {{"web-c", "node-b", FormatTime(At(12)), "Restored", "", 0.5}};
  EXPECT_EQ(Next(Seen({Of(given)}), At(20)).action, Action::kCold) << "it went on in web-c";
}

// A Job's pod stays when it has ended, and one that its node refused does: the next one neither takes it for a replica that has the state,
// nor waits until it is gone.
TEST(Claim, OfAPodThatHasEndedAndStaysIsAbandonedUnlessItRestored) {
  api::Checkpoint given = InPhase(Phase::kReady);
  given.status.claim = api::Claim{"web-c", "uid-c", FormatTime(At(11))};
  kube::Pod claimant = WebPod("web-c", "uid-c");
  claimant.phase = "Failed";
  Candidate candidate = Of(given);
  candidate.claimant = Share(claimant);
  EXPECT_TRUE(Abandoned(candidate));
  EXPECT_EQ(Next(Seen({candidate}), At(20)).action, Action::kWait) << "until the claim is dropped";
  given.status.restores = {{"web-c", "node-b", FormatTime(At(12)), "Started", "", 0}};
  candidate.checkpoint = Share(given);
  EXPECT_FALSE(Abandoned(candidate)) << "whether anything of it ran its agent has not said yet";
  EXPECT_EQ(Next(Seen({candidate}), At(20)).action, Action::kWait);
  given.status.restores = {{"web-c", "node-b", FormatTime(At(12)), "Restored", "", 0.5}};
  candidate.checkpoint = Share(given);
  EXPECT_FALSE(Abandoned(candidate));
  EXPECT_EQ(Next(Seen({candidate}), At(20)).action, Action::kCold) << "it went on in web-c, and ended by itself";
}

TEST(Claim, WaitsUntilItIsDecidedWhetherItsStoppedPredecessorIsCheckpointed) {
  kube::Pod stopped = *Dying();
  stopped.runtime_class = api::kRuntimeClass;
  World w = Seen({});
  w.on_stop = true;
  w.stopping = {Share(stopped)};
  EXPECT_EQ(Next(w, At(15)).action, Action::kWait);
  api::Checkpoint kept = InPhase(Phase::kDumping);
  kept.spec.trigger = api::Trigger::kStop;
  w.candidates = {Of(kept, w.stopping[0])};
  EXPECT_EQ(Next(w, At(15)).action, Action::kWait);
  kept.status.phase = Phase::kReady;
  kept.status.completed_at = FormatTime(At(14));
  w.candidates = {Of(kept, w.stopping[0])};
  EXPECT_EQ(Next(w, At(15)).action, Action::kClaim) << "it is dead, if not gone";
  w.candidates.clear();
  stopped.meta.annotations[api::kLetGo] = "container main has a preStop hook";
  w.stopping = {Share(stopped)};
  const Step cold = Next(w, At(15));
  EXPECT_EQ(cold.action, Action::kCold);
  ASSERT_TRUE(cold.notice);
  EXPECT_NE(cold.notice->note.find("preStop"), std::string::npos) << cold.notice->note;
}

// Hole 21 of docs/faults.md: whoever ends without its state being kept has a successor that says so.
TEST(Claim, ASuccessorOfAStoppedPodSaysSoWhereNobodyCheckpointsWhatIsStopped) {
  kube::Pod stopped = *Dying();
  stopped.runtime_class = api::kRuntimeClass;
  World w = Seen({});
  w.stopping = {Share(stopped)};
  w.others_run = true;
  const Step cold = Next(w, At(15));
  EXPECT_EQ(cold.action, Action::kCold);
  ASSERT_TRUE(cold.notice);
  EXPECT_NE(cold.notice->note.find("checkpointOnStop"), std::string::npos) << cold.notice->note;
  api::Checkpoint moved = InPhase(Phase::kReady);
  moved.status.claim = api::Claim{"web-c", "uid-c", FormatTime(At(12))};
  moved.status.restores = {{"web-c", "node-b", FormatTime(At(13)), "Restored", "", 0.5}};
  w.candidates = {Of(moved, w.stopping[0])};
  EXPECT_FALSE(Next(w, At(15)).notice) << "its state went on in web-c: this is one more";
}

TEST(Claim, OneMoreBesideOthersThatRunHasNoPredecessor) {
  World w = Seen({});
  w.others_run = true;
  const Step step = Next(w, At(15));
  EXPECT_EQ(step.action, Action::kCold);
  EXPECT_FALSE(step.notice);
}

TEST(Claim, WaitsWhileItsPredecessorIsBeingCheckpointedUpToTheDeadline) {
  for (Phase phase : {Phase::kPending, Phase::kAssigned, Phase::kFreezing, Phase::kDumping, Phase::kStoring}) {
    const World w = Seen({Of(InPhase(phase), Share(WebPod()))});
    // Its agent may have taken it up as late as its deadline, and has as long from there.
    const int until = phase == Phase::kPending || phase == Phase::kAssigned ? 115 : 215;
    EXPECT_EQ(Next(w, At(until - 1)).action, Action::kWait) << api::PhaseName(phase);
    EXPECT_EQ(Next(w, At(until)).action, Action::kCold) << api::PhaseName(phase);
  }
}

TEST(Claim, WaitsForTheEvictionOfAFrozenPredecessor) {
  const World w = Seen({Of(InPhase(Phase::kReady), Share(WebPod()))});
  EXPECT_EQ(Next(w, At(20)).action, Action::kWait) << "until it is dying, its own pod may still take it back";
  EXPECT_EQ(Next(w, At(70)).action, Action::kCold);
}

TEST(Claim, StartsColdWithTheReasonOfTheFailure) {
  api::Checkpoint failed = InPhase(Phase::kFailed);
  failed.status.conditions[0].message = "the store is full";
  const Step step = Next(Seen({Of(failed)}), At(20));
  EXPECT_EQ(step.action, Action::kCold);
  EXPECT_NE(step.notice->note.find("the store is full"), std::string::npos);
  EXPECT_TRUE(step.notice->on_checkpoint);
}

TEST(Claim, OpensTheGateForWhatItHasClaimed) {
  api::Checkpoint mine = InPhase(Phase::kReady);
  mine.status.claim = api::Claim{"web-b", "uid-b", FormatTime(At(15))};
  EXPECT_EQ(Next(Seen({Of(mine)}), At(20)).action, Action::kRelease);
}

TEST(Claim, DoesNothingForPodsWithoutTheGate) {
  World w = Seen({Of(InPhase(Phase::kReady))});
  kube::Pod open = *w.pod;
  open.scheduling_gates = {"kueue.x-k8s.io/admission"};
  w.pod = Share(open);
  EXPECT_EQ(Next(w, At(20)).action, Action::kNothing);
}

TEST(Claim, RespectsMaxAge) {
  World w = Seen({Of(InPhase(Phase::kReady))});
  api::RestorePolicy policy;
  policy.spec.restore.max_age = std::chrono::hours(1);
  w.protection.policy = Share(policy);
  EXPECT_EQ(Next(w, At(10 + 3600)).action, Action::kClaim);
  EXPECT_EQ(Next(w, At(10 + 3601)).action, Action::kCold);
}

World SeenAsking(std::vector<Candidate> candidates) {
  World w = Seen(std::move(candidates));
  kube::Pod pod = *w.pod;
  pod.meta.annotations[api::kFromCheckpoint] = "snap";
  w.pod = Share(pod);
  return w;
}

api::Checkpoint Snapshot() {
  api::Checkpoint c = InPhase(Phase::kReady, "old", "uid-old");
  c.meta.name = "snap";
  c.spec.trigger = api::Trigger::kManual;
  c.spec.final = false;
  c.status.owner = {"Pod", "old", "uid-old", "", ""};
  c.status.containers = {{"main", "", "", 1, true, ""}};
  return c;
}

TEST(Claim, WhatWasSuspendedIsNeverTooOldForIt) {
  api::Checkpoint c = InPhase(Phase::kReady);
  c.spec.trigger = api::Trigger::kSuspend;
  World w = Seen({Of(c)});
  api::RestorePolicy policy;
  policy.spec.restore.max_age = std::chrono::hours(1);
  w.protection.policy = Share(policy);
  EXPECT_EQ(Next(w, At(7 * 86'400)).action, Action::kClaim);
}

TEST(Claim, FollowsAUsersRequestForANonFinalOne) {
  const Step step = Next(SeenAsking({Of(Snapshot())}), At(20));
  ASSERT_EQ(step.action, Action::kClaim);
  EXPECT_EQ(step.checkpoint->meta.name, "snap");
}

// Else a template that names a checkpoint would hold the second of its pods, and each one after.
TEST(Claim, WhatATemplateAskedForIsGivenOnceAndThenWhatWasMadeSince) {
  api::Checkpoint asked = Snapshot();
  asked.spec.final = true;
  asked.status.claim = api::Claim{"web-1", "uid-1", FormatTime(At(3))};
  api::Checkpoint since = InPhase(Phase::kReady, "web-1", "uid-1");
  since.meta.name = "drain-web-1";
  since.meta.creation_timestamp = FormatTime(At(5));
  const Step step = Next(SeenAsking({Of(asked), Of(since)}), At(20));
  ASSERT_EQ(step.action, Action::kClaim) << step.why;
  EXPECT_EQ(step.checkpoint->meta.name, "drain-web-1");
  EXPECT_THAT(Next(SeenAsking({Of(asked)}), At(20)).why, ::testing::HasSubstr("has claimed it"));
}

TEST(Claim, HoldsAPodThatAskedForWhatCannotBe) {
  struct Case {
    const char* what;
    void (*change)(World*, api::Checkpoint*);
    const char* says;
  };
  const Case kCases[] = {
      {"no such", [](World*, api::Checkpoint* c) { c->meta.name = "other"; }, "no such Checkpoint"},
      {"failed", [](World*, api::Checkpoint* c) { c->status.phase = Phase::kFailed; }, "it failed"},
      {"claimed",
       [](World*, api::Checkpoint* c) {
         c->status.claim = api::Claim{"web-c", "uid-c", ""};
       },
       "has claimed it"},
      {"container", [](World*, api::Checkpoint* c) { c->status.containers[0].name = "sidecar"; }, "sidecar"},
      {"volume",
       [](World* w, api::Checkpoint*) {
         kube::Pod pod = *w->pod;
         kube::Volume volume;
         volume.name = "data";
         volume.type = "persistentVolumeClaim";
         volume.claim_name = "data-0";
         pod.volumes = {volume};
         pod.containers[0].mounts = {{"data", "/data", false}};
         w->pod = Share(pod);
       },
       "IgnoreDrift"},
      // Hole 9: a pod of a restricted namespace must not bring back what a privileged one was.
      {"rights", [](World*, api::Checkpoint* c) { c->status.security = R"({"containers":[{"name":"main","privileged":true}]})"; },
       "of its container main: it was privileged"},
      {"host", [](World*, api::Checkpoint* c) { c->status.security = R"({"hostPID":true,"containers":[{"name":"main"}]})"; }, "hostPID"},
      {"image", [](World*, api::Checkpoint* c) { c->status.security = R"({"containers":[{"name":"main","image":"another:1"}]})"; },
       "ran the image another:1"},
      {"mount", [](World*, api::Checkpoint* c) { c->status.security = R"({"containers":[{"name":"main","mounts":[{"path":"/data"}]}]})"; },
       "had a volume mounted at /data"},
      {"memory",
       [](World* w, api::Checkpoint* c) {
         kube::Pod pod = *w->pod;
         pod.containers[0].limits["memory"] = "64Mi";
         w->pod = Share(pod);
         c->status.containers[0].pages = 65 * 256;
         c->status.security = R"({"containers":[{"name":"main","memory":"128Mi"}]})";
       },
       "Raise resources.limits.memory to more than 65Mi"},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.what);
    World w = SeenAsking({});
    api::Checkpoint snapshot = Snapshot();
    c.change(&w, &snapshot);
    w.candidates = {Of(snapshot)};
    Step step = Next(w, At(20));
    EXPECT_EQ(step.action, Action::kWait);
    ASSERT_TRUE(step.notice);
    EXPECT_NE(step.notice->note.find(c.says), std::string::npos) << step.notice->note;
    EXPECT_NE(step.notice->note.find("remove the annotation"), std::string::npos) << "it says what to do";
    // Unless a policy of the user's own says that a cold start is better than none.
    api::RestorePolicy policy;
    policy.meta.name = "lenient";
    w.protection.policy = Share(policy);
    EXPECT_EQ(Next(w, At(20)).action, Action::kCold);
  }
}

// Hole 9, for a successor: its own namespace may allow it less than its predecessor had.
TEST(Claim, ASuccessorThatIsAllowedLessStartsColdAndSaysWhy) {
  api::Checkpoint c = InPhase(Phase::kReady);
  c.status.containers = {{"main", "", "", 1, true, ""}};
  c.status.security = R"({"containers":[{"name":"main","capabilities":{"add":["SYS_ADMIN"]}}]})";
  const Step step = Next(Seen({Of(c)}), At(20));
  EXPECT_EQ(step.action, Action::kCold);
  ASSERT_TRUE(step.notice);
  EXPECT_EQ(step.notice->reason, std::string("ColdStart"));
  EXPECT_NE(step.notice->note.find("it had the capability SYS_ADMIN"), std::string::npos) << step.notice->note;
}

// Found before the claim, so that the checkpoint stays free for a pod that it fits.
TEST(Claim, ASuccessorThatIsTooSmallStartsColdAndSaysWhatToRaise) {
  api::Checkpoint c = InPhase(Phase::kReady);
  c.status.containers = {{"main", "", "", 300 * 256, true, ""}};
  c.status.security = R"({"containers":[{"name":"main","memory":""}]})";
  World w = Seen({Of(c)});
  EXPECT_EQ(Next(w, At(20)).action, Action::kClaim);
  kube::Pod small = *w.pod;
  small.containers[0].limits["memory"] = "256Mi";
  w.pod = Share(small);
  const Step step = Next(w, At(20));
  EXPECT_EQ(step.action, Action::kCold);
  ASSERT_TRUE(step.notice);
  EXPECT_NE(step.notice->note.find("has 300Mi in memory, and this pod's may have 256Mi"), std::string::npos) << step.notice->note;
}

// What pods made of it, one after another: CRIU tried it `attempts` times in each.
api::Checkpoint Poisoned(size_t pods, int attempts = 3) {
  api::Checkpoint c = InPhase(Phase::kReady);
  for (size_t i = 0; i < pods; ++i) {
    const std::string n = std::to_string(i);
    c.status.restores.push_back(
        {"web-" + n, "node-" + n, FormatTime(At(12)), "Failed", "CRIU: Error (" + n + ")", 0, false, "uid-" + n, attempts});
  }
  return c;
}

World Policed(std::vector<Candidate> candidates, api::OnFailure on_failure) {
  World w = Seen(std::move(candidates));
  api::RestorePolicy policy;
  policy.spec.restore.options.on_failure = on_failure;
  w.protection.policy = Share(policy);
  return w;
}

TEST(Claim, WhatNoPodCouldBeRestoredFromIsGivenToNoOtherByItself) {
  using api::OnFailure;
  for (const bool final : {true, false}) {
    api::Checkpoint twice = Poisoned(2), thrice = Poisoned(3);
    for (api::Checkpoint* c : {&twice, &thrice}) {
      c->spec.final = final;
      if (!final) c->spec.trigger = api::Trigger::kInterval;
    }
    EXPECT_EQ(Next(Policed({Of(twice)}, OnFailure::kFail), At(20)).action, Action::kClaim) << "another node may do better";
    const Step cold = Next(Policed({Of(thrice)}, OnFailure::kColdStart), At(20));
    EXPECT_EQ(cold.action, Action::kCold);
    ASSERT_TRUE(cold.notice);
    EXPECT_NE(cold.notice->note.find("is quarantined"), std::string::npos) << cold.notice->note;
    for (const OnFailure held : {OnFailure::kFail, OnFailure::kRetry}) {
      const Step step = Next(Policed({Of(thrice)}, held), At(20));
      ASSERT_EQ(step.action, Action::kWait);
      ASSERT_TRUE(step.notice);
      EXPECT_EQ(step.notice->reason, std::string("Quarantined"));
      for (const char* says : {"3 pods could not be restored from it, in 9 attempts", "CRIU: Error (2)", "web-2 on node node-2",
                               "holdfast.dev/from-checkpoint: drain-web-a-uid-a", "delete checkpoint drain-web-a-uid-a"}) {
        EXPECT_NE(step.notice->note.find(says), std::string::npos) << says << ": " << step.notice->note;
      }
    }
  }
}

TEST(Claim, TheSuccessorOfThePodThatFailedLastIsHeldTooThoughThatOneIsStillEnding) {
  api::Checkpoint c = Poisoned(3);
  c.status.claim = api::Claim{"web-2", "uid-2", FormatTime(At(11))};
  Candidate candidate = Of(c);
  kube::Pod last = WebPod("web-2", "uid-2");
  last.meta.deletion_timestamp = FormatTime(At(15));
  candidate.claimant = Share(last);
  const Step step = Next(Policed({candidate}, api::OnFailure::kFail), At(20));
  EXPECT_EQ(step.action, Action::kWait);
  ASSERT_TRUE(step.notice);
  EXPECT_EQ(step.notice->reason, std::string("Quarantined"));
}

TEST(Claim, AUserGivesWhatIsQuarantinedAllTheSame) {
  World w = Policed({Of(Poisoned(3))}, api::OnFailure::kFail);
  kube::Pod asks = *w.pod;
  asks.meta.annotations = {{api::kFromCheckpoint, w.candidates[0].checkpoint->meta.name}};
  w.pod = Share(asks);
  EXPECT_EQ(Next(w, At(20)).action, Action::kClaim);
}

TEST(Claim, OnlyTriesOfCriuQuarantine) {
  EXPECT_FALSE(Quarantined(Poisoned(2)));
  EXPECT_TRUE(Quarantined(Poisoned(3)));
  EXPECT_TRUE(Quarantined(Poisoned(3, 1)));
  EXPECT_FALSE(Quarantined(Poisoned(5, 0))) << "its pods were deleted before, or its files could not be fetched";
  api::Checkpoint one_pod = Poisoned(3);
  for (api::Restore& restore : one_pod.status.restores) restore.pod_uid = "uid-0";
  EXPECT_FALSE(Quarantined(one_pod));
  api::Checkpoint good = Poisoned(3);
  good.status.restores.push_back({"web-9", "node-a", FormatTime(At(15)), "Restored", "", 0.5, false, "uid-9"});
  EXPECT_FALSE(Quarantined(good)) << "it could be, since";
  EXPECT_EQ(QuarantineText(InPhase(Phase::kReady)), "");
}

TEST(Claim, ASnapshotMayBeUsedAgainWhenItsLastUserIsGone) {
  api::Checkpoint used = Snapshot();
  used.status.claim = api::Claim{"web-c", "uid-c", FormatTime(At(11))};
  used.status.restores = {{"web-c", "node-b", FormatTime(At(12)), "Restored", "", 0.5}};
  EXPECT_EQ(Next(SeenAsking({Of(used)}), At(20)).action, Action::kUnclaim);
  Candidate in_use = Of(used);
  in_use.claimant = Share(WebPod("web-c", "uid-c"));
  EXPECT_EQ(Next(SeenAsking({in_use}), At(20)).action, Action::kWait);
  used.spec.final = true;
  EXPECT_EQ(Next(SeenAsking({Of(used)}), At(20)).action, Action::kWait) << "state that ran on does not come twice";
}

TEST(Claim, OfAPodThatVanishedIsAbandonedUnlessItRestored) {
  api::Checkpoint c = InPhase(Phase::kReady);
  c.status.claim = api::Claim{"web-b", "uid-b", FormatTime(At(15))};
  EXPECT_TRUE(Abandoned(Of(c)));
  Candidate lives = Of(c);
  lives.claimant = Share(Successor());
  EXPECT_FALSE(Abandoned(lives));
  c.status.restores = {{"web-b", "node-b", FormatTime(At(16)), "Restored", "", 0}};
  EXPECT_FALSE(Abandoned(Of(c)));
  c.status.restores[0].outcome = "ColdStart";
  EXPECT_FALSE(Abandoned(Of(c)));
  c.status.restores[0].outcome = "Failed";  // and its policy did not let it start cold
  EXPECT_TRUE(Abandoned(Of(c)));
  c.status.restores[0].ran = true;
  EXPECT_FALSE(Abandoned(Of(c))) << "what its processes did for a moment would be done twice";
  c.status.restores[0].at = FormatTime(At(5));  // of an earlier pod of that name
  EXPECT_TRUE(Abandoned(Of(c)));
}

TEST(Claim, OfTheOldPodItselfIsNeverAbandoned) {
  api::Checkpoint c = InPhase(Phase::kReady);
  c.status.claim = api::Claim{"web-a", "uid-a", FormatTime(At(15))};
  EXPECT_FALSE(Abandoned(Of(c))) << "its pod ran on, so the state is old";
}

api::Checkpoint Skipped(api::Checkpoint c = InPhase(Phase::kReady), const std::string& by = "uid-d") {
  kube::SetCondition(c.status.conditions,
                     {.type = kColdStart, .status = "True", .reason = kWebhookMissed, .message = "pod web-d (uid " + by + ")"}, At(11));
  return c;
}

TEST(Claim, GivesNoStateThatAPodWhichRanSinceHasPassedOver) {
  const Step step = Next(Seen({Of(Skipped())}), At(20));
  EXPECT_EQ(step.action, Action::kCold);
  EXPECT_EQ(step.checkpoint, nullptr);
  ASSERT_TRUE(step.notice);
  EXPECT_EQ(step.notice->reason, "ColdStart");
  EXPECT_NE(step.notice->note.find("passed over"), std::string::npos) << step.notice->note;

  World beside = Seen({Of(Skipped())});
  beside.others_run = true;
  EXPECT_FALSE(Next(beside, At(20)).notice) << "one more replica";
}

TEST(Claim, GoesOnFromWhatThePodThatPassedAStateOverDidItself) {
  api::Checkpoint own = InPhase(Phase::kReady, "web-d", "uid-d");
  own.meta.name = "own";
  for (const auto& order : {std::vector{Of(Skipped()), Of(own, Dying())}, std::vector{Of(own, Dying()), Of(Skipped())}}) {
    const Step step = Next(Seen(order), At(20));
    ASSERT_EQ(step.action, Action::kClaim);
    EXPECT_EQ(step.checkpoint->meta.name, "own");
  }
}

TEST(Claim, GivesNoEarlierStateOfAPodWhoseLastWasPassedOver) {
  api::Checkpoint interval = InPhase(Phase::kReady);
  interval.meta.name = "interval";
  interval.spec.final = false;
  interval.spec.trigger = api::Trigger::kInterval;
  EXPECT_EQ(Next(Seen({Of(interval)}), At(20)).action, Action::kClaim) << "else it would have been";
  EXPECT_EQ(Next(Seen({Of(interval), Of(Skipped())}), At(20)).action, Action::kCold);
}

TEST(Claim, GivesWhatWasPassedOverToAPodThatNamesIt) {
  api::Checkpoint c = Skipped();
  c.meta.name = "snap";
  const Step step = Next(SeenAsking({Of(c)}), At(20));
  ASSERT_EQ(step.action, Action::kClaim);
  EXPECT_EQ(step.checkpoint->meta.name, "snap");
}

struct Beside {
  kube::Pod pod;
  api::Checkpoint checkpoint = InPhase(Phase::kReady);
  PodPtr predecessor;
  bool others_wait = false;
  World Look() const {
    World w = Seen({Of(checkpoint, predecessor)});
    w.pod = Share(pod);
    w.others_wait = others_wait;
    return w;
  }
};

// A pod that was made at 5 s, without a gate, and has run since.
Beside Ungated() {
  Beside b;
  b.pod = Successor();
  b.pod.scheduling_gates.clear();
  b.pod.phase = "Running";
  b.pod.container_statuses = {{.name = "main", .container_id = "containerd://d", .running = true}};
  return b;
}

void End(kube::Pod* pod, int asked_at) { pod->meta.deletion_timestamp = FormatTime(At(asked_at + 30)); }

TEST(ColdStart, IsSeenBesideAnUnclaimedCheckpoint) {
  struct Case {
    const char* what;
    void (*change)(Beside*);
    int at;
    bool seen;
  };
  const Case kCases[] = {
      {"it runs", [](Beside*) {}, 20, true},
      {"too young to tell", [](Beside*) {}, 10, false},
      {"it ends, and its successor is about to ask", [](Beside* b) { End(&b->pod, 7); }, 8, true},
      {"it has ended",
       [](Beside* b) {
         End(&b->pod, 7);
         b->pod.phase = "Succeeded";
         b->pod.container_statuses[0].running = false;
       },
       8, true},
      {"it ends, and nothing of it ran",
       [](Beside* b) {
         End(&b->pod, 7);
         b->pod.phase = "Failed";
         b->pod.container_statuses = {{.name = "main"}};
       },
       8, false},
      {"it has not started", [](Beside* b) { b->pod.phase = "Pending", b->pod.container_statuses.clear(); }, 20, false},
      {"it waits", [](Beside* b) { b->pod.scheduling_gates = {api::kClaimGate}; }, 20, false},
      {"its gate has said why", [](Beside* b) { b->pod.init_containers.emplace_back().name = api::kWaitContainer; }, 20, false},
      {"its gate has said why, and it ends",
       [](Beside* b) { b->pod.init_containers.emplace_back().name = api::kWaitContainer, End(&b->pod, 7); }, 20, false},
      {"another replica waits, to which the state belongs", [](Beside* b) { b->others_wait = true; }, 20, false},
      {"the same, and it ends", [](Beside* b) { b->others_wait = true, End(&b->pod, 7); }, 20, false},
      {"a sibling that was there before", [](Beside* b) { b->pod.meta.creation_timestamp = FormatTime(At(-60)); }, 20, false},
      {"the checkpointed pod is ending, and it came in its place",
       [](Beside* b) {
         kube::Pod old = WebPod();
         End(&old, 4);
         b->predecessor = Share(old);
       },
       20, true},
      {"the checkpointed pod was ended later",
       [](Beside* b) {
         kube::Pod old = WebPod();
         End(&old, 9);
         b->predecessor = Share(old);
       },
       20, false},
      {"the checkpointed pod stands", [](Beside* b) { b->predecessor = Share(WebPod()); }, 20, false},
      {"somebody has the state",
       [](Beside* b) {
         b->checkpoint.status.claim = api::Claim{"web-c", "uid-c", ""};
       },
       20, false},
      {"it has been told", [](Beside* b) { b->checkpoint = Skipped(b->checkpoint); }, 20, false},
      {"another seat", [](Beside* b) { b->checkpoint.status.owner.template_hash = "h2"; }, 20, false},
  };
  for (const Case& c : kCases) {
    Beside b = Ungated();
    c.change(&b);
    EXPECT_EQ(ColdBeside(b.Look(), At(c.at)) != nullptr, c.seen) << c.what;
  }
}

// What a pod has passed over is one checkpoint, the newest: others may be of other replicas.
TEST(ColdStart, IsToldOfOneCheckpointForEachPod) {
  api::Checkpoint older = InPhase(Phase::kReady, "web-z", "uid-z");
  older.meta.name = "older";
  World w = Ungated().Look();
  w.candidates = {Of(Skipped(InPhase(Phase::kReady), "uid-b")), Of(older)};
  EXPECT_EQ(ColdBeside(w, At(20)), nullptr);
  w.candidates = {Of(Skipped(InPhase(Phase::kReady), "uid-other")), Of(older)};
  ASSERT_NE(ColdBeside(w, At(20)), nullptr);
  EXPECT_EQ(ColdBeside(w, At(20))->meta.name, "older");
}

// Times are whole seconds: a workload that is suspended as soon as it runs.
TEST(ColdStart, IsNotSeenInReplicasThatWereMadeAndCheckpointedWithinASecond) {
  Beside b = Ungated();
  b.pod.meta.creation_timestamp = b.checkpoint.meta.creation_timestamp;
  End(&b.pod, 1);
  World w = b.Look();
  EXPECT_NE(ColdBeside(w, At(1)), nullptr);
  api::Checkpoint own = InPhase(Phase::kReady, b.pod.meta.name, b.pod.meta.uid);
  own.meta.name = "own";
  w.candidates.push_back(Of(own));
  EXPECT_EQ(ColdBeside(w, At(1)), nullptr);
}

TEST(ColdStart, SaysWhatBringsTheStateBack) {
  struct Case {
    const char* kind;
    int64_t replicas;  // 0: nothing is known of it
    const char* command;
  };
  const Case kCases[] = {
      {"Deployment", 1,
       R"(: kubectl -n default patch deployment web --type=merge -p '{"spec":{"template":{"metadata":{"annotations":{"holdfast.dev/from-checkpoint":"ck"}}}}}')"},
      {"StatefulSet", 1,
       R"(: kubectl -n default patch statefulset web --type=merge -p '{"spec":{"template":{"metadata":{"annotations":{"holdfast.dev/from-checkpoint":"ck"}}}}}')"},
      {"Deployment", 3, ": create a pod with the annotation holdfast.dev/from-checkpoint: ck"},
      {"StatefulSet", 2, ": create a pod with the annotation holdfast.dev/from-checkpoint: ck"},
      {"Job", 1, ": create a pod with the annotation holdfast.dev/from-checkpoint: ck"},
      {"Pod", 0, ": create a pod with the annotation holdfast.dev/from-checkpoint: ck"},
  };
  for (const Case& c : kCases) {
    Beside b = Ungated();
    b.checkpoint.meta.name = "ck";
    World w = b.Look();
    w.lineage.owner.kind = c.kind;
    if (c.replicas > 0) w.lineage.workload = Share(Web(c.replicas));
    const std::string text = ColdBesideText(w, b.checkpoint);
    EXPECT_TRUE(text.ends_with(c.command)) << c.kind << c.replicas << text;
    EXPECT_TRUE(text.starts_with("pod web-b (uid uid-b) started without the state in Checkpoint ck")) << text;
    EXPECT_LT(text.size(), 1024U) << "an event's note";
  }
}

}  // namespace
}  // namespace holdfast::reconcilers::claim
