#include "kube/controller.h"

#include <gtest/gtest.h>

#include "tests/unit/kube/fake_transport.h"

namespace holdfast::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Controller, RetriesErrorsAndExceptionsWithBackoff) {
  FakeClock clock;
  std::atomic<int> calls{0};
  Controller controller(
      {.name = "test"},
      [&](const std::string&, std::stop_token) -> Result<ReconcileResult> {
        int call = ++calls;
        if (call == 1) return Status(Code::kUnavailable, "not yet");
        if (call == 2) throw std::runtime_error("a bug");
        return ReconcileResult{};
      },
      clock);
  controller.Start();
  controller.Enqueue("ns/a");
  EXPECT_TRUE(AdvanceUntil(clock, milliseconds(5), seconds(2), [&] { return calls == 3; }));
  controller.Stop();
  EXPECT_EQ(calls, 3);
}

TEST(Controller, ComesBackWhenAsked) {
  FakeClock clock;
  std::atomic<int> calls{0};
  Controller controller(
      {.name = "test"},
      [&](const std::string&, std::stop_token) -> Result<ReconcileResult> {
        ++calls;
        return ReconcileResult{.requeue_after = seconds(30)};
      },
      clock);
  controller.Start();
  controller.Enqueue("a");
  ASSERT_TRUE(Eventually([&] { return calls == 1; }));
  EXPECT_TRUE(AdvanceUntil(clock, seconds(1), seconds(35), [&] { return calls == 2; }));
  EXPECT_GE(clock.Mono().time_since_epoch(), seconds(30));
}

TEST(Controller, StopsAReconcileAtItsTimeout) {
  FakeClock clock;
  std::atomic<bool> stopped{false}, started{false};
  Controller controller(
      {.name = "test", .timeout = seconds(60)},
      [&](const std::string&, std::stop_token stop) -> Result<ReconcileResult> {
        if (started.exchange(true)) return ReconcileResult{};
        EXPECT_TRUE(Eventually([&] { return stop.stop_requested(); }));
        stopped = true;
        return Status(Code::kCancelled, "cancelled");
      },
      clock);
  controller.Start();
  controller.Enqueue("a");
  ASSERT_TRUE(Eventually([&] { return started.load(); }));
  clock.Advance(seconds(59));
  EXPECT_FALSE(stopped);
  clock.Advance(seconds(1));
  EXPECT_TRUE(Eventually([&] { return stopped.load(); }));
  controller.Stop();
}

TEST(Controller, StopWaitsForRunningWork) {
  FakeClock clock;
  std::atomic<bool> started{false}, finished{false};
  Controller controller(
      {.name = "test", .workers = 2},
      [&](const std::string&, std::stop_token stop) -> Result<ReconcileResult> {
        started = true;
        EXPECT_TRUE(Eventually([&] { return stop.stop_requested(); })) << "a running reconcile is told to stop";
        finished = true;
        return ReconcileResult{};
      },
      clock);
  controller.Start();
  controller.Enqueue("a");
  ASSERT_TRUE(Eventually([&] { return started.load(); }));
  controller.Stop();
  EXPECT_TRUE(finished);
  controller.Enqueue("b");  // ignored
}

}  // namespace
}  // namespace holdfast::kube
