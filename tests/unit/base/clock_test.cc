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

TEST(FakeClock, SettlesWhenEveryThreadHasFoundThatItMustWait) {
  FakeClock clock;
  std::mutex mutex;
  std::condition_variable_any changed;
  std::atomic<int> work = 0, done = 0;
  std::jthread worker([&](std::stop_token stop) {
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      clock.WaitUntil(lock, changed, MonoTime::max(), stop, [&] { return work > 0; });
      for (; work > 0; --work) ++done;
    }
  });
  ASSERT_TRUE(clock.Settle(1));
  for (int i = 1; i <= 100; ++i) {
    {
      std::lock_guard lock(mutex);
      ++work;
      changed.notify_all();
    }
    ASSERT_TRUE(clock.Settle(1));
    ASSERT_EQ(done, i) << "it was still to wake";
  }
  EXPECT_EQ(clock.next(), MonoTime::max());
  EXPECT_FALSE(clock.Settle(2, std::chrono::milliseconds(5))) << "there is no second thread";
}

}  // namespace
}  // namespace holdfast
