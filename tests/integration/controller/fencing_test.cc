// Two controllers: one lost its lease while its writes were on the wire, the other has acted since. The real API server with the CRDs' CEL,
// the real store and the agents' fence each refuse what comes late.
#include <stdlib.h>

#include "base/fence.h"
#include "base/file.h"
#include "controller/store_client.h"
#include "storage/server/server.h"
#include "tests/integration/controller/cluster.h"
#include "tests/integration/controller/late_transport.h"

namespace holdfast::testing {
namespace {

// holdfast-store on loopback, without authentication.
class Store {
 public:
  Store() {
    char dir[] = "/tmp/holdfast-fencing-XXXXXX";
    EXPECT_NE(mkdtemp(dir), nullptr);
    dir_ = dir;
    auto opened = storage::LocalStore::Open({.dir = dir_ + "/store", .reserve_bytes = 0});
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    store_ = std::move(*opened);
    fence_ = std::move(*Fence::Open(dir_ + "/TERM"));
    server_ = std::make_unique<storage::StoreServer>(*store_, *fence_, nullptr, nullptr, storage::AllowList(),
                                                     storage::ServerOptions{.address = "127.0.0.1"});
    const Status started = server_->Start({});
    EXPECT_TRUE(started.ok()) << started.ToString();
  }
  ~Store() {
    server_->Stop();
    server_.reset();
    store_.reset();
    EXPECT_TRUE(RemoveAll(dir_).ok());
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_->port()); }
  std::string dir() const { return dir_; }
  void Keep(const std::string& uid, const std::string& ns) {
    auto session = store_->OpenSession(uid, ns);
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    storage::Manifest manifest;
    manifest.ns = ns;
    manifest.checkpoint = "c";
    manifest.checkpoint_uid = uid;
    manifest.created = "2026-01-01T00:00:00Z";
    auto committed = (*session)->Commit(manifest);
    ASSERT_TRUE(committed.ok()) << committed.status().ToString();
  }
  bool Has(const std::string& uid) { return store_->GetManifest(uid).ok(); }

 private:
  std::string dir_;
  std::unique_ptr<storage::LocalStore> store_;
  std::unique_ptr<Fence> fence_;
  std::unique_ptr<storage::StoreServer> server_;
};

class FencingTest : public ::testing::Test {
 protected:
  // As a user makes it, but complete, so that the controller's first write is the assignment.
  api::Checkpoint Make(const std::string& name, const Json& more = Json::object()) {
    Json spec = {{"podRef", {{"name", "web-a"}, {"uid", GetString(cluster_.Pod(ns_, "web-a"), {"metadata", "uid"})}}}};
    spec.update(more);
    auto made = cluster_.client().Create(api::Checkpoint::kResource, ns_,
                                         {{"apiVersion", "holdfast.dev/v1alpha1"},
                                          {"kind", "Checkpoint"},
                                          {"metadata", {{"name", name}, {"finalizers", {"holdfast.dev/stored-content"}}}},
                                          {"spec", spec}});
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    return api::Checkpoint::FromJson(made.value_or(Json()));
  }
  api::Checkpoint Now(const std::string& name) {
    auto now = cluster_.client().Get<api::Checkpoint>(ns_, name);
    return now.ok() ? *now : api::Checkpoint();
  }
  bool Assigned(const std::string& name) {
    return Eventually([&] { return Now(name).status.phase == api::Phase::kAssigned; });
  }
  // What the agent does from Assigned on, at once.
  void MakeReady(const std::string& name) {
    for (api::Phase phase : {api::Phase::kFreezing, api::Phase::kDumping, api::Phase::kStoring, api::Phase::kReady}) {
      const api::Checkpoint c = Now(name);
      Json patch = api::PhasePatch(c, phase, phase == api::Phase::kReady ? "Completed" : "InProgress", "", Clock::Real().Wall());
      if (phase == api::Phase::kReady) {
        patch["status"]["completedAt"] = FormatTime(Clock::Real().Wall());
        patch["status"]["manifest"] = {{"store", "default"}, {"id", c.meta.uid}, {"digest", "blake3:00"}};
      }
      const Status written = cluster_.PatchCheckpoint(c, patch);
      ASSERT_TRUE(written.ok()) << written.ToString();
    }
  }
  controller::AppOptions Options(const std::string& identity) const {
    auto options = Replica::Options(identity, 0, lease_ns_);
    options.stores = {{api::kDefaultStore, store_.url()}};
    options.store_token_file.clear();
    return options;
  }

  Cluster& cluster_ = Cluster::Shared();
  const std::string ns_ = cluster_.MakeNamespace(), lease_ns_ = cluster_.MakeNamespace();
  Store store_;
};

TEST_F(FencingTest, WhatAnOldLeaderWritesAfterTheNewOneHasActedIsRefusedEverywhere) {
  // Nobody answers webhooks here: pod and Checkpoints are made by hand, and the eviction is the controller's own.
  const Json pod_spec = {{"runtimeClassName", "holdfast"}, {"containers", {{{"name", "main"}, {"image", "example/counter"}}}}};
  auto make_pod = [&] {
    auto made = cluster_.client().Create(kube::Pod::kResource, ns_, {{"metadata", {{"name", "web-a"}}}, {"spec", pod_spec}});
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    ASSERT_TRUE(cluster_.RunPod(ns_, "web-a", "node-a").ok());
  };
  make_pod();

  auto wire = std::make_shared<LateTransport>(Replica::Connect());
  auto old = std::make_unique<Replica>(wire, Options("old"));
  ASSERT_TRUE(old->WaitReady());
  ASSERT_TRUE(Eventually([&] { return old->app().leading(); }));
  // Three things that it begins in its term.
  Make("kept");
  ASSERT_TRUE(Assigned("kept"));
  const int64_t old_term = Now("kept").status.term;
  ASSERT_GT(old_term, 0);
  MakeReady("kept");
  store_.Keep(Now("kept").meta.uid, ns_);
  Make("drain", {{"final", true}, {"trigger", "Drain"}});
  ASSERT_TRUE(Assigned("drain"));
  const api::Checkpoint assignment_of_old = Now("drain");
  ASSERT_EQ(assignment_of_old.status.term, old_term);

  // The network takes its writes, and does not hand them on. It wants to evict, and to fail what it finds without a container.
  wire->CutOff();
  MakeReady("drain");
  Make("late", {{"containers", {"nobody"}}});
  const std::string status_of_late = "/checkpoints/late/status", eviction = "/pods/web-a/eviction";
  ASSERT_TRUE(Eventually([&] { return !wire->OnTheWay("PATCH", status_of_late).method.empty(); }));
  ASSERT_TRUE(Eventually([&] { return !wire->OnTheWay("POST", eviction).method.empty(); }));
  const kube::HttpRequest write = wire->OnTheWay("PATCH", status_of_late), evict = wire->OnTheWay("POST", eviction);
  ASSERT_EQ(GetInt(*ParseJson(write.body), {"status", "term"}), old_term) << write.body;

  // Its lease runs out, and another one leads and does all that.
  Replica next(Replica::Connect(), Options("next"));
  ASSERT_TRUE(next.WaitReady());
  ASSERT_TRUE(Eventually([&] { return next.app().leading(); }));
  ASSERT_TRUE(Eventually([&] { return Now("late").status.phase == api::Phase::kFailed; }));
  const int64_t term = Now("late").status.term;
  EXPECT_GT(term, old_term);
  ASSERT_TRUE(Eventually([&] { return !GetString(cluster_.Pod(ns_, "web-a"), {"metadata", "deletionTimestamp"}).empty(); }));
  cluster_.EndPod(ns_, "web-a");
  make_pod();  // another one of that name, as a StatefulSet makes it
  ASSERT_TRUE(store_.Has(Now("kept").meta.uid));
  const std::string kept_uid = Now("kept").meta.uid;
  ASSERT_TRUE(cluster_.client().Delete(api::Checkpoint::kResource, ns_, "kept").ok());
  ASSERT_TRUE(Eventually([&] { return Now("kept").meta.name.empty(); }));
  EXPECT_FALSE(store_.Has(kept_uid));

  // Now the old one's writes arrive. The status: what it was decided on has changed.
  auto answer = wire->Deliver(write);
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(answer->status, 409) << answer->body;
  // Even one that has seen the change, and decides in its old term still.
  kube::HttpRequest seen = write;
  Json body = *ParseJson(write.body);
  body["metadata"]["resourceVersion"] = Now("late").meta.resource_version;
  seen.body = DumpJson(body);
  answer = wire->Deliver(seen);
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(answer->status, 422) << answer->body;
  EXPECT_NE(answer->body.find("a controller of a later term of leadership has written this status"), std::string::npos) << answer->body;
  EXPECT_EQ(Now("late").status.term, term);

  // The eviction: the pod of that name is another one.
  answer = wire->Deliver(evict);
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(answer->status, 409) << answer->body;
  EXPECT_EQ(GetString(cluster_.Pod(ns_, "web-a"), {"metadata", "deletionTimestamp"}), "");

  // The store: it has deleted something in the new term.
  store_.Keep("precious", ns_);
  storage::RemoteStoreOptions remote;
  remote.http.url = store_.url();
  controller::StoreClient late_client(std::make_unique<storage::RemoteStore>(remote));
  const Status deleted = late_client.Delete("precious", old_term, {});
  EXPECT_EQ(deleted.code(), Code::kFailedPrecondition) << deleted.ToString();
  EXPECT_TRUE(store_.Has("precious"));

  // An agent that has heard of the new term, also after a restart: it leaves what the old one assigned alone.
  {
    auto fence = Fence::Open(store_.dir() + "/agent-term");
    ASSERT_TRUE(fence.ok());
    EXPECT_TRUE((*fence)->Admit(assignment_of_old.status.term).ok()) << "before it heard of another";
    EXPECT_TRUE((*fence)->Admit(Now("late").status.term).ok());
  }
  auto fence = Fence::Open(store_.dir() + "/agent-term");
  ASSERT_TRUE(fence.ok());
  EXPECT_EQ((*fence)->Admit(assignment_of_old.status.term).code(), Code::kFailedPrecondition);
  cluster_.EndPod(ns_, "web-a");
}

// What the old leader assigned, and no agent took up yet, goes on in the new term.
TEST_F(FencingTest, AnAssignmentInFlightIsRenewedByTheNextLeader) {
  const Json pod_spec = {{"runtimeClassName", "holdfast"}, {"containers", {{{"name", "main"}, {"image", "example/counter"}}}}};
  ASSERT_TRUE(cluster_.client().Create(kube::Pod::kResource, ns_, {{"metadata", {{"name", "web-a"}}}, {"spec", pod_spec}}).ok());
  ASSERT_TRUE(cluster_.RunPod(ns_, "web-a", "node-a").ok());
  auto fence = Fence::Open(store_.dir() + "/agent-term");
  ASSERT_TRUE(fence.ok());
  int64_t old_term = 0;
  {
    Replica old(Replica::Connect(), Options("old"));
    ASSERT_TRUE(old.WaitReady());
    Make("mine");
    ASSERT_TRUE(Assigned("mine"));
    old_term = Now("mine").status.term;
  }
  Replica next(Replica::Connect(), Options("next"));
  ASSERT_TRUE(Eventually([&] { return Now("mine").status.term > old_term; }, std::chrono::seconds(40)));
  EXPECT_TRUE((*fence)->Admit(Now("mine").status.term).ok());
  EXPECT_EQ((*fence)->Admit(old_term).code(), Code::kFailedPrecondition);
  cluster_.EndPod(ns_, "web-a");
}

}  // namespace
}  // namespace holdfast::testing
