// A controller and where its keys come from: starting, waiting for what is there, warm standby.
#include "kube/source.h"

#include <gtest/gtest.h>

#include "kube/objects.h"
#include "tests/unit/kube/simulation.h"

namespace holdfast::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

class Sources : public ::testing::Test {
 protected:
  Controller::Reconcile Counting() {
    return [this](const std::string&, std::stop_token) -> Result<ReconcileResult> {
      EXPECT_TRUE(may_reconcile_) << "reconciled before everything that was there had come";
      ++calls_;
      return ReconcileResult{};
    };
  }
  // Waits for its token, as a list that never ends.
  static bool WaitUntilStopped(std::stop_token stop) {
    return Eventually([&] { return stop.stop_requested(); });
  }

  FakeClock clock_;
  std::atomic<int> calls_{0};
  std::atomic<bool> may_reconcile_{true};
  Controller controller_{{.name = "test", .sync_timeout = seconds(10)}, Counting(), clock_};
};

TEST_F(Sources, AreOptional) { EXPECT_TRUE(controller_.Start().ok()); }

TEST_F(Sources, NothingIsReconciledBeforeAllHaveHandedOverWhatIsThere) {
  may_reconcile_ = false;
  std::atomic<bool> synced{false};
  controller_.AddSource({.name = "slow", .wait_for_sync = [&](Duration, std::stop_token) {
                           controller_.Enqueue("a");
                           return Eventually([&] { return synced.load(); });
                         }});
  std::jthread starter([&] { EXPECT_TRUE(controller_.Start().ok()); });
  ASSERT_TRUE(Eventually([&] { return controller_.depth() == 1; }));
  EXPECT_EQ(calls_, 0);
  may_reconcile_ = true;
  synced = true;
  starter.join();
  EXPECT_TRUE(Eventually([&] { return calls_ == 1; }));
}

TEST_F(Sources, AreAllStartedBeforeOneIsWaitedFor) {
  bool second_started = false;
  controller_.AddSource({.name = "first", .wait_for_sync = [&](Duration, std::stop_token) { return second_started; }});
  controller_.AddSource({.name = "second", .start = [&](std::stop_token) {
                           second_started = true;
                           return Status::Ok();
                         }});
  EXPECT_TRUE(controller_.Start().ok());
}

TEST_F(Sources, ThatFailToStartMakeStartFail) {
  controller_.AddSource({.name = "broken", .start = [](std::stop_token) { return Status(Code::kPermissionDenied, "pods are forbidden"); }});
  Status failed = controller_.Start();
  EXPECT_EQ(failed.code(), Code::kPermissionDenied);
  EXPECT_NE(failed.message().find("broken"), std::string::npos) << failed.message();
}

TEST_F(Sources, ThatDoNotSyncInTimeMakeStartFail) {
  controller_.AddSource({.name = "pods", .wait_for_sync = [&](Duration limit, std::stop_token stop) {
                           EXPECT_EQ(limit, seconds(10));
                           clock_.Sleep(limit, stop);
                           return false;
                         }});
  Status failed;
  std::jthread starter([&] { failed = controller_.Start(); });
  ASSERT_TRUE(Eventually([&] { return clock_.waiters() == 2; }));
  clock_.Advance(seconds(10));
  starter.join();
  EXPECT_EQ(failed.code(), Code::kDeadlineExceeded);
  EXPECT_NE(failed.message().find("pods"), std::string::npos) << failed.message();
  EXPECT_EQ(calls_, 0);
}

TEST_F(Sources, ThatBlockInStartAreStoppedAtTheLimit) {
  controller_.AddSource({.name = "stuck", .start = [](std::stop_token stop) {
                           WaitUntilStopped(stop);
                           return Status::Ok();
                         }});
  Status failed;
  std::jthread starter([&] { failed = controller_.Start(); });
  ASSERT_TRUE(Eventually([&] { return clock_.waiters() == 1; }));
  clock_.Advance(seconds(10));
  starter.join();
  EXPECT_EQ(failed.code(), Code::kDeadlineExceeded);
  EXPECT_NE(failed.message().find("stuck did not start"), std::string::npos) << failed.message();
}

TEST_F(Sources, AStopWhileTheySyncIsNoError) {
  std::atomic<bool> waiting{false};
  controller_.AddSource({.name = "pods", .wait_for_sync = [&](Duration, std::stop_token stop) {
                           waiting = true;
                           WaitUntilStopped(stop);
                           return false;
                         }});
  std::stop_source stop;
  Status status(Code::kInternal, "");
  std::jthread starter([&] { status = controller_.Start(stop.get_token()); });
  ASSERT_TRUE(Eventually([&] { return waiting.load(); }));
  stop.request_stop();
  starter.join();
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST_F(Sources, StopEndsAStartThatWaitsForThem) {
  std::atomic<bool> waiting{false};
  controller_.AddSource({.name = "pods", .wait_for_sync = [&](Duration, std::stop_token stop) {
                           waiting = true;
                           WaitUntilStopped(stop);
                           return false;
                         }});
  std::jthread starter([&] { EXPECT_TRUE(controller_.Start().ok()); });
  ASSERT_TRUE(Eventually([&] { return waiting.load(); }));
  controller_.Stop();
}

TEST_F(Sources, AWarmupFillsTheQueueAndReconcilesNothing) {
  may_reconcile_ = false;
  std::atomic<int> starts{0};
  controller_.AddSource({.name = "pods",
                         .start =
                             [&](std::stop_token) {
                               ++starts;
                               controller_.Enqueue("a");
                               return Status::Ok();
                             },
                         .wait_for_sync = [](Duration, std::stop_token) { return true; }});
  EXPECT_TRUE(controller_.Warmup().ok());
  EXPECT_EQ(controller_.depth(), 1u);
  EXPECT_EQ(calls_, 0);
  may_reconcile_ = true;
  EXPECT_TRUE(controller_.Start().ok());
  EXPECT_TRUE(Eventually([&] { return calls_ == 1; }));
  EXPECT_EQ(starts, 1) << "Start finds them started";
}

TEST_F(Sources, AddedAfterAWarmupStartWithStart) {
  bool first = false, second = false;
  controller_.AddSource({.name = "first", .start = [&](std::stop_token) { return first = true, Status::Ok(); }});
  EXPECT_TRUE(controller_.Warmup().ok());
  controller_.AddSource({.name = "second", .start = [&](std::stop_token) { return second = true, Status::Ok(); }});
  EXPECT_TRUE(first);
  EXPECT_FALSE(second);
  EXPECT_TRUE(controller_.Start().ok());
  EXPECT_TRUE(second);
}

TEST_F(Sources, StartOnceThoughWarmupAndStartAreCalledAtTheSameTime) {
  std::atomic<int> starts{0};
  controller_.AddSource({.name = "pods", .start = [&](std::stop_token) {
                           ++starts;
                           return Status::Ok();
                         }});
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&] { EXPECT_TRUE(controller_.Warmup().ok()); });
    threads.emplace_back([&] { EXPECT_TRUE(controller_.Start().ok()); });
  }
  EXPECT_EQ(starts, 1);
}

// An informer as a controller sees it; the test tells what happens.
struct FakeInformer {
  using Ptr = std::shared_ptr<const Pod>;
  using Handler = std::function<void(const Ptr& old, const Ptr& now)>;
  void AddHandler(Handler handler) { handlers.push_back(std::move(handler)); }
  bool synced() const { return is_synced; }
  bool WaitForSync(Duration, std::stop_token) const { return is_synced; }
  bool WaitFor(const std::string& version, Duration limit, std::stop_token stop) const { return wait_for(version, limit, stop); }
  std::vector<Ptr> List() const { return objects; }

  void Tell(const Ptr& old, const Ptr& now) {
    for (const Handler& handler : handlers) handler(old, now);
  }
  std::vector<Handler> handlers;
  std::vector<Ptr> objects;
  bool is_synced = false;
  WaitForVersion wait_for = [](const std::string&, Duration, std::stop_token) { return true; };
};

class WatchTest : public ::testing::Test {
 protected:
  static FakeInformer::Ptr MakePod(const std::string& name, int generation = 1, const std::string& node = "") {
    auto pod = std::make_shared<Pod>();
    pod->meta.ns = "ns";
    pod->meta.name = name;
    pod->meta.generation = generation;
    pod->node_name = node;
    return pod;
  }
  // Its sources run from here on; workers only since Keys.
  void StartSource(WatchOptions<Pod> options = {}) {
    controller_.AddSource(Watch(pods_, controller_, std::move(options)));
    const bool synced = std::exchange(pods_.is_synced, true);
    EXPECT_TRUE(controller_.Warmup().ok());
    pods_.is_synced = synced;
  }
  // What a controller that starts now reconciles, in this order.
  std::string Keys() {
    EXPECT_TRUE(controller_.Start().ok());
    EXPECT_TRUE(clock_.Settle(2));
    controller_.Stop();
    return keys_;
  }

  FakeClock clock_;
  FakeInformer pods_;
  std::string keys_;
  Controller controller_{{.name = "pods"},
                         [this](const std::string& key, std::stop_token) -> Result<ReconcileResult> {
                           keys_ += key + " ";
                           return ReconcileResult{};
                         },
                         clock_};
};

TEST_F(WatchTest, EnqueuesWhatComesChangesAndGoes) {
  StartSource();
  pods_.is_synced = true;
  pods_.Tell(nullptr, MakePod("new"));
  pods_.Tell(MakePod("changed"), MakePod("changed"));
  pods_.Tell(MakePod("gone"), nullptr);
  EXPECT_EQ(Keys(), "ns/new ns/changed ns/gone ");
}

TEST_F(WatchTest, GivesTheFirstListAndResyncsALowPriority) {
  StartSource();
  pods_.Tell(nullptr, MakePod("a"));
  pods_.Tell(nullptr, MakePod("b"));
  pods_.is_synced = true;
  auto same = MakePod("resynced");
  pods_.Tell(same, same);
  pods_.Tell(nullptr, MakePod("news"));
  pods_.Tell(MakePod("b"), MakePod("b", 2));
  EXPECT_EQ(Keys(), "ns/news ns/b ns/a ns/resynced ");
}

TEST_F(WatchTest, LeavesOutWhatThePredicateDoesNotWant) {
  StartSource({.when = GenerationChanged<Pod>()});
  pods_.is_synced = true;
  pods_.Tell(MakePod("status-only"), MakePod("status-only"));
  pods_.Tell(MakePod("spec"), MakePod("spec", 2));
  EXPECT_EQ(Keys(), "ns/spec ");
}

TEST_F(WatchTest, EnqueuesTheKeysThatAnObjectMeansBeforeAndAfterTheChange) {
  StartSource({.keys = [](const Pod& pod) { return std::vector<std::string>{pod.node_name}; }});
  pods_.is_synced = true;
  pods_.Tell(MakePod("a", 1, "node-a"), MakePod("a", 1, "node-b"));
  pods_.Tell(MakePod("b", 1, "node-c"), nullptr);
  EXPECT_EQ(Keys(), "node-a node-b node-c ");
}

TEST_F(WatchTest, EnqueuesNothingBeforeItsStartAndThenWhatTheCacheHas) {
  Source source =
      Watch(pods_, controller_, {.when = [](const Pod*, const Pod* now) { return now == nullptr || now->node_name != "skipped"; }});
  pods_.is_synced = true;
  pods_.Tell(nullptr, MakePod("came-and"));
  pods_.Tell(MakePod("came-and"), nullptr);
  pods_.objects = {MakePod("there"), MakePod("unwanted", 1, "skipped")};
  EXPECT_EQ(controller_.depth(), 0u) << "a standby's queue does not grow";
  controller_.AddSource(std::move(source));
  EXPECT_EQ(Keys(), "ns/there ");
}

TEST_F(WatchTest, OfChangesOnlyLeavesWhatIsThereToAnother) {
  pods_.objects = {MakePod("there")};
  StartSource({.keys = [](const Pod& pod) { return std::vector<std::string>{pod.meta.name + "'s"}; }, .changes_only = true});
  pods_.Tell(nullptr, MakePod("listed"));
  pods_.is_synced = true;
  pods_.Tell(nullptr, MakePod("news"));
  EXPECT_EQ(Keys(), "news's ");
}

TEST_F(WatchTest, MakesOneReconcileOfABurst) {
  StartSource({.keys = [](const Pod&) { return std::vector<std::string>{"summary"}; }, .after = seconds(2), .changes_only = true});
  pods_.is_synced = true;
  for (int i = 0; i < 10; ++i) pods_.Tell(nullptr, MakePod("pod-" + std::to_string(i)));
  EXPECT_TRUE(controller_.Start().ok());
  ASSERT_TRUE(clock_.Settle(2));
  EXPECT_EQ(keys_, "");
  clock_.Advance(seconds(2));
  ASSERT_TRUE(clock_.Settle(2));
  controller_.Stop();
  EXPECT_EQ(keys_, "summary ");
}

TEST_F(WatchTest, IsWaitedFor) {
  controller_.AddSource(Watch(pods_, controller_));
  EXPECT_EQ(controller_.Start().code(), Code::kDeadlineExceeded);
}

TEST(Predicates, SayWhichUpdatesCount) {
  Pod a, b;
  a.meta.generation = b.meta.generation = 1;
  auto generation = GenerationChanged<Pod>();
  EXPECT_FALSE(generation(&a, &b));
  EXPECT_TRUE(generation(nullptr, &b));
  EXPECT_TRUE(generation(&a, nullptr));
  b.meta.generation = 2;
  EXPECT_TRUE(generation(&a, &b));
  b.meta.generation = 1;
  b.meta.deletion_timestamp = "2026-01-01T00:00:00Z";
  EXPECT_TRUE(generation(&a, &b));
  b = a;
  auto phase = OnUpdate<Pod>([](const Pod& x, const Pod& y) { return x.phase != y.phase; });
  EXPECT_FALSE(phase(&a, &b));
  b.phase = "Running";
  EXPECT_TRUE(phase(&a, &b));
  EXPECT_FALSE(generation(&a, &b));
  EXPECT_TRUE((AnyOf<Pod>(generation, phase)(&a, &b)));
  EXPECT_FALSE((AllOf<Pod>(generation, phase)(&a, &b)));
}

}  // namespace
}  // namespace holdfast::kube
