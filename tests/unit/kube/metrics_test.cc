// The names and labels that dashboards look for, and what the Transport decorator counts.
#include "kube/metrics.h"

#include <gtest/gtest.h>

#include "kube/request_metrics.h"
#include "tests/unit/kube/simulation.h"

namespace holdfast::kube {
namespace {

TEST(Metrics, HaveTheNamesAndLabelsThatDashboardsKnow) {
  prometheus::Registry registry;
  RuntimeMetrics metrics(registry);
  metrics.Queue("c");
  metrics.Controller("c");
  metrics.Webhook("/mutate");
  metrics.Leading("lease", true);
  metrics.LeaseSlowPath("lease");
  metrics.Request("200", "GET", "host");
  metrics.Reflector("pods");
  const prometheus::Labels queue = {{"name", "c"}, {"controller", "c"}}, controller = {{"controller", "c"}};
  for (const char* name : {"workqueue_adds_total", "workqueue_queue_duration_seconds", "workqueue_work_duration_seconds",
                           "workqueue_unfinished_work_seconds", "workqueue_longest_running_processor_seconds", "workqueue_retries_total"}) {
    EXPECT_EQ(MetricValue(registry, name, queue), 0) << name;
  }
  EXPECT_EQ(MetricValue(registry, "workqueue_depth", {{"name", "c"}, {"controller", "c"}, {"priority", "0"}}), 0);
  for (const char* result : {"success", "error", "requeue_after"}) {
    EXPECT_EQ(MetricValue(registry, "controller_runtime_reconcile_total", {{"controller", "c"}, {"result", result}}), 0) << result;
  }
  for (const char* name :
       {"controller_runtime_reconcile_errors_total", "controller_runtime_terminal_reconcile_errors_total",
        "controller_runtime_reconcile_panics_total", "controller_runtime_reconcile_timeouts_total",
        "controller_runtime_reconcile_time_seconds", "controller_runtime_active_workers", "controller_runtime_max_concurrent_reconciles"}) {
    EXPECT_EQ(MetricValue(registry, name, controller), 0) << name;
  }
  EXPECT_EQ(MetricValue(registry, "controller_runtime_webhook_requests_total", {{"webhook", "/mutate"}, {"code", "200"}}), 0);
  EXPECT_EQ(MetricValue(registry, "controller_runtime_webhook_latency_seconds", {{"webhook", "/mutate"}}), 0);
  EXPECT_EQ(MetricValue(registry, "controller_runtime_webhook_requests_in_flight", {{"webhook", "/mutate"}}), 0);
  for (const char* name : {"reflector_lists_total", "reflector_list_duration_seconds", "reflector_items_per_list",
                           "reflector_watches_total", "reflector_short_watches_total", "reflector_watch_duration_seconds",
                           "reflector_items_per_watch", "reflector_last_resource_version"}) {
    EXPECT_EQ(MetricValue(registry, name, {{"name", "pods"}}), 0) << name;
  }
  EXPECT_EQ(MetricValue(registry, "leader_election_master_status", {{"name", "lease"}}), 1);
  EXPECT_EQ(MetricValue(registry, "leader_election_slowpath_total", {{"name", "lease"}}), 1);
  EXPECT_EQ(MetricValue(registry, "rest_client_requests_total", {{"code", "200"}, {"method", "GET"}, {"host", "host"}}), 1);
}

class RequestMetrics : public ::testing::Test {
 protected:
  int Count(const std::string& code, const std::string& method) const {
    return static_cast<int>(
        MetricValue(registry_, "rest_client_requests_total", {{"code", code}, {"method", method}, {"host", "10.0.0.1:6443"}}));
  }
  prometheus::Registry registry_;
  RuntimeMetrics metrics_{registry_};
  std::shared_ptr<FakeTransport> inner_ = std::make_shared<FakeTransport>([](const HttpRequest& request) -> Result<HttpResponse> {
    if (request.path == "/away") return Status(Code::kUnavailable, "away");
    return request.path == "/missing" ? Failure(404, "NotFound") : JsonAnswer(200, Json::object());
  });
  std::shared_ptr<Transport> transport_ = CountRequests(inner_, metrics_, "https://10.0.0.1:6443/prefix");
};

TEST_F(RequestMetrics, CountEachRequestByWhatBecameOfIt) {
  EXPECT_TRUE(transport_->Send({.path = "/a"}, {}).ok());
  EXPECT_TRUE(transport_->Send({.method = "POST", .path = "/a"}, {}).ok());
  EXPECT_TRUE(transport_->Send({.path = "/missing"}, {}).ok());
  EXPECT_FALSE(transport_->Send({.path = "/away"}, {}).ok());
  EXPECT_EQ(Count("200", "GET"), 1);
  EXPECT_EQ(Count("200", "POST"), 1);
  EXPECT_EQ(Count("404", "GET"), 1);
  EXPECT_EQ(Count("<error>", "GET"), 1);
}

TEST_F(RequestMetrics, CountAWatchOnceWhenItBeginsToAnswer) {
  std::jthread watcher([&] { (void)transport_->Stream({.path = "/w?watch=1"}, [](std::string_view) { return true; }, {}); });
  auto watch = inner_->WaitForWatch(0);
  ASSERT_TRUE(watch);
  EXPECT_EQ(Count("200", "GET"), -1);
  watch->Feed("x");
  EXPECT_TRUE(Eventually([&] { return Count("200", "GET") == 1; }));
  watch->Feed("y");
  watch->End();
  watcher.join();
  EXPECT_EQ(Count("200", "GET"), 1);
}

TEST_F(RequestMetrics, CountAWatchThatIsRefused) {
  std::jthread watcher([&] { (void)transport_->Stream({.path = "/w?watch=1"}, [](std::string_view) { return true; }, {}); });
  auto watch = inner_->WaitForWatch(0);
  ASSERT_TRUE(watch);
  watch->End(HttpResponse{.status = 410});
  watcher.join();
  EXPECT_EQ(Count("410", "GET"), 1);
}

}  // namespace
}  // namespace holdfast::kube
