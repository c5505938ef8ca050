// A drain through a real API server: eviction webhook, Checkpoint, eviction, successor, claim.
#include "tests/integration/controller/cluster.h"

#include "api/platform.h"
#include "reconcilers/claims.h"
namespace holdfast::testing {
namespace {

kube::Client Drainer() {
  auto config = ApiServer::Shared().ConfigOf("drainer", "system:masters");
  return kube::Client(kube::MakeCurlTransport(*config));
}

bool Gated(const Json& pod) { return !GetArray(pod, {"spec", "schedulingGates"}).empty(); }

class DrainTest : public ::testing::Test {
 protected:
  Cluster& cluster_ = Cluster::Shared();
  const std::string ns_ = cluster_.MakeNamespace();
  kube::Client drainer_ = Drainer();

  // A protected pod that runs on node-a.
  Json RunWeb(const std::string& pod = "web-a") {
    owner_ = cluster_.MakeWorkload(ns_, "web", {{api::kProtect, "true"}});
    EXPECT_TRUE(Eventually([&] {
      auto made = cluster_.MakePod(ns_, pod, "web", owner_);
      return made.ok();
    }));
    Run(pod);
    return cluster_.Pod(ns_, pod);
  }
  void Run(const std::string& pod) {
    EXPECT_TRUE(Eventually([&] { return !Gated(cluster_.Pod(ns_, pod)); })) << "one more beside others waits for a look at the API server";
    EXPECT_TRUE(cluster_.RunPod(ns_, pod, "node-a").ok());
    // Until the webhook's cache has it, an eviction passes as that of any unknown pod.
    kube::CallOptions dry;
    dry.dry_run = true;
    EXPECT_TRUE(Eventually([&] { return drainer_.Evict(ns_, pod, {}, dry).code() == Code::kResourceExhausted; }));
  }

  // As kubectl drain does, until the pod dies.
  bool Drain(const std::string& pod) {
    return Eventually([&] {
      const Status evicted = drainer_.Evict(ns_, pod, {});
      if (evicted.code() == Code::kResourceExhausted) messages_.insert(evicted.message());
      return !GetString(cluster_.Pod(ns_, pod), {"metadata", "deletionTimestamp"}).empty();
    });
  }

  Json owner_;
  std::set<std::string> messages_;  // of refused evictions
};

TEST_F(DrainTest, MovesThePodThroughAFinalCheckpoint) {
  Replica replica("one", cluster_.webhook_port());
  ASSERT_TRUE(replica.WaitReady());
  FakeAgent agent(cluster_, ns_);
  const Json pod = RunWeb();
  EXPECT_EQ(GetString(pod, {"spec", "runtimeClassName"}), "holdfast");
  EXPECT_FALSE(Gated(pod)) << "the first pod of a workload has nothing to wait for";

  ASSERT_TRUE(Drain("web-a"));
  const std::string shown = ::testing::PrintToString(messages_);
  EXPECT_NE(shown.find("holdfast: checkpointing " + ns_ + "/web-a (asked for)"), std::string::npos) << shown;

  // The ReplicaSet makes the successor while the old pod still dies.
  ASSERT_TRUE(cluster_.MakePod(ns_, "web-b", "web", owner_).ok());
  const Json created = cluster_.Pod(ns_, "web-b");
  ASSERT_EQ(GetArray(created, {"spec", "initContainers"}).size(), 1u) << created;
  EXPECT_EQ(GetString(GetArray(created, {"spec", "initContainers"})[0], {"name"}), "holdfast-wait");
  ASSERT_TRUE(Eventually([&] { return !Gated(cluster_.Pod(ns_, "web-b")); }));
  const auto checkpoints = cluster_.Checkpoints(ns_);
  ASSERT_EQ(checkpoints.size(), 1u);
  const api::Checkpoint& c = checkpoints[0];
  const Json successor = cluster_.Pod(ns_, "web-b");
  EXPECT_EQ(GetString(successor, {"metadata", "annotations", api::kRestore}), c.meta.name);
  EXPECT_EQ(GetString(successor, {"metadata", "annotations", api::kRestoreOptions}),
            R"({"attempts":3,"established":"KeepLoopback","onFailure":"ColdStart"})");
  EXPECT_EQ(GetString(successor, {"spec", "nodeSelector", "kubernetes.io/arch"}), "amd64");
  const Json terms =
      GetArray(successor, {"spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"});
  ASSERT_EQ(terms.size(), 1u) << successor;
  EXPECT_EQ(terms[0]["matchExpressions"][0]["values"], Json::array({api::FeatureSet("avx")})) << "node-b's processor lacks some of it";
  ASSERT_TRUE(c.status.claim);
  EXPECT_EQ(c.status.claim->pod_uid, GetString(successor, {"metadata", "uid"}));
  EXPECT_EQ(c.status.owner.kind, "Deployment");
  cluster_.EndPod(ns_, "web-a");
}

TEST_F(DrainTest, LetsThePodGoWithAnEventWhenItsCheckpointFails) {
  Replica replica("one", cluster_.webhook_port());
  ASSERT_TRUE(replica.WaitReady());
  FakeAgent agent(cluster_, ns_, /*fails=*/true);
  RunWeb();
  ASSERT_TRUE(Eventually([&] { return drainer_.Evict(ns_, "web-a", {}).ok(); }));
  EXPECT_TRUE(Eventually([&] { return !cluster_.EventNotes(ns_, "StateNotKept").empty(); }));
  ASSERT_TRUE(cluster_.MakePod(ns_, "web-b", "web", owner_).ok());
  ASSERT_TRUE(Eventually([&] { return !Gated(cluster_.Pod(ns_, "web-b")); }));
  EXPECT_EQ(GetString(cluster_.Pod(ns_, "web-b"), {"metadata", "annotations", api::kRestore}), "");
  EXPECT_TRUE(Eventually([&] { return !cluster_.EventNotes(ns_, "ColdStart").empty(); }));
  cluster_.EndPod(ns_, "web-a");
}

TEST_F(DrainTest, WhatAPodThatNoGateHeldHasDoneIsNotUndone) {
  Replica replica("one", cluster_.webhook_port());
  ASSERT_TRUE(replica.WaitReady());
  FakeAgent agent(cluster_, ns_);
  RunWeb();
  ASSERT_TRUE(Drain("web-a"));
  cluster_.EndPod(ns_, "web-a");
  // One that names its node passes the webhook as any does while none answers.
  const Json ungated = {
      {"metadata", {{"name", "web-b"}, {"labels", {{"app", "web"}, {"pod-template-hash", "1"}}}, {"ownerReferences", {owner_}}}},
      {"spec", {{"nodeName", "node-a"}, {"containers", {{{"name", "main"}, {"image", "example/counter"}}}}}}};
  ASSERT_TRUE(cluster_.client().Create(kube::Pod::kResource, ns_, ungated).ok());
  kube::CallOptions status;
  status.subresource = "status";
  const Json runs = {{"status", {{"phase", "Running"}}}};
  ASSERT_TRUE(cluster_.client().Patch(kube::Pod::kResource, ns_, "web-b", kube::PatchType::kMerge, runs, status).ok());
  ASSERT_TRUE(cluster_.client().Delete(kube::Pod::kResource, ns_, "web-b").ok());
  ASSERT_TRUE(cluster_.MakePod(ns_, "web-c", "web", owner_).ok());
  ASSERT_TRUE(Eventually([&] { return !Gated(cluster_.Pod(ns_, "web-c")); }));
  EXPECT_EQ(GetString(cluster_.Pod(ns_, "web-c"), {"metadata", "annotations", api::kRestore}), "");
  const api::Checkpoint c = cluster_.Checkpoints(ns_).at(0);
  EXPECT_FALSE(c.status.claim);
  EXPECT_TRUE(c.spec.pinned);
  EXPECT_TRUE(reconcilers::PassedOver(c));
  EXPECT_TRUE(Eventually([&] {
    for (const std::string& note : cluster_.EventNotes(ns_, "ColdStart")) {
      if (note.find("pod web-b (uid ") != std::string::npos && note.find("patch deployment web ") != std::string::npos) return true;
    }
    return false;
  }));
  cluster_.EndPod(ns_, "web-b");
}

TEST_F(DrainTest, ADryRunMakesNothing) {
  Replica replica("one", cluster_.webhook_port());
  ASSERT_TRUE(replica.WaitReady());
  RunWeb();
  kube::CallOptions dry;
  dry.dry_run = true;
  const Status answer = drainer_.Evict(ns_, "web-a", {}, dry);
  EXPECT_EQ(answer.code(), Code::kResourceExhausted) << answer.ToString();
  // What is asked for in earnest comes through the same queue, after whatever the dry run had asked for.
  ASSERT_TRUE(cluster_.MakePod(ns_, "web-b", "web", owner_, {{"example.com/own", "kept"}}).ok());
  Run("web-b");
  EXPECT_EQ(GetString(cluster_.Pod(ns_, "web-b"), {"metadata", "annotations", "example.com/own"}), "kept");
  EXPECT_EQ(drainer_.Evict(ns_, "web-b", {}).code(), Code::kResourceExhausted);
  ASSERT_TRUE(Eventually([&] { return !cluster_.Checkpoints(ns_).empty(); }));
  ASSERT_EQ(cluster_.Checkpoints(ns_).size(), 1u);
  EXPECT_EQ(cluster_.Checkpoints(ns_)[0].spec.pod_name, "web-b");
  cluster_.EndPod(ns_, "web-a");
  cluster_.EndPod(ns_, "web-b");
}

TEST_F(DrainTest, AnUnprotectedPodIsEvictedAsAlways) {
  Replica replica("one", cluster_.webhook_port());
  ASSERT_TRUE(replica.WaitReady());
  const Json owner = cluster_.MakeWorkload(ns_, "plain", Json::object());
  auto pod = cluster_.MakePod(ns_, "plain-a", "plain", owner, {{api::kRestore, "somebody-elses"}});
  ASSERT_TRUE(pod.ok());
  EXPECT_EQ(GetString(*pod, {"spec", "runtimeClassName"}), "");
  EXPECT_EQ(GetString(*pod, {"metadata", "annotations", api::kRestore}), "") << "no annotation restores anything by itself";
  ASSERT_TRUE(cluster_.RunPod(ns_, "plain-a", "node-a").ok());
  EXPECT_TRUE(drainer_.Evict(ns_, "plain-a", {}).ok());
  cluster_.EndPod(ns_, "plain-a");
}

TEST_F(DrainTest, WaitsForTheDisruptionBudgetBeforeAnythingIsFrozen) {
  Replica replica("one", cluster_.webhook_port());
  ASSERT_TRUE(replica.WaitReady());
  FakeAgent agent(cluster_, ns_);
  RunWeb();
  const kube::Resource budgets{"policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true};
  ASSERT_TRUE(
      cluster_.client()
          .Create(budgets, ns_,
                  {{"metadata", {{"name", "web"}}}, {"spec", {{"minAvailable", 1}, {"selector", {{"matchLabels", {{"app", "web"}}}}}}}})
          .ok());
  ASSERT_TRUE(Eventually([&] {
    EXPECT_EQ(drainer_.Evict(ns_, "web-a", {}).code(), Code::kResourceExhausted);
    const auto all = cluster_.Checkpoints(ns_);
    return !all.empty() && all[0].Ready() != nullptr && all[0].Ready()->message.find("PodDisruptionBudget") != std::string::npos;
  }));
  EXPECT_EQ(cluster_.Checkpoints(ns_)[0].status.phase, api::Phase::kPending);
  // The budget's controller would write this once another replica runs.
  kube::CallOptions status;
  status.subresource = "status";
  const Json free = {
      {"status",
       {{"disruptionsAllowed", 1}, {"currentHealthy", 2}, {"desiredHealthy", 1}, {"expectedPods", 2}, {"observedGeneration", 1}}}};
  ASSERT_TRUE(cluster_.client().Patch(budgets, ns_, "web", kube::PatchType::kMerge, free, status).ok());
  ASSERT_TRUE(Eventually([&] { return !GetString(cluster_.Pod(ns_, "web-a"), {"metadata", "deletionTimestamp"}).empty(); }));
  cluster_.EndPod(ns_, "web-a");
}

TEST_F(DrainTest, TwoSuccessorsAndTwoControllersGiveOneWinner) {
  // Two leaders at once, as if a fenced one had not noticed yet: each has a lease of its own.
  Replica one("one", cluster_.webhook_port());
  ASSERT_TRUE(one.WaitReady());
  FakeAgent agent(cluster_, ns_);
  RunWeb();
  ASSERT_TRUE(Drain("web-a"));
  const std::string other_ns = cluster_.MakeNamespace();
  Replica two("two", 0, other_ns);
  ASSERT_TRUE(two.WaitReady());
  ASSERT_TRUE(Eventually([&] { return two.app().leading(); }));
  ASSERT_TRUE(cluster_.MakePod(ns_, "web-b", "web", owner_).ok());
  ASSERT_TRUE(cluster_.MakePod(ns_, "web-c", "web", owner_).ok());
  ASSERT_TRUE(Eventually([&] { return !Gated(cluster_.Pod(ns_, "web-b")) && !Gated(cluster_.Pod(ns_, "web-c")); }));
  const api::Checkpoint c = cluster_.Checkpoints(ns_).at(0);
  ASSERT_TRUE(c.status.claim);
  int restored = 0;
  for (const char* name : {"web-b", "web-c"}) {
    const Json pod = cluster_.Pod(ns_, name);
    if (GetString(pod, {"metadata", "annotations", api::kRestore}).empty()) continue;
    ++restored;
    EXPECT_EQ(c.status.claim->pod_uid, GetString(pod, {"metadata", "uid"}));
  }
  EXPECT_EQ(restored, 1);
  cluster_.EndPod(ns_, "web-a");
}

}  // namespace
}  // namespace holdfast::testing
