// The controller dies at every point of a drain and comes back: the end is the same.
#include <stdlib.h>

#include "base/file.h"
#include "base/process.h"
#include "tests/integration/controller/cluster.h"
#include "tests/places.h"

namespace holdfast::testing {
namespace {

// holdfast-controller as a process of its own, started again whenever it ends. `arm` is called before every start.
class SupervisedController {
 public:
  SupervisedController(int webhook_port, std::string faults, std::function<void()> arm) {
    // Its log goes where a failed test finds it.
    std::vector<std::string> argv = {"/bin/sh",
                                     "-c",
                                     "exec \"$0\" \"$@\" 2>>" + faults + "/controller.log",
                                     places::Program("holdfast-controller"),
                                     "--kubeconfig=" + ApiServer::Shared().kubeconfig(),
                                     "--namespace=holdfast-system",
                                     "--wait-image=example/holdfast",
                                     "--listen=127.0.0.1",
                                     "--webhook-port=" + std::to_string(webhook_port),
                                     "--metrics-port=0",
                                     "--webhook-host=127.0.0.1",
                                     "--no-leader-elect"};
    thread_ = std::jthread([this, argv, faults, arm](std::stop_token stop) {
      while (!stop.stop_requested()) {
        arm();
        ++starts_;
        ProcessOptions options;
        options.env = {"HOLDFAST_FAULT_DIR=" + faults};
        options.timeout = std::chrono::minutes(2);
        (void)RunProcess(argv, options, stop).ok();
      }
    });
  }
  ~SupervisedController() {
    thread_.request_stop();
    thread_.join();
  }
  int starts() const { return starts_; }

 private:
  std::atomic<int> starts_ = 0;
  std::jthread thread_;
};

class RestartTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    char dir[] = "/tmp/holdfast-faults-XXXXXX";
    ASSERT_NE(mkdtemp(dir), nullptr);
    faults_ = dir;
  }
  void TearDown() override {
    if (HasFailure()) fprintf(stderr, "%s\n", ReadFile(faults_ + "/controller.log").value_or("").c_str());
    (void)RemoveAll(faults_).ok();
  }
  std::string faults_;
};

// After one death at the named point (or, for controller.wrote, one after every single write).
TEST_P(RestartTest, EndsWithTheSameState) {
  Cluster& cluster = Cluster::Shared();
  const std::string ns = cluster.MakeNamespace(), point = GetParam();
  auto config = ApiServer::Shared().ConfigOf("drainer", "system:masters");
  kube::Client drainer(kube::MakeCurlTransport(*config));
  FakeAgent agent(cluster, ns);
  std::atomic<bool> armed = false;
  // Points before a write are armed once, or it would never come to the write.
  std::atomic<int> left = point == "controller.wrote" ? 1000 : 1;
  auto arm = [&] {
    if (armed && left-- > 0) (void)WriteFileAtomically(faults_ + "/" + point, "kill").ok();
  };
  SupervisedController controller(cluster.webhook_port(), faults_, arm);
  const Json owner = cluster.MakeWorkload(ns, "web", {{api::kProtect, "true"}});
  kube::CallOptions dry;
  dry.dry_run = true;
  auto held = [&] { return drainer.Evict(ns, "web-a", {}, dry).code() == Code::kResourceExhausted; };
  auto run_protected = [&] {
    const bool made = Eventually(
        [&] {  // the webhook answers
          auto pod = cluster.MakePod(ns, "web-a", "web", owner);
          if (pod.ok() && GetString(*pod, {"spec", "runtimeClassName"}) == "holdfast") return true;
          cluster.EndPod(ns, "web-a");
          return false;
        },
        std::chrono::seconds(60));
    // One that follows another is gated until somebody leads.
    auto open = [&] { return GetArray(cluster.Pod(ns, "web-a"), {"spec", "schedulingGates"}).empty(); };
    return made && Eventually(open, std::chrono::seconds(60)) && cluster.RunPod(ns, "web-a", "node-a").ok() &&
           Eventually(held, std::chrono::seconds(60));
  };
  ASSERT_TRUE(run_protected());

  const int starts = controller.starts();
  armed = true;
  arm();
  auto dying = [&](const char* pod) { return !GetString(cluster.Pod(ns, pod), {"metadata", "deletionTimestamp"}).empty(); };
  // One request begins the drain, and our own eviction ends it. When the controller dies right before that one the webhook fails open, and
  // the pod is let go without a checkpoint: then it is begun anew.
  ASSERT_TRUE(Eventually(
      [&] {
        if (!cluster.Checkpoints(ns).empty()) return dying("web-a");
        if (held()) (void)drainer.Evict(ns, "web-a", {}).ok();
        if (cluster.Checkpoints(ns).empty() && dying("web-a")) {
          armed = false;
          EXPECT_TRUE(run_protected());
          armed = true;
          arm();
        }
        return false;
      },
      std::chrono::seconds(120)));
  // The successor must meet the webhook too.
  ASSERT_TRUE(Eventually(
      [&] {
        auto made = cluster.MakePod(ns, "web-b", "web", owner);
        if (made.ok() && !GetArray(*made, {"spec", "schedulingGates"}).empty()) return true;
        cluster.EndPod(ns, "web-b");
        return false;
      },
      std::chrono::seconds(60)));
  ASSERT_TRUE(Eventually(
      [&] {
        return GetArray(cluster.Pod(ns, "web-b"), {"spec", "schedulingGates"}).empty();
      },
      std::chrono::seconds(60)));
  armed = false;

  const auto all = cluster.Checkpoints(ns);
  ASSERT_EQ(all.size(), 1u) << "one request, one checkpoint";
  const Json successor = cluster.Pod(ns, "web-b");
  EXPECT_EQ(GetString(successor, {"metadata", "annotations", api::kRestore}), all[0].meta.name);
  ASSERT_TRUE(all[0].status.claim);
  EXPECT_EQ(all[0].status.claim->pod_uid, GetString(successor, {"metadata", "uid"}));
  EXPECT_GT(controller.starts(), starts) << "the point was never reached";
  cluster.EndPod(ns, "web-a");
}

INSTANTIATE_TEST_SUITE_P(Points, RestartTest,
                         ::testing::Values("controller.assigned", "controller.before_evict", "controller.after_evict", "controller.claimed",
                                           "controller.wrote"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) {
                             if (c == '.') c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace holdfast::testing
