#include <gtest/gtest.h>

#include "reconcilers/stop/step.h"
#include "tests/unit/reconcilers/world.h"

namespace holdfast::reconcilers::stop {
namespace {

using api::Phase;
using namespace reconcilers::testing;  // NOLINT(google-build-using-namespace)

kube::Pod Stopped(const std::string& owner_kind = "ReplicaSet") {
  kube::Pod pod = WebPod();
  pod.runtime_class = api::kRuntimeClass;
  pod.meta.deletion_timestamp = FormatTime(At(30));
  kube::OwnerReference owner;
  owner.kind = owner_kind;
  owner.name = "web-1";
  owner.uid = "uid-parent";
  owner.controller = true;
  pod.meta.owners = {owner};
  return pod;
}

kube::Workload Parent(int64_t replicas = 1) {
  kube::Workload parent;
  parent.meta.name = "web-1";
  parent.meta.uid = "uid-parent";
  parent.replicas = replicas;
  return parent;
}

World Seen(const kube::Pod& pod = Stopped()) {
  World w;
  w.pod = Share(pod);
  w.node = Share(ReadyNode());
  w.lineage.owner = WebOwner();
  w.protection.on = true;
  w.protection.policy = Share(api::RestorePolicy());
  w.parent = Share(Parent());
  w.siblings = {w.pod};
  return w;
}

PodPtr Sibling(const std::string& name, bool waits = false) {
  kube::Pod pod = WebPod(name, "uid-" + name);
  if (waits) {
    pod.phase = "Pending";
    pod.scheduling_gates = {api::kClaimGate};
  }
  return Share(pod);
}

TEST(Stop, APodThatItsOwnerMakesAnewIsCheckpointed) {
  EXPECT_EQ(Next(Seen(), At(0)).action, Action::kCheckpoint);
  World w = Seen();
  w.siblings.push_back(Sibling("web-b", true));
  EXPECT_EQ(Next(w, At(0)).action, Action::kCheckpoint) << "its successor is there already, and waits";
}

TEST(Stop, WhatDoesNotEndOrIsDecidedAlreadyIsLeftAlone) {
  kube::Pod pod = Stopped();
  pod.meta.deletion_timestamp = "";
  EXPECT_EQ(Next(Seen(pod), At(0)).action, Action::kNothing);
  pod = Stopped();
  pod.runtime_class = "";
  EXPECT_EQ(Next(Seen(pod), At(0)).action, Action::kNothing);
  pod = Stopped();
  pod.meta.annotations[api::kLetGo] = "it is not protected";
  EXPECT_EQ(Next(Seen(pod), At(0)).action, Action::kNothing);
  for (Phase phase : {Phase::kPending, Phase::kDumping, Phase::kReady}) {
    World w = Seen();
    w.own = {Share(InPhase(phase))};
    EXPECT_EQ(Next(w, At(0)).action, Action::kNothing) << api::PhaseName(phase);
  }
  World w = Seen();
  api::Checkpoint moved = InPhase(Phase::kReady);
  moved.status.claim = api::Claim{"web-b", "uid-b", FormatTime(At(11))};
  w.own = {Share(moved)};
  EXPECT_EQ(Next(w, At(20)).action, Action::kNothing) << "its successor has it";
}

TEST(Stop, APreStopHookThatTellsNobodyToQuitIsNoObstacle) {
  kube::Pod pod = Stopped();
  for (kube::Container& container : pod.containers) container.has_pre_stop = true;
  pod.meta.annotations[api::kIgnorePreStop] = "true";
  EXPECT_EQ(Next(Seen(pod), At(0)).action, Action::kCheckpoint);
}

struct LetGo {
  const char* what;
  const char* because;
  void (*change)(World*, kube::Pod*, kube::Workload*);
};
const LetGo kLetGo[] = {
    {"not protected", "not protected", [](World* w, kube::Pod*, kube::Workload*) { w->protection.on = false; }},
    {"switched off", "triggers.stop",
     [](World* w, kube::Pod*, kube::Workload*) {
       api::RestorePolicy policy;
       policy.spec.triggers.stop = false;
       w->protection.policy = Share(policy);
     }},
    {"scaled down", "wants 0 pods", [](World*, kube::Pod*, kube::Workload* parent) { parent->replicas = 0; }},
    {"its owner is deleted", "is gone", [](World*, kube::Pod*, kube::Workload* parent) { parent->meta.deletion_timestamp = "x"; }},
    {"its owner is another one by now", "is gone", [](World*, kube::Pod*, kube::Workload* parent) { parent->meta.uid = "other"; }},
    {"a bare pod", "no controller", [](World*, kube::Pod* pod, kube::Workload*) { pod->meta.owners.clear(); }},
    {"an owner that nobody knows", "of a kind", [](World*, kube::Pod* pod, kube::Workload*) { pod->meta.owners[0].kind = "Rollout"; }},
    {"preStop", "preStop",
     [](World*, kube::Pod* pod, kube::Workload*) {
       for (kube::Container& container : pod->containers) container.has_pre_stop = true;
     }},
    {"a drain has just tried", "the store is full",
     [](World* w, kube::Pod*, kube::Workload*) {
       api::Checkpoint failed = InPhase(Phase::kFailed);
       failed.status.conditions[0].message = "the store is full";
       w->own = {Share(failed)};
     }},
};

TEST(Stop, WhatNobodyWantsBackIsLetGoWithTheReason) {
  for (const LetGo& c : kLetGo) {
    World w = Seen();
    kube::Pod pod = *w.pod;
    kube::Workload parent = *w.parent;
    c.change(&w, &pod, &parent);
    w.pod = Share(pod);
    w.siblings = {w.pod};
    w.parent = Share(parent);
    const Step step = Next(w, At(20));
    EXPECT_EQ(step.action, Action::kLetGo) << c.what;
    EXPECT_NE(step.why.find(c.because), std::string::npos) << c.what << ": " << step.why;
  }
}

TEST(Stop, OneOfManyIsLetGoWhenItsReplicaSetHasEnoughWithoutIt) {
  World w = Seen();
  w.parent = Share(Parent(2));
  w.siblings = {w.pod, Sibling("web-b"), Sibling("web-c")};
  EXPECT_EQ(Next(w, At(0)).action, Action::kLetGo);
  w.parent = Share(Parent(3));
  EXPECT_EQ(Next(w, At(0)).action, Action::kCheckpoint);
}

TEST(Stop, AStatefulSetWantsItsOrdinalsOfItsRevision) {
  World w = Seen(Stopped("StatefulSet"));
  kube::Workload parent = Parent(2);
  parent.revision = w.lineage.owner.template_hash;
  w.parent = Share(parent);
  w.lineage.owner.ordinal = "1";
  EXPECT_EQ(Next(w, At(0)).action, Action::kCheckpoint);
  w.lineage.owner.ordinal = "2";
  EXPECT_EQ(Next(w, At(0)).action, Action::kLetGo);
  parent.first_ordinal = 1;
  w.parent = Share(parent);
  EXPECT_EQ(Next(w, At(0)).action, Action::kCheckpoint);
  w.lineage.owner.ordinal = "0";
  EXPECT_EQ(Next(w, At(0)).action, Action::kLetGo);
  w.lineage.owner.ordinal = "1";
  parent.revision = "another";
  w.parent = Share(parent);
  EXPECT_EQ(Next(w, At(0)).action, Action::kLetGo) << "a roll-out";
}

TEST(Stop, AJobWantsItsPodsUntilItEndsOrIsSuspended) {
  World w = Seen(Stopped("Job"));
  EXPECT_EQ(Next(w, At(0)).action, Action::kCheckpoint);
  kube::Workload job = Parent();
  job.finished = true;
  w.parent = Share(job);
  EXPECT_EQ(Next(w, At(0)).action, Action::kLetGo);
  job.finished = false;
  job.suspended = true;
  w.parent = Share(job);
  EXPECT_EQ(Next(w, At(0)).action, Action::kLetGo);
}

}  // namespace
}  // namespace holdfast::reconcilers::stop
