// What the store holds and what Checkpoints say of it, through a real API server: lost objects are made anew, damage is told.
#include "reconcilers/claims.h"
#include "tests/integration/controller/cluster.h"
#include "tests/integration/controller/fake_store.h"
#include "tests/integration/controller/sieve_transport.h"

namespace holdfast::testing {
namespace {

using std::string_literals::operator""s;

class ContentTest : public ::testing::Test {
 protected:
  void SetUp() override { Start({{api::kDefaultStore, store_.url()}}); }
  void Start(std::vector<api::StoreAddress> stores) {
    replica_.reset();
    auto options = Replica::Options("content-of-" + ns_, 0, ns_);
    options.leader_elect = false;
    options.stores = std::move(stores);
    options.store_token_file.clear();
    replica_ = std::make_unique<Replica>(std::make_shared<SieveTransport>(Replica::Connect(), ns_, Disturbance{}), options);
    ASSERT_TRUE(replica_->WaitReady());
  }
  // As `holdfast-store checkpoints` prints it.
  void Create(const std::string& name, const std::string& manifest) {
    auto made = cluster_.client().Create(
        api::Checkpoint::kResource, ns_,
        {{"apiVersion", "holdfast.dev/v1alpha1"},
         {"kind", "Checkpoint"},
         {"metadata", {{"name", name}, {"namespace", ns_}, {"annotations", {{api::kManifest, manifest}}}}},
         {"spec", {{"podRef", {{"name", "web-a"}, {"uid", "uid-of-then"}}}, {"final", false}, {"trigger", "Manual"}, {"pinned", true}}}});
    ASSERT_TRUE(made.ok()) << made.status().ToString();
  }
  std::optional<api::Checkpoint> Find(const std::string& name) { return cluster_.FindCheckpoint(ns_, name); }
  bool Comes(const std::string& name, api::Phase phase) {
    return Eventually([&] { return cluster_.HasPhase(ns_, name, phase); });
  }
  void Delete(const std::string& name) {
    ASSERT_TRUE(cluster_.client().Delete(api::Checkpoint::kResource, ns_, name).ok());
    ASSERT_TRUE(Eventually([&] { return !Find(name); })) << name << " stays";
  }

  Cluster& cluster_ = Cluster::Shared();
  const std::string ns_ = cluster_.MakeNamespace();
  FakeStore store_;
  std::unique_ptr<Replica> replica_;
};

TEST_F(ContentTest, ACheckpointThatEtcdLostIsMadeAnewAndTakesItsContentAlongWhenItGoes) {
  store_.Has("old-uid", ns_, "lost");
  store_.Up(false);
  Create("lost", "old-uid");
  ASSERT_TRUE(Eventually([&] {
    const auto c = Find("lost");
    return c && c->Ready() != nullptr && c->Ready()->reason == api::reason::kWaiting;
  })) << "it waits for the store";
  store_.Up(true);
  ASSERT_TRUE(Comes("lost", api::Phase::kReady));
  const api::Checkpoint c = *Find("lost");
  EXPECT_EQ(c.status.manifest_id, "old-uid");
  EXPECT_EQ(c.status.owner.name, "web");
  EXPECT_EQ(c.status.completed_at, "2026-01-02T03:04:05Z");
  EXPECT_EQ(c.status.stored_bytes, 4096);
  ASSERT_EQ(c.status.containers.size(), 1u);
  EXPECT_TRUE(c.status.containers[0].restorable);
  EXPECT_TRUE(Eventually([&] { return cluster_.EventNotes(ns_, "Adopted").size() == 1; }));
  Delete("lost");
  EXPECT_EQ(store_.Deleted(), std::set<std::string>{"old-uid"});
}

TEST_F(ContentTest, APodThatAsksForItIsGivenWhatWasMadeAnew) {
  store_.Has("old-uid", ns_, "lost");
  Create("lost", "old-uid");
  ASSERT_TRUE(Comes("lost", api::Phase::kReady));
  const Json owner = cluster_.MakeWorkload(ns_, "web", {{api::kProtect, "true"}});
  Json pod = {
      {"metadata",
       {{"name", "web-b"}, {"labels", {{"app", "web"}}}, {"annotations", {{api::kFromCheckpoint, "lost"}}}, {"ownerReferences", {owner}}}},
      {"spec", {{"schedulingGates", {{{"name", api::kClaimGate}}}}, {"containers", {{{"name", "main"}, {"image", "example/counter"}}}}}}};
  ASSERT_TRUE(cluster_.client().Create(kube::Pod::kResource, ns_, pod).ok());
  EXPECT_TRUE(Eventually([&] {
    const auto c = Find("lost");
    return c && c->status.claim && c->status.claim->pod_name == "web-b";
  }));
}

TEST_F(ContentTest, WhatTheStoreDoesNotHaveFailsAndRemovesNothing) {
  store_.Has("another's", ns_, "another");
  Create("wrong", "another's");
  Create("none", "no-such-uid");
  ASSERT_TRUE(Comes("wrong", api::Phase::kFailed));
  ASSERT_TRUE(Comes("none", api::Phase::kFailed));
  EXPECT_EQ(Find("wrong")->Ready()->reason, api::reason::kNotStored);
  const std::string own = Find("wrong")->meta.uid;
  Delete("wrong");
  EXPECT_EQ(store_.Deleted(), std::set<std::string>{own}) << "another one's content stays";
}

TEST_F(ContentTest, DamageIsToldOnTheCheckpointAndTakenBackWhenItIsMended) {
  store_.Has("old-uid", ns_, "lost");
  store_.Damaged("old-uid", true);
  Create("lost", "old-uid");
  ASSERT_TRUE(Eventually(
      [&] {
        const auto c = Find("lost");
        return c && reconcilers::DamageOf(*c) != nullptr;
      },
      std::chrono::seconds(40)));
  EXPECT_NE(reconcilers::DamageOf(*Find("lost"))->message.find("segment 7 cannot be read"), std::string::npos);
  EXPECT_TRUE(Eventually([&] { return cluster_.EventNotes(ns_, "Damaged").size() == 1; }));
  store_.Damaged("old-uid", false);
  EXPECT_TRUE(Eventually([&] { return reconcilers::DamageOf(*Find("lost")) == nullptr; }, std::chrono::seconds(40)));
  EXPECT_TRUE(Eventually([&] { return cluster_.EventNotes(ns_, "Mended").size() == 1; }));
}

class TwoStoresTest : public ContentTest {
 protected:
  void SetUp() override { StartWithBoth(); }
  void StartWithBoth() { Start({{api::kDefaultStore, store_.url()}, {"holdfast-store-1", second_.url()}}); }
  bool Missing(const std::string& name) {
    const auto c = Find(name);
    return c && kube::FindCondition(c->status.conditions, api::kStoreMissing) != nullptr;
  }

  FakeStore second_;
};

TEST_F(TwoStoresTest, WhatTheSecondHasIsFoundThereAndDeletedThereAlone) {
  second_.Has("old-uid", ns_, "lost");
  store_.Up(false);
  Create("lost", "old-uid");
  ASSERT_TRUE(Comes("lost", api::Phase::kReady)) << "one that does not answer is no matter once another one has it";
  EXPECT_EQ(Find("lost")->status.manifest_store, "holdfast-store-1");
  Delete("lost");
  EXPECT_EQ(second_.Deleted(), std::set<std::string>{"old-uid"});
  EXPECT_TRUE(store_.Deleted().empty());
}

TEST_F(TwoStoresTest, WhatNobodyReportedIsDeletedInBoth) {
  Create("none", "no-such-uid");
  ASSERT_TRUE(Comes("none", api::Phase::kFailed));
  const std::string own = Find("none")->meta.uid;
  Delete("none");
  EXPECT_EQ(store_.Deleted(), std::set<std::string>{own});
  EXPECT_EQ(second_.Deleted(), std::set<std::string>{own});
}

TEST_F(TwoStoresTest, AStoreThatIsTakenAwayIsToldAndItsCheckpointsStayUntilItIsBack) {
  for (const char* name : {"kept", "deleted"}) {
    second_.Has("uid-of-"s + name, ns_, name);
    Create(name, "uid-of-"s + name);
    ASSERT_TRUE(Comes(name, api::Phase::kReady));
  }
  Start({{api::kDefaultStore, store_.url()}});
  ASSERT_TRUE(Eventually([&] { return Missing("kept") && Missing("deleted"); }, std::chrono::seconds(40)));
  EXPECT_EQ(reconcilers::DamageOf(*Find("kept")), nullptr) << "nothing is known of its content";
  EXPECT_TRUE(Eventually([&] { return cluster_.EventNotes(ns_, "StoreMissing").size() == 2; }));
  ASSERT_TRUE(cluster_.client().Delete(api::Checkpoint::kResource, ns_, "deleted").ok());
  ASSERT_TRUE(Eventually([&] { return !cluster_.EventNotes(ns_, "StoreUnavailable").empty(); }));
  EXPECT_NE(cluster_.EventNotes(ns_, "StoreUnavailable")[0].find("holdfast-store-1"), std::string::npos);
  EXPECT_TRUE(Find("deleted"));
  StartWithBoth();
  EXPECT_TRUE(Eventually([&] { return !Find("deleted") && !Missing("kept"); }, std::chrono::seconds(40)));
  EXPECT_EQ(second_.Deleted(), std::set<std::string>{"uid-of-deleted"});
  EXPECT_TRUE(store_.Deleted().empty());
  EXPECT_TRUE(Find("kept"));
}

}  // namespace
}  // namespace holdfast::testing
