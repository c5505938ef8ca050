#include "kube/controller.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "kube/metrics.h"
#include "tests/unit/kube/simulation.h"

namespace holdfast::kube {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// A controller whose reconcile the test gives, in virtual time.
class ControllerTest : public ::testing::Test {
 protected:
  using Fn = std::function<Result<ReconcileResult>(int call, const std::string& key, std::stop_token stop)>;
  void Run(Fn fn, ControllerOptions options = {}) {
    Make(std::move(fn), std::move(options));
    Status started = controller_->Start();
    ASSERT_TRUE(started.ok()) << started.ToString();
  }
  void Make(Fn fn, ControllerOptions options = {}) {
    if (options.name.empty()) options.name = "test";
    options.metrics = &metrics_;
    threads_ = std::max(options.workers, 1) + (options.timeout > Duration(0) ? 1 : 0);
    controller_ = std::make_unique<Controller>(
        options,
        [this, fn = std::move(fn)](const std::string& key, std::stop_token stop) {
          {
            std::lock_guard lock(mutex_);
            times_.push_back(clock_.Mono().time_since_epoch());
          }
          return fn(++calls_, key, std::move(stop));
        },
        clock_);
  }
  bool Until(Duration limit, const std::function<bool()>& ready) { return Simulate(clock_, threads_, limit, ready); }
  // Every worker waits for work.
  bool Idle() { return clock_.Settle(threads_); }
  std::vector<Duration> times() {
    std::lock_guard lock(mutex_);
    return times_;
  }
  int Total(const std::string& result) const {
    return static_cast<int>(MetricValue(registry_, "controller_runtime_reconcile_total", {{"controller", "test"}, {"result", result}}));
  }
  int Value(const std::string& name) const { return static_cast<int>(MetricValue(registry_, name, {{"controller", "test"}})); }

  FakeClock clock_;
  prometheus::Registry registry_;
  RuntimeMetrics metrics_{registry_, clock_};
  std::atomic<int> calls_{0};
  std::mutex mutex_;
  std::vector<Duration> times_;
  int threads_ = 2;
  std::unique_ptr<Controller> controller_;
};

TEST_F(ControllerTest, ReconcilesAnEnqueuedKey) {
  std::string seen;
  Run([&](int, const std::string& key, std::stop_token) -> Result<ReconcileResult> {
    seen = key;
    return ReconcileResult{};
  });
  controller_->Enqueue("ns/a");
  ASSERT_TRUE(Eventually([&] { return calls_ == 1; }));
  ASSERT_TRUE(Idle());
  EXPECT_EQ(seen, "ns/a");
  EXPECT_EQ(Total("success"), 1);
  EXPECT_EQ(Total("error"), 0);
}

TEST_F(ControllerTest, RequeuesAKeyAfterAnErrorAndGoesOnWithOthers) {
  Run([](int call, const std::string& key, std::stop_token) -> Result<ReconcileResult> {
    if (key == "bad" && call < 3) return Status(Code::kUnavailable, "not yet");
    return ReconcileResult{};
  });
  controller_->Enqueue("bad");
  controller_->Enqueue("good");
  EXPECT_TRUE(Until(seconds(1), [&] { return calls_ == 3; }));
  ASSERT_TRUE(Idle());
  EXPECT_EQ(Total("success"), 2);
  EXPECT_EQ(Total("error"), 1);
  EXPECT_EQ(Value("controller_runtime_reconcile_errors_total"), 1);
}

TEST_F(ControllerTest, CountsAnExceptionAndTreatsItAsAnError) {
  Run([](int call, const std::string&, std::stop_token) -> Result<ReconcileResult> {
    if (call == 1) throw std::runtime_error("a bug");
    if (call == 2) throw 7;
    return ReconcileResult{};
  });
  controller_->Enqueue("a");
  EXPECT_TRUE(Until(seconds(1), [&] { return calls_ == 3; }));
  ASSERT_TRUE(Idle());
  EXPECT_EQ(Value("controller_runtime_reconcile_panics_total"), 2);
  EXPECT_EQ(Total("error"), 2);
  EXPECT_EQ(Total("success"), 1);
}

TEST_F(ControllerTest, DoesNotRequeueATerminalError) {
  Run([](int, const std::string&, std::stop_token) -> Result<ReconcileResult> {
    return Status(Code::kInvalidArgument, "the spec makes no sense").Terminal().With("web-0");
  });
  controller_->Enqueue("a");
  ASSERT_TRUE(Eventually([&] { return calls_ == 1; }));
  EXPECT_FALSE(Until(hours(1), [&] { return calls_ == 2; }));
  EXPECT_EQ(Value("controller_runtime_terminal_reconcile_errors_total"), 1);
  EXPECT_EQ(Value("controller_runtime_reconcile_errors_total"), 1);
  controller_->Enqueue("a");
  EXPECT_TRUE(Eventually([&] { return calls_ == 2; })) << "a new event brings it back";
}

TEST_F(ControllerTest, DoesNotResetTheBackoffBeforeAResultWithoutError) {
  Run(
      [](int call, const std::string&, std::stop_token) -> Result<ReconcileResult> {
        if (call <= 3) return Status(Code::kUnavailable, "no");
        if (call == 4) return ReconcileResult{.requeue_after = seconds(1)};
        if (call == 5) return Status(Code::kUnavailable, "again no");
        return ReconcileResult{};
      },
      {.backoff = {milliseconds(5), seconds(60)}});
  controller_->Enqueue("a");
  ASSERT_TRUE(Until(minutes(1), [&] { return calls_ == 6; }));
  std::vector<Duration> t = times();
  EXPECT_EQ(t[1] - t[0], milliseconds(5));
  EXPECT_EQ(t[2] - t[1], milliseconds(10));
  EXPECT_EQ(t[3] - t[2], milliseconds(20));
  EXPECT_EQ(t[4] - t[3], seconds(1));
  EXPECT_EQ(t[5] - t[4], milliseconds(5)) << "the backoff begins anew";
}

TEST_F(ControllerTest, ComesBackAfterTheTimeThatAReconcileAsksForAndNotAfterABackoff) {
  Run([](int call, const std::string&, std::stop_token) -> Result<ReconcileResult> {
    return ReconcileResult{.requeue_after = call == 1 ? std::optional<Duration>(seconds(30)) : std::nullopt};
  });
  controller_->Enqueue("a");
  ASSERT_TRUE(Until(minutes(1), [&] { return calls_ == 2; }));
  EXPECT_EQ(times()[1] - times()[0], seconds(30));
  ASSERT_TRUE(Idle());
  EXPECT_EQ(Total("requeue_after"), 1);
  EXPECT_EQ(Total("success"), 1);
}

TEST_F(ControllerTest, ANewEventIsNotHeldBackByARequeue) {
  Run([](int, const std::string&, std::stop_token) -> Result<ReconcileResult> { return ReconcileResult{.requeue_after = hours(1)}; });
  controller_->Enqueue("a");
  ASSERT_TRUE(Eventually([&] { return calls_ == 1; }));
  ASSERT_TRUE(Idle());
  controller_->Enqueue("a");
  EXPECT_TRUE(Eventually([&] { return calls_ == 2; }));
}

// Priorities show in the order in which one worker takes keys that became ready while it was busy.
class Priorities : public ControllerTest {
 protected:
  // The keys in the order of their reconciles; "hold" keeps the worker until Release.
  void RunHolding(std::function<Result<ReconcileResult>(const std::string& key)> outcome) {
    Run([this, outcome](int, const std::string& key, std::stop_token) {
      if (key == "hold") {
        EXPECT_TRUE(Eventually([this] { return released_.load(); }));
        return Result<ReconcileResult>(ReconcileResult{});
      }
      std::lock_guard lock(mutex_);
      order_ += key + " ";
      return outcome(key);
    });
  }
  void Hold() {
    released_ = false;
    const int before = calls_;
    controller_->Enqueue("hold", 1000);
    ASSERT_TRUE(Eventually([&] { return calls_ == before + 1; }));
  }
  std::string order() {
    std::lock_guard lock(mutex_);
    return order_;
  }
  // "vip" of priority 10 comes back after `first`, while "other" of priority 5 waits.
  std::string OrderAfterFirst(const Result<ReconcileResult>& first) {
    RunHolding([this, first](const std::string& key) -> Result<ReconcileResult> {
      return key == "vip" && order_ == "vip " ? first : ReconcileResult{};
    });
    controller_->Enqueue("vip", 10);
    EXPECT_TRUE(Eventually([&] { return order() == "vip "; }));
    Hold();
    clock_.Advance(seconds(1));
    controller_->Enqueue("other", 5);
    released_ = true;
    EXPECT_TRUE(Idle());
    return order();
  }
  std::atomic<bool> released_{false};
  std::string order_;
};

TEST_F(Priorities, NewsOvertakesWhatWasThereBefore) {
  RunHolding([](const std::string&) { return ReconcileResult{}; });
  Hold();
  controller_->Enqueue("old", kLowPriority);
  controller_->Enqueue("new");
  released_ = true;
  ASSERT_TRUE(Idle());
  EXPECT_EQ(order(), "new old ");
}

TEST_F(Priorities, AreKeptOnAnError) { EXPECT_EQ(OrderAfterFirst(Status(Code::kUnavailable, "once")), "vip vip other "); }

TEST_F(Priorities, AreKeptOnARequeue) { EXPECT_EQ(OrderAfterFirst(ReconcileResult{.requeue_after = milliseconds(10)}), "vip vip other "); }

TEST_F(Priorities, OfARequeueMayBeAskedFor) {
  EXPECT_EQ(OrderAfterFirst(ReconcileResult{.requeue_after = milliseconds(10), .priority = 1}), "vip other vip ");
}

TEST_F(ControllerTest, StopsAReconcileAtItsTimeoutAndCountsIt) {
  std::atomic<bool> started{false}, stopped{false};
  Run(
      [&](int call, const std::string&, std::stop_token stop) -> Result<ReconcileResult> {
        if (call > 1) return ReconcileResult{};
        started = true;
        EXPECT_TRUE(Eventually([&] { return stop.stop_requested(); }));
        stopped = true;
        return Status(Code::kCancelled, "cancelled");
      },
      {.timeout = seconds(60)});
  controller_->Enqueue("a");
  ASSERT_TRUE(Eventually([&] { return started.load(); }));
  clock_.Advance(seconds(59));
  EXPECT_FALSE(stopped);
  clock_.Advance(seconds(1));
  EXPECT_TRUE(Eventually([&] { return stopped.load(); }));
  EXPECT_TRUE(Until(seconds(1), [&] { return calls_ == 2; })) << "it is an error like another";
  ASSERT_TRUE(Idle());
  EXPECT_EQ(Value("controller_runtime_reconcile_timeouts_total"), 1);
}

TEST_F(ControllerTest, CountsEachTimeoutAndNoneOfThoseThatEndInTime) {
  Run(
      [&](int call, const std::string&, std::stop_token stop) -> Result<ReconcileResult> {
        if (call == 2) return Status(Code::kCancelled, "of its own");
        if (call > 3) return ReconcileResult{};
        clock_.Advance(seconds(60));
        EXPECT_TRUE(Eventually([&] { return stop.stop_requested(); }));
        return ReconcileResult{.requeue_after = seconds(1)};
      },
      {.timeout = seconds(60)});
  controller_->Enqueue("a");
  ASSERT_TRUE(Until(minutes(5), [&] { return calls_ == 4; }));
  ASSERT_TRUE(Idle());
  EXPECT_EQ(Value("controller_runtime_reconcile_timeouts_total"), 2);
}

TEST_F(ControllerTest, HasNoTimeoutWhenItIsZero) {
  std::atomic<bool> started{false}, go{false};
  Run(
      [&](int, const std::string&, std::stop_token stop) -> Result<ReconcileResult> {
        started = true;
        EXPECT_TRUE(Eventually([&] { return go.load(); }));
        EXPECT_FALSE(stop.stop_requested());
        return ReconcileResult{};
      },
      {.timeout = Duration(0)});
  controller_->Enqueue("a");
  ASSERT_TRUE(Eventually([&] { return started.load(); }));
  clock_.Advance(hours(24 * 400));
  go = true;
  ASSERT_TRUE(Idle());
  EXPECT_EQ(Value("controller_runtime_reconcile_timeouts_total"), 0);
}

TEST_F(ControllerTest, StopWaitsForRunningWorkAndIsNoTimeout) {
  std::atomic<bool> started{false}, finished{false};
  Run(
      [&](int, const std::string&, std::stop_token stop) -> Result<ReconcileResult> {
        started = true;
        EXPECT_TRUE(Eventually([&] { return stop.stop_requested(); })) << "a running reconcile is told to stop";
        finished = true;
        return Status(Code::kCancelled, "stopped");
      },
      {.workers = 2});
  controller_->Enqueue("a");
  ASSERT_TRUE(Eventually([&] { return started.load(); }));
  controller_->Stop();
  EXPECT_TRUE(finished);
  controller_->Enqueue("b");  // ignored
  EXPECT_EQ(Value("controller_runtime_reconcile_timeouts_total"), 0);
  EXPECT_EQ(Value("controller_runtime_active_workers"), 0);
}

TEST_F(ControllerTest, RunsAsManyReconcilesAtATimeAsItHasWorkersButNeverTwoOfAKey) {
  std::atomic<int> inside{0}, most{0}, of_a{0};
  std::atomic<bool> twice{false};
  Run(
      [&](int, const std::string& key, std::stop_token) -> Result<ReconcileResult> {
        if (key == "a" && of_a.fetch_add(1) != 0) twice = true;
        const int now = ++inside;
        for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        EXPECT_TRUE(Eventually([&] { return most >= 3; }));
        EXPECT_EQ(Value("controller_runtime_max_concurrent_reconciles"), 3);
        --inside;
        if (key == "a") --of_a;
        return ReconcileResult{};
      },
      {.workers = 3});
  for (const char* key : {"a", "b", "c"}) controller_->Enqueue(key);
  ASSERT_TRUE(Eventually([&] { return most == 3; }));
  for (int i = 0; i < 10; ++i) controller_->Enqueue("a");
  ASSERT_TRUE(Idle());
  EXPECT_FALSE(twice);
  EXPECT_EQ(Value("controller_runtime_active_workers"), 0);
}

TEST_F(ControllerTest, TimesReconciles) {
  Run([&](int, const std::string&, std::stop_token) -> Result<ReconcileResult> {
    clock_.Advance(milliseconds(250));
    return ReconcileResult{};
  });
  controller_->Enqueue("a");
  ASSERT_TRUE(Eventually([&] { return calls_ == 1; }));
  ASSERT_TRUE(Idle());
  EXPECT_EQ(MetricValue(registry_, "controller_runtime_reconcile_time_seconds", {{"controller", "test"}}), 1);
  EXPECT_DOUBLE_EQ(MetricValue(registry_, "controller_runtime_reconcile_time_seconds", {{"controller", "test"}}, /*sum=*/true), 0.25);
}

TEST_F(ControllerTest, EachReconcileHasAnIdOfItsOwn) {
  std::set<std::string> ids;
  Run([&](int, const std::string&, std::stop_token) -> Result<ReconcileResult> {
    ids.insert(CurrentReconcileId());
    return ReconcileResult{};
  });
  EXPECT_EQ(CurrentReconcileId(), "") << "outside of a reconcile";
  for (const char* key : {"a", "b", "c"}) controller_->Enqueue(key);
  ASSERT_TRUE(Eventually([&] { return calls_ == 3; }));
  ASSERT_TRUE(Idle());
  EXPECT_EQ(ids.size(), 3u);
  EXPECT_FALSE(ids.contains(""));
}

TEST_F(ControllerTest, LinesLoggedInAReconcileSayWhichItWas) {
  ::testing::internal::CaptureStderr();
  std::string id;
  Run([&](int, const std::string&, std::stop_token) -> Result<ReconcileResult> {
    id = CurrentReconcileId();
    LogInfo("looking", {{"pod", "web-0"}});
    return ReconcileResult{};
  });
  controller_->Enqueue("ns/a");
  ASSERT_TRUE(Eventually([&] { return calls_ == 1; }));
  ASSERT_TRUE(Idle());
  LogInfo("outside");
  const std::string text = ::testing::internal::GetCapturedStderr();
  Json line = *ParseJson(text.substr(0, text.find('\n')));
  EXPECT_EQ(GetString(line, {"controller"}), "test");
  EXPECT_EQ(GetString(line, {"key"}), "ns/a");
  EXPECT_EQ(GetString(line, {"reconcile_id"}), id);
  EXPECT_EQ(GetString(line, {"pod"}), "web-0");
  EXPECT_EQ(text.substr(text.find('\n')).find("reconcile_id"), std::string::npos);
}

TEST_F(ControllerTest, CannotBeStartedTwice) {
  Run([](int, const std::string&, std::stop_token) { return ReconcileResult{}; });
  EXPECT_EQ(controller_->Start().code(), Code::kFailedPrecondition);
  controller_->Stop();
  EXPECT_EQ(controller_->Start().code(), Code::kFailedPrecondition);
}

TEST_F(ControllerTest, NeedsANameOfItsOwnAmongThoseThatRun) {
  auto nothing = [](int, const std::string&, std::stop_token) { return ReconcileResult{}; };
  Run(nothing);
  {
    Controller same({.name = "test", .metrics = &metrics_}, nullptr, clock_);
    Status refused = same.Start();
    EXPECT_EQ(refused.code(), Code::kAlreadyExists);
    EXPECT_NE(refused.message().find("test"), std::string::npos);
    Controller other({.name = "other", .metrics = &metrics_}, nullptr, clock_);
    EXPECT_TRUE(other.Start().ok());
  }
  controller_->Stop();
  Controller after({.name = "test", .metrics = &metrics_}, nullptr, clock_);
  EXPECT_TRUE(after.Start().ok()) << "the name is free again";
}

TEST_F(ControllerTest, NeverStartedItHasNoThreadsToEnd) {
  Make([](int, const std::string&, std::stop_token) { return ReconcileResult{}; });
  controller_->Enqueue("a");
  controller_->Stop();
  EXPECT_EQ(calls_, 0);
}

}  // namespace
}  // namespace holdfast::kube
