#include "base/clock.h"

#include <gtest/gtest.h>

#include <thread>

namespace holdfast {
namespace {

using std::chrono::seconds;

TEST(FakeClock, WakesASleeperOnlyWhenItsTimeHasCome) {
  FakeClock clock;
  std::atomic<bool> woke = false;
  std::jthread sleeper([&](std::stop_token stop) {
    clock.Sleep(seconds(10), stop);
    woke = true;
  });
  while (clock.waiters() == 0) std::this_thread::yield();
  clock.Advance(seconds(9));
  EXPECT_FALSE(woke);
  clock.Advance(seconds(1));
  sleeper.join();
  EXPECT_TRUE(woke);
}

TEST(FakeClock, SleepEndsEarlyWhenStopped) {
  FakeClock clock;
  std::atomic<int> outcome = -1;
  std::jthread sleeper([&](std::stop_token stop) { outcome = clock.Sleep(seconds(10), stop) ? 1 : 0; });
  while (clock.waiters() == 0) std::this_thread::yield();
  sleeper.request_stop();
  sleeper.join();
  EXPECT_EQ(outcome, 0);
}

TEST(FakeClock, WallTimeMovesWithMonotonicTime) {
  FakeClock clock(WallTime(seconds(1000)));
  clock.Advance(seconds(5));
  EXPECT_EQ(clock.Wall(), WallTime(seconds(1005)));
  EXPECT_EQ(clock.Mono(), MonoTime(seconds(5)));
}

}  // namespace
}  // namespace holdfast
