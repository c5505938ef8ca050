#include "kube/queue.h"

#include <gtest/gtest.h>

#include <thread>

namespace holdfast::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What Get gives without waiting.
std::optional<std::string> TryGet(WorkQueue& queue) { return queue.depth() == 0 ? std::nullopt : queue.Get({}); }

TEST(WorkQueue, GivesAKeyOnceHoweverOftenItWasAdded) {
  WorkQueue queue;
  queue.Add("a");
  queue.Add("b");
  queue.Add("a");
  EXPECT_EQ(queue.depth(), 2u);
  EXPECT_EQ(queue.Get({}), "a");
  EXPECT_EQ(queue.Get({}), "b");
  EXPECT_EQ(queue.depth(), 0u);
}

TEST(WorkQueue, GivesAKeyAgainAfterwardsWhenAddedWhileWorkedOn) {
  WorkQueue queue;
  queue.Add("a");
  ASSERT_EQ(queue.Get({}), "a");
  queue.Add("a");
  queue.Add("a");
  EXPECT_EQ(queue.depth(), 0u) << "two workers would have it";
  queue.Done("a");
  EXPECT_EQ(queue.Get({}), "a");
  queue.Done("a");
  EXPECT_EQ(queue.depth(), 0u);
}

TEST(WorkQueue, NeverGivesAKeyToTwoWorkers) {
  WorkQueue queue;
  constexpr int kKeys = 3, kRounds = 2000;
  std::atomic<int> busy[kKeys] = {}, handled{0};
  std::atomic<bool> twice{false};
  {
    std::vector<std::jthread> workers;
    for (int i = 0; i < 4; ++i) {
      workers.emplace_back([&](const std::stop_token& stop) {
        while (auto key = queue.Get(stop)) {
          int index = (*key)[0] - '0';
          if (busy[index].fetch_add(1) != 0) twice = true;
          std::this_thread::yield();
          busy[index].fetch_sub(1);
          ++handled;
          queue.Done(*key);
        }
      });
    }
    for (int i = 0; i < kRounds; ++i) queue.Add(std::to_string(i % kKeys));
    queue.ShutDown();
    for (std::jthread& worker : workers) worker.join();  // a stop request would leave keys behind
  }
  EXPECT_FALSE(twice);
  EXPECT_GT(handled, 0);
  EXPECT_EQ(queue.depth(), 0u);
}

TEST(WorkQueue, KeepsTheEarliestOfSeveralDelays) {
  FakeClock clock;
  WorkQueue queue(clock);
  queue.AddAfter("a", seconds(10));
  queue.AddAfter("a", seconds(5));
  queue.AddAfter("a", seconds(20));
  std::optional<std::string> got;
  std::jthread worker([&] { got = queue.Get({}); });
  clock.Advance(seconds(4));
  std::this_thread::yield();
  clock.Advance(seconds(1));
  worker.join();
  EXPECT_EQ(got, "a");
  EXPECT_EQ(clock.Mono().time_since_epoch(), seconds(5));
  queue.Done("a");
  clock.Advance(seconds(30));
  EXPECT_EQ(TryGet(queue), std::nullopt) << "the other delays were replaced, not added";
}

TEST(WorkQueue, ShortensAWaitThatRuns) {
  FakeClock clock;
  WorkQueue queue(clock);
  queue.AddAfter("late", seconds(100));
  std::optional<std::string> got;
  std::jthread worker([&] { got = queue.Get({}); });
  while (clock.waiters() == 0) std::this_thread::yield();
  queue.AddAfter("soon", seconds(1));
  clock.Advance(seconds(1));
  worker.join();
  EXPECT_EQ(got, "soon");
}

TEST(WorkQueue, BacksOffExponentiallyUntilForgotten) {
  FakeClock clock;
  WorkQueue queue(clock, {.base = milliseconds(5), .max = milliseconds(30)});
  for (int expected : {5, 10, 20, 30, 30}) {
    MonoTime before = clock.Mono();
    queue.AddRateLimited("a");
    std::optional<std::string> got;
    std::jthread worker([&] { got = queue.Get({}); });
    while (clock.waiters() == 0) std::this_thread::yield();
    clock.Advance(milliseconds(expected) - Duration(1));
    std::this_thread::sleep_for(milliseconds(5));
    EXPECT_EQ(clock.waiters(), 1) << "came before " << expected << " ms";
    clock.Advance(Duration(1));
    worker.join();
    EXPECT_EQ(clock.Mono() - before, milliseconds(expected));
    queue.Done("a");
  }
  EXPECT_EQ(queue.failures("a"), 5);
  queue.Forget("a");
  EXPECT_EQ(queue.failures("a"), 0);
}

TEST(WorkQueue, DrainsOnShutDownAndTakesNothingMore) {
  WorkQueue queue;
  queue.Add("a");
  queue.ShutDown();
  queue.Add("b");
  queue.AddAfter("c", seconds(1));
  EXPECT_EQ(queue.Get({}), "a");
  queue.Done("a");
  EXPECT_EQ(queue.Get({}), std::nullopt);
}

TEST(WorkQueue, StopsWaitingOnRequest) {
  FakeClock clock;
  WorkQueue queue(clock);
  std::optional<std::string> got = "x";
  std::jthread worker([&](const std::stop_token& stop) { got = queue.Get(stop); });
  worker.request_stop();
  worker.join();
  EXPECT_EQ(got, std::nullopt);
}

}  // namespace
}  // namespace holdfast::kube
