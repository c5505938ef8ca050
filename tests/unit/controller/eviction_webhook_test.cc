#include "controller/eviction_webhook.h"

#include <gtest/gtest.h>

#include "tests/unit/controller/fake_api.h"
#include "tests/unit/reconcilers/world.h"

namespace holdfast::controller {
namespace {

using namespace reconcilers::testing;  // NOLINT(google-build-using-namespace)
using api::Phase;
using testing::FakeApi;

class EvictionWebhookTest : public ::testing::Test {
 protected:
  EvictionWebhookTest() {
    view_.nodes = {Share(ReadyNode())};
    view_.AddWeb({{api::kProtect, "true"}, {api::kContainers, "main"}});
    view_.pods = {Share(WebPod())};
  }
  kube::AdmissionRequest Request(const std::string& name = "web-a") {
    kube::AdmissionRequest request;
    request.operation = "CREATE";
    request.subresource = "eviction";
    request.ns = "default";
    request.name = name;
    request.username = "kubernetes-admin";
    request.object = {{"metadata", {{"name", name}, {"namespace", "default"}}}};
    return request;
  }
  // What the background creator made, at most a second later.
  Json Created() {
    const std::string path = "/apis/holdfast.dev/v1alpha1/namespaces/default/checkpoints/drain-web-a-uid-a";
    for (int i = 0; i < 200; ++i) {
      if (api_->Count("POST") > 0) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    creator_.Stop();
    return api_->objects.contains(path) ? api_->objects[path] : Json();
  }

  FakeView view_;
  FakeClock clock_{At(0)};
  std::shared_ptr<FakeApi> api_ = std::make_shared<FakeApi>();
  kube::Client client_{api_, clock_};
  kube::EventRecorder events_{client_, "test", "test"};
  reconcilers::Context context_{view_, client_, events_, clock_, {}};
  CheckpointCreator creator_{client_};
  EvictionWebhook webhook_{context_, creator_, {"system:serviceaccount:hf:holdfast-controller", "hf", std::chrono::seconds(100), {}}};
};

TEST_F(EvictionWebhookTest, HoldsBackWith429AndMakesTheCheckpointInTheBackground) {
  const kube::AdmissionResponse response = webhook_.Handle(Request());
  EXPECT_FALSE(response.allowed);
  EXPECT_EQ(response.code, 429);
  EXPECT_EQ(response.reason, "TooManyRequests");
  const Json made = Created();
  ASSERT_FALSE(made.is_null());
  const api::Checkpoint c = api::Checkpoint::FromJson(made);
  EXPECT_EQ(c.spec.pod_uid, "uid-a");
  EXPECT_TRUE(c.spec.final);
  EXPECT_EQ(c.spec.trigger, api::Trigger::kDrain);
  EXPECT_EQ(c.spec.deadline, std::chrono::seconds(100));
  EXPECT_EQ(c.spec.containers, std::vector<std::string>{"main"});
}

TEST_F(EvictionWebhookTest, ADryRunIsAnsweredAlikeAndMakesNothing) {
  kube::AdmissionRequest request = Request();
  request.dry_run = true;
  EXPECT_EQ(webhook_.Handle(request).code, 429);
  creator_.Stop();
  EXPECT_EQ(api_->Count("POST"), 0u);
}

TEST_F(EvictionWebhookTest, APodThatTheCacheDoesNotShowRunningYetIsLookedAtWhereItIs) {
  const Json running = {{"metadata", {{"name", "web-a"}, {"namespace", "default"}, {"uid", "uid-a"}}},
                        {"spec", {{"nodeName", "node-a"}, {"runtimeClassName", "holdfast"}}},
                        {"status", {{"phase", "Running"}}}};
  kube::Pod waiting = WebPod();
  waiting.phase = "Pending";
  view_.pods = {Share(waiting)};
  EXPECT_TRUE(webhook_.Handle(Request()).allowed) << "the API server does not have it";
  Json live = running;
  live["metadata"]["ownerReferences"] = {{{"apiVersion", "apps/v1"},
                                          {"kind", "ReplicaSet"},
                                          {"name", "web-1"},
                                          {"uid", waiting.meta.Controller()->uid.str()},
                                          {"controller", true}}};
  api_->Put("/api/v1/namespaces/default/pods/web-a", live);
  EXPECT_EQ(webhook_.Handle(Request()).code, 429);
  view_.pods.clear();
  EXPECT_EQ(webhook_.Handle(Request()).code, 429) << "nor does the cache have it";
  EXPECT_EQ(api_->Count("GET"), 3u);
  view_.pods = {Share(WebPod())};
  EXPECT_EQ(webhook_.Handle(Request()).code, 429);
  EXPECT_EQ(api_->Count("GET"), 3u) << "of one that runs the cache says enough";
}

TEST_F(EvictionWebhookTest, OurOwnEvictionsPass) {
  kube::AdmissionRequest request = Request();
  request.username = "system:serviceaccount:hf:holdfast-controller";
  EXPECT_TRUE(webhook_.Handle(request).allowed);
}

TEST_F(EvictionWebhookTest, MalformedRequestsPass) {
  kube::AdmissionRequest request = Request();
  for (const Json& object : {Json(), Json(3), Json::array(), Json{{"metadata", "x"}}, Json{{"deleteOptions", {{"preconditions", 1}}}}}) {
    request.name.clear();
    request.object = object;
    EXPECT_TRUE(webhook_.Handle(request).allowed);
  }
  EXPECT_TRUE(webhook_.Handle(kube::AdmissionRequest()).allowed);
  EXPECT_TRUE(webhook_.Handle(Request("nobody")).allowed);
}

TEST_F(EvictionWebhookTest, StoreAndControllerLeaveLast) {
  kube::Pod store = WebPod("holdfast-store-0", "uid-store");
  store.meta.ns = "hf";
  store.meta.labels["app.kubernetes.io/component"] = "store";
  view_.pods.push_back(Share(store));
  view_.checkpoints = {Share(InPhase(Phase::kStoring))};
  kube::AdmissionRequest request = Request("holdfast-store-0");
  request.ns = "hf";
  const kube::AdmissionResponse response = webhook_.Handle(request);
  EXPECT_EQ(response.code, 429);
  EXPECT_NE(response.message.find("1 checkpoint that is being stored or restored"), std::string::npos) << response.message;
  clock_.Advance(std::chrono::seconds(115));  // bounded by the checkpoint's own deadline
  EXPECT_TRUE(webhook_.Handle(request).allowed);
}

TEST_F(EvictionWebhookTest, StoreAndControllerStayUntilWhatTheyStoredRunsAgain) {
  kube::Pod store = WebPod("holdfast-store-0", "uid-store"), controller = WebPod("holdfast-controller-0", "uid-controller");
  store.meta.ns = controller.meta.ns = "hf";
  store.meta.labels["app.kubernetes.io/component"] = "store";
  controller.meta.labels["app.kubernetes.io/component"] = "controller";
  view_.pods = {Share(store), Share(controller)};
  auto may_leave = [&](const std::string& name) {
    kube::AdmissionRequest request = Request(name);
    request.ns = "hf";
    return webhook_.Handle(request).allowed;
  };
  api::Checkpoint c = InPhase(Phase::kReady);
  view_.checkpoints = {Share(c)};
  EXPECT_FALSE(may_leave("holdfast-controller-0")) << "who would evict the frozen pod, and give its state away?";
  EXPECT_FALSE(may_leave("holdfast-store-0"));
  c.status.claim = api::Claim{"web-b", "uid-b", FormatTime(At(12))};
  view_.checkpoints = {Share(c)};
  EXPECT_TRUE(may_leave("holdfast-controller-0"));
  EXPECT_FALSE(may_leave("holdfast-store-0")) << "the state is still to be fetched";
  clock_.Advance(std::chrono::seconds(80));
  EXPECT_TRUE(may_leave("holdfast-store-0")) << "not for ever";
  c.status.restores = {{"web-b", "node-b", FormatTime(At(15)), "Restored", "", 1.0}};
  view_.checkpoints = {Share(c)};
  EXPECT_TRUE(may_leave("holdfast-store-0"));
}

TEST_F(EvictionWebhookTest, AnswersFast) {
  view_.checkpoints = {Share(InPhase(Phase::kStoring))};
  std::vector<double> times;
  for (int i = 0; i < 2000; ++i) {
    const auto start = std::chrono::steady_clock::now();
    webhook_.Handle(Request());
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  printf("eviction webhook, decision alone: p50 %.3f ms, p99 %.3f ms\n", times[1000], times[1980]);
}

}  // namespace
}  // namespace holdfast::controller
