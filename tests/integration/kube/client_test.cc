#include "tests/integration/kube/fixture.h"

namespace holdfast::kube {
namespace {

TEST_F(KubeTest, CreatesReadsUpdatesListsAndDeletes) {
  Result<Json> made = client_.Create(kConfigMaps, ns_, ConfigMap("a", "1"));
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  Json changed = *made;
  changed["data"]["key"] = "2";
  ASSERT_TRUE(client_.Update(kConfigMaps, ns_, "a", changed).ok());
  Result<Json> read = client_.Get(kConfigMaps, ns_, "a");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(GetString(*read, {"data", "key"}), "2");
  Result<std::vector<Json>> list = client_.List(kConfigMaps, {.ns = ns_});
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->size(), 1u);
  EXPECT_TRUE(client_.Delete(kConfigMaps, ns_, "a").ok());
  EXPECT_EQ(client_.Get(kConfigMaps, ns_, "a").status().code(), Code::kNotFound);
}

TEST_F(KubeTest, ListsAllPages) {
  // More than one page of 500 of the smallest object there is.
  for (int i = 0; i < 510; ++i) {
    ASSERT_TRUE(client_.Create(kConfigMaps, ns_, ConfigMap("c" + std::to_string(i), "x")).ok());
  }
  Result<std::vector<Json>> all = client_.List(kConfigMaps, {.ns = ns_});
  ASSERT_TRUE(all.ok()) << all.status().ToString();
  std::set<std::string> names;
  for (const Json& item : *all) names.insert(GetString(item, {"metadata", "name"}));
  EXPECT_EQ(names.size(), 510u);
}

TEST_F(KubeTest, MapsConflictExistsInvalidAndForbidden) {
  Result<Json> made = client_.Create(kConfigMaps, ns_, ConfigMap("a", "1"));
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(client_.Create(kConfigMaps, ns_, ConfigMap("a", "1")).status().code(), Code::kAlreadyExists);
  ASSERT_TRUE(client_.Patch(kConfigMaps, ns_, "a", PatchType::kMerge, {{"data", {{"key", "2"}}}}).ok());
  Json stale = *made;
  stale["data"]["key"] = "3";
  EXPECT_EQ(client_.Update(kConfigMaps, ns_, "a", stale).status().code(), Code::kConflict);
  EXPECT_EQ(client_.Create(kConfigMaps, ns_, ConfigMap("Not A Name", "1")).status().code(), Code::kInvalidArgument);
  Result<ClientConfig> nobody = testing::ApiServer::Shared().ConfigOf("nobody");
  ASSERT_TRUE(nobody.ok()) << nobody.status().ToString();
  Status refused = Client(MakeCurlTransport(*nobody)).Get(kConfigMaps, ns_, "a").status();
  EXPECT_EQ(refused.code(), Code::kPermissionDenied) << refused.ToString();
  EXPECT_NE(refused.message().find("\"nobody\" cannot get"), std::string::npos) << refused.message();
  ClientConfig wrong = testing::ApiServer::Shared().config();
  wrong.token = "wrong";
  EXPECT_EQ(Client(MakeCurlTransport(wrong)).Get(kConfigMaps, ns_, "a").status().code(), Code::kUnauthenticated);
}

TEST_F(KubeTest, AppliesServerSideAndReportsTheOtherManager) {
  CallOptions ours{.field_manager = "ours"}, theirs{.field_manager = "theirs"};
  EXPECT_EQ(client_.Patch(kConfigMaps, ns_, "a", PatchType::kApply, ConfigMap("a", "1")).status().code(), Code::kInvalidArgument);
  ASSERT_TRUE(client_.Patch(kConfigMaps, ns_, "a", PatchType::kApply, ConfigMap("a", "1"), ours).ok());
  Status conflict = client_.Patch(kConfigMaps, ns_, "a", PatchType::kApply, ConfigMap("a", "2"), theirs).status();
  EXPECT_EQ(conflict.code(), Code::kConflict);
  EXPECT_NE(conflict.message().find("ours"), std::string::npos) << conflict.message();
  theirs.force = true;
  EXPECT_TRUE(client_.Patch(kConfigMaps, ns_, "a", PatchType::kApply, ConfigMap("a", "2"), theirs).ok());
}

TEST_F(KubeTest, PatchesJsonWithATest) {
  ASSERT_TRUE(client_.Create(kConfigMaps, ns_, ConfigMap("a", "1")).ok());
  Json patch =
      Json::array({{{"op", "test"}, {"path", "/data/key"}, {"value", "1"}}, {{"op", "replace"}, {"path", "/data/key"}, {"value", "2"}}});
  ASSERT_TRUE(client_.Patch(kConfigMaps, ns_, "a", PatchType::kJson, patch).ok());
  Status again = client_.Patch(kConfigMaps, ns_, "a", PatchType::kJson, patch).status();
  EXPECT_EQ(again.code(), Code::kInvalidArgument) << again.ToString();
}

TEST_F(KubeTest, DryRunChangesNothing) {
  ASSERT_TRUE(client_.Create(kConfigMaps, ns_, ConfigMap("a", "1"), {.dry_run = true}).ok());
  EXPECT_EQ(client_.Get(kConfigMaps, ns_, "a").status().code(), Code::kNotFound);
}

TEST_F(KubeTest, DeletesOnlyTheObjectThatWasMeant) {
  ASSERT_TRUE(client_.Create(kConfigMaps, ns_, ConfigMap("a", "1")).ok());
  EXPECT_EQ(client_.Delete(kConfigMaps, ns_, "a", {.preconditions = {.uid = "00000000-0000-0000-0000-000000000000"}}).code(),
            Code::kConflict);
  EXPECT_TRUE(client_.Get(kConfigMaps, ns_, "a").ok());
}

TEST_F(KubeTest, EvictsUnlessADisruptionBudgetRefuses) {
  for (const char* name : {"web-0", "web-1"}) {
    Result<Json> made = client_.Create(Pod::kResource, ns_, PodObject(name));
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    // A pod that never ran is not protected by a budget.
    Json running = {{"status", {{"phase", "Running"}, {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}}};
    ASSERT_TRUE(client_.Patch(Pod::kResource, ns_, name, PatchType::kMerge, running, {.subresource = "status"}).ok());
  }
  const Resource budgets{"policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true};
  Json budget = {{"apiVersion", "policy/v1"},
                 {"kind", "PodDisruptionBudget"},
                 {"metadata", {{"name", "web"}}},
                 {"spec", {{"minAvailable", 2}, {"selector", {{"matchLabels", {{"app", "web"}}}}}}}};
  ASSERT_TRUE(client_.Create(budgets, ns_, budget).ok());
  // What the disruption controller would write.
  Json status = {
      {"status",
       {{"disruptionsAllowed", 0}, {"currentHealthy", 2}, {"desiredHealthy", 2}, {"expectedPods", 2}, {"observedGeneration", 1}}}};
  ASSERT_TRUE(client_.Patch(budgets, ns_, "web", PatchType::kMerge, status, {.subresource = "status"}).ok());

  MonoTime start = Clock::Real().Mono();
  Status refused = client_.Evict(ns_, "web-0", {});
  EXPECT_EQ(refused.code(), Code::kResourceExhausted) << refused.ToString();
  EXPECT_LT(Clock::Real().Mono() - start, std::chrono::seconds(5)) << "an eviction was retried";
  ASSERT_TRUE(client_.Delete(budgets, ns_, "web").ok());
  EXPECT_TRUE(client_.Evict(ns_, "web-0", {}, {.dry_run = true}).ok());
  EXPECT_TRUE(client_.Get(Pod::kResource, ns_, "web-0").ok());
  Status wrong_uid = client_.Evict(ns_, "web-0", {.preconditions = {.uid = "00000000-0000-0000-0000-000000000000"}});
  EXPECT_EQ(wrong_uid.code(), Code::kConflict) << wrong_uid.ToString();
  EXPECT_TRUE(client_.Evict(ns_, "web-0", {.grace_period_seconds = 0}).ok());
  EXPECT_EQ(client_.Get(Pod::kResource, ns_, "web-0").status().code(), Code::kNotFound);
}

TEST_F(KubeTest, ReadsPlainTextPages) {
  HttpRequest request;
  request.path = "/readyz";
  Result<Json> ready = client_.Raw(request);
  ASSERT_TRUE(ready.ok());
  EXPECT_EQ(*ready, "ok");
}

TEST_F(KubeTest, LoadsItsKubeconfig) {
  Result<ClientConfig> config = LoadConfig(testing::ApiServer::Shared().kubeconfig());
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_TRUE(Client(MakeCurlTransport(*config)).List(kConfigMaps, {.ns = ns_}).ok());
}

}  // namespace
}  // namespace holdfast::kube
