// Successors of pods whose end was not seen: when may they go on from a checkpoint that left its pod running?
#include <gtest/gtest.h>

#include "reconcilers/claim/step.h"
#include "tests/unit/reconcilers/world.h"

namespace holdfast::reconcilers::claim {
namespace {

using api::Phase;
using namespace reconcilers::testing;  // NOLINT(google-build-using-namespace)

constexpr int kBorn = 300;  // of the successor, after kStart

api::Checkpoint Taken(const std::string& name = "interval-1", int at = 100, const std::string& uid = "uid-a") {
  api::Checkpoint c = InPhase(Phase::kReady, "web-a", uid);
  c.meta.name = c.meta.uid = name;
  c.spec.final = false;
  c.spec.trigger = api::Trigger::kInterval;
  c.status.started_at = FormatTime(At(at - 2));
  c.status.completed_at = FormatTime(At(at));
  return c;
}

void Ended(api::Checkpoint* c, int at = kBorn) {
  c->status.conditions.push_back({api::kPodEnded, "True", "Seen", "", FormatTime(At(at)), 1});
}

NodePtr NodeThat(bool ready, bool out_of_service = false) {
  kube::Node node = ReadyNode();
  node.ready = ready;
  if (out_of_service) node.taint_keys = {"node.kubernetes.io/unreachable", "node.kubernetes.io/out-of-service"};
  return Share(node);
}

PodPtr Old(bool terminating, const std::string& phase = "Running", const std::string& reason = "") {
  kube::Pod pod = WebPod();
  if (terminating) pod.meta.deletion_timestamp = FormatTime(At(kBorn));
  pod.phase = phase;
  pod.status_reason = reason;
  return Share(pod);
}

struct Lost {
  api::Checkpoint checkpoint = Taken();
  PodPtr pod = Old(true);
  NodePtr node = NodeThat(false);
  api::RestorePolicy policy;
  std::vector<Candidate> more;
  kube::Pod successor = [] {
    kube::Pod pod = WebPod("web-b", "uid-b");
    pod.phase = "Pending";
    pod.node_name = "";
    pod.scheduling_gates = {api::kClaimGate};
    pod.meta.creation_timestamp = FormatTime(At(kBorn));
    return pod;
  }();

  int now = kBorn + 10;

  World Seen() const {
    World w;
    w.pod = Share(successor);
    w.lineage.owner = WebOwner();
    w.protection = {true, Share(policy), ""};
    w.candidates = more;
    w.candidates.push_back({Share(checkpoint), pod, nullptr, node});
    return w;
  }
  Step Look() const { return Next(Seen(), At(now)); }
};

struct Case {
  const char* what;
  Action action;
  void (*change)(Lost*);
};
const Case kCases[] = {
    {"the node does not answer", Action::kWait, [](Lost*) {}},
    {"the same, and its pod was deleted by force", Action::kWait, [](Lost* l) { l->pod = nullptr; }},
    {"the node is out of service", Action::kClaim, [](Lost* l) { l->node = NodeThat(false, true); }},
    {"the same, its pod already gone", Action::kClaim,
     [](Lost* l) {
       l->node = NodeThat(false, true);
       l->pod = nullptr;
     }},
    {"the node's object was deleted", Action::kClaim,
     [](Lost* l) {
       l->node = nullptr;
       l->pod = nullptr;
     }},
    {"the policy assumes it", Action::kClaim, [](Lost* l) { l->policy.spec.restore.on_node_lost = api::OnNodeLost::kAssume; }},
    {"the policy assumes it, but the node answers and the pod is ending", Action::kWait,
     [](Lost* l) {
       l->policy.spec.restore.on_node_lost = api::OnNodeLost::kAssume;
       l->node = NodeThat(true);
     }},
    {"the node answers and the pod is ending", Action::kWait, [](Lost* l) { l->node = NodeThat(true); }},
    {"the node answers and its kubelet reports the end", Action::kClaim,
     [](Lost* l) {
       l->node = NodeThat(true);
       l->pod = Old(true, "Failed");
     }},
    {"deleted by force from a node that answers: its agent has not said yet that nothing is left", Action::kWait,
     [](Lost* l) {
       l->node = NodeThat(true);
       l->pod = nullptr;
     }},
    {"the same after two minutes, but its kubelet may still be giving it its grace period", Action::kWait,
     [](Lost* l) {
       l->node = NodeThat(true);
       l->pod = nullptr;
       l->successor.termination_grace_seconds = 600;
       l->now = kBorn + 700;
     }},
    {"the same after its grace period and two minutes", Action::kClaim,
     [](Lost* l) {
       l->node = NodeThat(true);
       l->pod = nullptr;
       l->successor.termination_grace_seconds = 600;
       l->now = kBorn + 720;
     }},
    {"the node's agent said that nothing is left", Action::kClaim,
     [](Lost* l) {
       l->node = NodeThat(true);
       l->pod = nullptr;
       Ended(&l->checkpoint);
     }},
    {"the same, but whoever stops it wants it fresh", Action::kCold,
     [](Lost* l) {
       l->node = NodeThat(true);
       l->pod = nullptr;
       l->policy.spec.triggers.stop = false;
       Ended(&l->checkpoint);
     }},
    {"the workload was smaller for a while", Action::kCold,
     [](Lost* l) {
       l->node = NodeThat(true);
       l->pod = nullptr;
       Ended(&l->checkpoint, kBorn - 200);
     }},
    {"scaled up beside it", Action::kCold,
     [](Lost* l) {
       l->node = NodeThat(true);
       l->pod = Old(false);
     }},
    {"it ended by itself", Action::kCold,
     [](Lost* l) {
       l->node = NodeThat(true);
       l->pod = Old(false, "Failed");
     }},
    {"it ended by itself, and the policy wants the latest state then", Action::kClaim,
     [](Lost* l) {
       l->node = NodeThat(true);
       l->pod = Old(false, "Failed");
       l->policy.spec.restore.on_crash = api::OnCrash::kLatest;
     }},
    {"the kubelet evicted it", Action::kClaim,
     [](Lost* l) {
       l->node = NodeThat(true);
       l->pod = Old(false, "Failed", "Evicted");
     }},
    {"another template", Action::kCold,
     [](Lost* l) {
       l->node = nullptr;
       l->checkpoint.status.owner.template_hash = "h2";
     }},
    {"a manual checkpoint", Action::kCold,
     [](Lost* l) {
       l->node = nullptr;
       l->checkpoint.spec.trigger = api::Trigger::kManual;
     }},
    {"it failed", Action::kCold,
     [](Lost* l) {
       l->node = nullptr;
       l->checkpoint.status.phase = Phase::kFailed;
     }},
    {"too old", Action::kCold,
     [](Lost* l) {
       l->node = nullptr;
       l->policy.spec.restore.max_age = std::chrono::seconds(60);
     }},
    {"another pod went on from it", Action::kCold,
     [](Lost* l) {
       l->node = nullptr;
       l->checkpoint.status.claim = api::Claim{"web-c", "uid-c", ""};
       l->checkpoint.status.restores = {{"web-c", "node-b", FormatTime(At(kBorn)), "Restored", "", 0.5}};
     }},
    {"another pod that should have gone on from it ended before", Action::kWait,
     [](Lost* l) {
       l->node = nullptr;
       l->checkpoint.status.claim = api::Claim{"web-c", "uid-c", ""};
     }},
};

TEST(LostNode, ASuccessor) {
  for (const Case& c : kCases) {
    Lost lost;
    c.change(&lost);
    EXPECT_EQ(lost.Look().action, c.action) << c.what << ": " << lost.Look().why;
  }
}

TEST(LostNode, WaitingNamesTheNodeAndTheCommand) {
  const Step step = Lost().Look();
  ASSERT_TRUE(step.notice);
  EXPECT_EQ(step.notice->reason, "WaitsForNode");
  EXPECT_NE(step.notice->note.find("kubectl taint node node-a node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"),
            std::string::npos);
  EXPECT_NE(step.notice->note.find("interval-1"), std::string::npos);
}

TEST(LostNode, TheNewestOneIsTakenAndSaysFromWhenItIs) {
  Lost lost;
  lost.node = nullptr;
  lost.more = {{Share(Taken("interval-2", 250)), lost.pod, nullptr, nullptr}};
  const Step claim = lost.Look();
  ASSERT_EQ(claim.action, Action::kClaim);
  EXPECT_EQ(claim.checkpoint->meta.name, "interval-2");
  api::Checkpoint claimed = *claim.checkpoint;
  claimed.status.claim = api::Claim{"web-b", "uid-b", FormatTime(At(kBorn + 10))};
  lost.more = {{Share(claimed), lost.pod, nullptr, nullptr}};
  EXPECT_EQ(lost.Look().action, Action::kRelease);
  const auto older = StateIsOlder(lost.Seen());
  ASSERT_TRUE(older);
  EXPECT_EQ(older->checkpoint->meta.name, "interval-2");
  EXPECT_EQ(older->at, At(kBorn + 10));
  EXPECT_NE(older->why.find("2026-06-01T12:04:08"), std::string::npos) << older->why;
  EXPECT_NE(older->why.find("1m2s before"), std::string::npos) << older->why;
  lost.successor.meta.annotations[api::kFromCheckpoint] = "interval-2";
  EXPECT_FALSE(StateIsOlder(lost.Seen())) << "who names a checkpoint knows which";
}

TEST(LostNode, TwoSuccessorsNeverGoOnFromTheSamePod) {
  Lost lost;
  lost.node = nullptr;
  api::Checkpoint given = Taken("interval-2", 250);
  given.status.claim = api::Claim{"web-c", "uid-c", FormatTime(At(kBorn + 1))};
  lost.more = {{Share(given), nullptr, Share(WebPod("web-c", "uid-c")), nullptr}};
  EXPECT_EQ(lost.Look().action, Action::kCold) << "interval-1 is older state of the same pod";
  lost.more.push_back({Share(Taken("interval-z", 90, "uid-z")), nullptr, nullptr, nullptr});
  const Step other = lost.Look();
  ASSERT_EQ(other.action, Action::kClaim) << "another replica that was lost";
  EXPECT_EQ(other.checkpoint->spec.pod_uid, "uid-z");
}

TEST(LostNode, ACopyThatAUserMadeIsNoSuccessor) {
  Lost lost;
  lost.node = nullptr;
  api::Checkpoint given = Taken("interval-2", 250);
  given.status.claim = api::Claim{"copy", "uid-copy", FormatTime(At(kBorn - 50))};
  kube::Pod copy = WebPod("copy", "uid-copy");
  copy.meta.annotations[api::kFromCheckpoint] = "interval-2";
  lost.more = {{Share(given), nullptr, Share(copy), nullptr}};
  EXPECT_EQ(lost.Look().action, Action::kClaim);
}

TEST(LostNode, OfAGroupNobodyGoesBackToACutThatIsNotWhole) {
  Lost lost;
  lost.node = nullptr;
  World w = lost.Seen();
  w.candidates.back().broken = "its cut is not whole: Checkpoint x of member y is gone";
  const Step cold = Next(w, At(kBorn + 10));
  EXPECT_EQ(cold.action, Action::kCold);
  EXPECT_NE(cold.why.find("not whole"), std::string::npos);
  w.candidates.push_back({Share(Taken("interval-0", 50)), nullptr, nullptr, nullptr});
  const Step older = Next(w, At(kBorn + 10));
  ASSERT_EQ(older.action, Action::kClaim) << "an older one is";
  EXPECT_EQ(older.checkpoint->meta.name, "interval-0");
  kube::Pod asks = lost.successor;
  asks.meta.annotations[api::kFromCheckpoint] = "interval-1";
  w.pod = Share(asks);
  EXPECT_EQ(Next(w, At(kBorn + 10)).notice->reason, "CannotRestore");
}

TEST(LostNode, OfAGroupNobodyGoesBackAloneWhileAnotherMemberRunsOn) {
  Lost lost;
  lost.node = nullptr;
  World w = lost.Seen();
  w.candidates.back().beyond = "web-z";
  const Step waits = Next(w, At(kBorn + 10));
  ASSERT_EQ(waits.action, Action::kWait);
  ASSERT_TRUE(waits.notice);
  EXPECT_EQ(waits.notice->reason, "WaitsForGroup");
  EXPECT_NE(waits.notice->note.find("kubectl -n default delete pod web-z"), std::string::npos);
  EXPECT_EQ(Next(w, At(kBorn + 119)).action, Action::kWait);
  const Step cold = Next(w, At(kBorn + 120));
  EXPECT_EQ(cold.action, Action::kCold);
  EXPECT_NE(cold.why.find("web-z"), std::string::npos);
  for (const api::OnFailure held : {api::OnFailure::kFail, api::OnFailure::kRetry}) {
    lost.policy.spec.restore.options.on_failure = held;
    w.protection.policy = Share(lost.policy);
    EXPECT_EQ(Next(w, At(kBorn + 9000)).action, Action::kWait);
  }
  World earlier = lost.Seen();
  earlier.candidates.back().beyond = "web-z";
  earlier.candidates.push_back({Share(Taken("interval-0", 50)), nullptr, nullptr, nullptr});
  EXPECT_EQ(Next(earlier, At(kBorn + 10)).checkpoint->meta.name, "interval-0") << "the one that the others went back to";
}

TEST(LostNode, OfAGroupNobodyGoesBackWhileAnotherMemberMayStillRun) {
  Lost lost;
  lost.node = nullptr;
  World w = lost.Seen();
  w.candidates.back().ending = group::Ending{"web-z", NodeThat(true), false};
  EXPECT_EQ(Next(w, At(kBorn + 9000)).action, Action::kWait) << "its node does what is needed";
  EXPECT_FALSE(Next(w, At(kBorn + 9000)).notice);
  w.candidates.back().ending->gone = true;
  EXPECT_EQ(Next(w, At(kBorn + 10)).action, Action::kWait);
  EXPECT_EQ(Next(w, At(kBorn + 9000)).action, Action::kClaim) << "its node answers, and has said nothing for long";
  for (const bool gone : {false, true}) {
    w.candidates.back().ending = group::Ending{"web-z", NodeThat(false), gone};
    const Step waits = Next(w, At(kBorn + 9000));
    ASSERT_EQ(waits.action, Action::kWait);
    ASSERT_TRUE(waits.notice);
    EXPECT_EQ(waits.notice->reason, "WaitsForNode");
    EXPECT_NE(waits.notice->note.find("default/web-z"), std::string::npos);
  }
  lost.policy.spec.restore.on_node_lost = api::OnNodeLost::kAssume;
  w.protection.policy = Share(lost.policy);
  EXPECT_EQ(Next(w, At(kBorn + 10)).action, Action::kClaim);
}

TEST(LostNode, AFinalCheckpointGoesFirst) {
  Lost lost;
  lost.node = NodeThat(false, true);
  lost.more = {{Share(InPhase(Phase::kReady)), lost.pod, nullptr, lost.node}};
  EXPECT_TRUE(lost.Look().checkpoint->spec.final);
  lost.more = {{Share(InPhase(Phase::kFailed)), lost.pod, nullptr, lost.node}};
  EXPECT_EQ(lost.Look().checkpoint->meta.name, "interval-1") << "older state rather than none";
}

TEST(LostNode, MemoryThatIsOlderThanItsVolumeIsNotRestored) {
  Lost lost;
  lost.node = NodeThat(false, true);
  lost.successor.volumes.resize(1);
  lost.successor.volumes[0].name = "data";
  lost.successor.volumes[0].type = "persistentVolumeClaim";
  lost.successor.volumes[0].claim_name = "data-0";
  lost.successor.containers[0].mounts = {{"data", "/data", false}};
  Step step = lost.Look();
  EXPECT_EQ(step.action, Action::kCold);
  EXPECT_NE(step.why.find("data-0"), std::string::npos) << step.why;
  lost.policy.spec.restore.volumes = api::Volumes::kSnapshot;
  EXPECT_EQ(lost.Look().action, Action::kCold) << "there is no snapshot";
  lost.policy.spec.restore.volumes = api::Volumes::kIgnoreDrift;
  EXPECT_EQ(lost.Look().action, Action::kClaim);
  lost.policy.spec.restore.volumes = api::Volumes::kFinalOnly;
  lost.successor.containers[0].mounts[0].read_only = true;
  EXPECT_EQ(lost.Look().action, Action::kClaim);
}

TEST(LostNode, OneMoreBesidePodsThatLiveStartsWithoutAWord) {
  Lost l;
  l.pod = Old(false);
  l.node = NodeThat(true);
  const Step step = l.Look();
  EXPECT_EQ(step.action, Action::kCold);
  EXPECT_FALSE(step.notice) << step.notice->note;
  api::Checkpoint given = InPhase(Phase::kReady, "web-x", "uid-x");
  given.status.claim = api::Claim{"web-c", "uid-c", FormatTime(At(kBorn))};
  World w = l.Seen();
  w.candidates = {{Share(given), nullptr, Share(WebPod("web-c", "uid-c")), NodeThat(true)}};
  EXPECT_EQ(Next(w, At(l.now)).action, Action::kCold);
  EXPECT_FALSE(Next(w, At(l.now)).notice) << "the state is on its way into another replica";
}

TEST(LostNode, ASuccessorThatIsSeenBeforeTheDeletionWaits) {
  Lost lost;
  lost.pod = Old(false);
  World w;
  w.pod = Share(lost.successor);
  w.lineage.owner = WebOwner();
  w.protection = {true, Share(lost.policy), ""};
  w.candidates = {{Share(lost.checkpoint), lost.pod, nullptr, lost.node}};
  EXPECT_EQ(Next(w, At(kBorn + 1)).action, Action::kWait);
  EXPECT_EQ(Next(w, At(kBorn + 6)).action, Action::kCold) << "the workload was only made larger";
}

}  // namespace
}  // namespace holdfast::reconcilers::claim
