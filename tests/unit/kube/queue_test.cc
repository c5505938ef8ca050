#include "kube/queue.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>

#include "kube/key_table.h"
#include "tests/unit/kube/fake_transport.h"

namespace holdfast::kube {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// What Get gives without waiting, "" for nothing.
std::string TryGet(WorkQueue& queue) {
  std::stop_source now;
  if (queue.depth() == 0) return "";
  std::jthread timer([&](const std::stop_token& stop) {
    if (Clock::Real().Sleep(milliseconds(50), stop)) now.request_stop();
  });
  auto item = queue.Get(now.get_token());
  return item ? item->key : "";
}

TEST(WorkQueue, GivesEachKeyToOneWorkerAtATimeAndLosesNone) {
  for (bool drain : {false, true}) {
    WorkQueue queue;
    constexpr int kKeys = 50, kProducers = 10, kWorkers = 10;
    std::atomic<int> busy[kKeys] = {}, handled[kKeys] = {};
    std::atomic<bool> twice{false}, after_shutdown{false};
    std::vector<std::jthread> workers, producers;
    for (int i = 0; i < kWorkers; ++i) {
      workers.emplace_back([&](const std::stop_token& stop) {
        while (auto item = queue.Get(stop)) {
          if (item->key == "added after ShutDown") after_shutdown = true;
          const int index = std::stoi(item->key);
          if (busy[index].fetch_add(1) != 0) twice = true;
          std::this_thread::yield();
          busy[index].fetch_sub(1);
          ++handled[index];
          queue.Done(item->key);
        }
      });
    }
    for (int p = 0; p < kProducers; ++p) {
      producers.emplace_back([&] {
        for (int i = 0; i < kKeys; ++i) queue.Add(std::to_string(i));
      });
    }
    producers.clear();
    if (drain) {
      EXPECT_TRUE(queue.ShutDownWithDrain({}));
    } else {
      queue.ShutDown();
    }
    queue.Add("added after ShutDown");
    for (std::jthread& worker : workers) worker.join();  // a stop request would leave keys behind
    EXPECT_FALSE(twice);
    EXPECT_FALSE(after_shutdown);
    for (int i = 0; i < kKeys; ++i) EXPECT_GE(handled[i], 1) << i;
    EXPECT_EQ(queue.depth(), 0u);
  }
}

TEST(WorkQueue, GivesAKeyAgainAfterwardsWhenAddedWhileWorkedOn) {
  WorkQueue queue;
  queue.Add("a");
  ASSERT_EQ(TryGet(queue), "a");
  queue.Add("a");
  queue.Add("a");
  EXPECT_EQ(TryGet(queue), "") << "two workers would have it";
  queue.Done("a");
  EXPECT_EQ(TryGet(queue), "a");
  queue.Done("a");
  EXPECT_EQ(queue.depth(), 0u);
}

TEST(WorkQueue, CountsEachReadyKeyOnce) {
  WorkQueue queue;
  queue.Add("a");
  EXPECT_EQ(queue.depth(), 1u);
  queue.Add("b");
  EXPECT_EQ(queue.depth(), 2u);
  queue.Add("a");
  EXPECT_EQ(queue.depth(), 2u);
}

TEST(WorkQueue, TakesAKeyBackAfterDone) {
  WorkQueue queue;
  queue.Add("a");
  ASSERT_EQ(TryGet(queue), "a");
  queue.Add("a");  // while it is worked on
  queue.Done("a");
  ASSERT_EQ(TryGet(queue), "a");
  queue.Done("a");
  queue.Add("a");
  EXPECT_EQ(TryGet(queue), "a");
}

TEST(WorkQueue, JoinsKeysThatNobodyHasTaken) {
  WorkQueue queue;
  queue.Add("a");
  queue.Add("a");
  EXPECT_EQ(TryGet(queue), "a");
  queue.Done("a");
  EXPECT_EQ(queue.depth(), 0u);
}

TEST(WorkQueue, JoinsKeysAddedWhileTheyAreWorkedOn) {
  WorkQueue queue;
  queue.Add("a");
  ASSERT_EQ(TryGet(queue), "a");
  {
    std::vector<std::jthread> producers;
    for (int i = 0; i < 4; ++i) producers.emplace_back([&] { queue.Add("a"); });
  }
  queue.Done("a");
  EXPECT_EQ(TryGet(queue), "a");
  queue.Done("a");
  EXPECT_EQ(queue.depth(), 0u);
}

TEST(WorkQueue, ADrainWaitsForWhatIsWorkedOn) {
  WorkQueue queue;
  queue.Add("a");
  queue.Add("b");
  ASSERT_EQ(TryGet(queue), "a");
  ASSERT_EQ(TryGet(queue), "b");
  std::atomic<bool> drained{false};
  std::jthread drain([&] { drained = queue.ShutDownWithDrain({}); });
  EXPECT_EQ(queue.Get({}), std::nullopt) << "it is shut down";
  queue.Done("a");
  EXPECT_FALSE(drained);
  queue.Done("b");
  drain.join();
  EXPECT_TRUE(drained);
}

TEST(WorkQueue, AShutDownWaitsForNothing) {
  WorkQueue queue;
  queue.Add("a");
  ASSERT_EQ(TryGet(queue), "a");
  queue.ShutDown();
  EXPECT_EQ(queue.Get({}), std::nullopt);
}

TEST(WorkQueue, AShutDownEndsADrain) {
  WorkQueue queue;
  queue.Add("a");
  ASSERT_EQ(TryGet(queue), "a");
  std::atomic<int> drained{-1};
  std::jthread drain([&] { drained = queue.ShutDownWithDrain({}) ? 1 : 0; });
  EXPECT_EQ(queue.Get({}), std::nullopt);
  // The drain may not have begun to wait, and then waits for the next.
  EXPECT_TRUE(Eventually([&] {
    queue.ShutDown();
    return drained == 0;
  }));
}

TEST(WorkQueue, ADrainEndsOnRequest) {
  WorkQueue queue;
  queue.Add("a");
  ASSERT_EQ(TryGet(queue), "a");
  std::stop_source stop;
  std::atomic<int> drained{-1};
  std::jthread drain([&] { drained = queue.ShutDownWithDrain(stop.get_token()) ? 1 : 0; });
  stop.request_stop();
  drain.join();
  EXPECT_EQ(drained, 0);
}

TEST(WorkQueue, ADrainGivesOutAKeyThatWasAddedWhileWorkedOn) {
  WorkQueue queue;
  queue.Add("a");
  ASSERT_EQ(TryGet(queue), "a");
  queue.Add("a");
  std::atomic<bool> drained{false};
  std::jthread drain([&] { drained = queue.ShutDownWithDrain({}); });
  queue.Done("a");
  ASSERT_EQ(TryGet(queue), "a");
  EXPECT_FALSE(drained);
  queue.Done("a");
  drain.join();
  EXPECT_EQ(queue.Get({}), std::nullopt);
}

TEST(WorkQueue, KeepsNothingOfAKeyThatIsDone) {
  FakeClock clock;
  WorkQueue queue(clock);
  for (int i = 0; i < 1000; ++i) queue.Add("key-" + std::to_string(i));
  EXPECT_EQ(queue.size(), 1000u);
  for (int i = 0; i < 1000; ++i) {
    std::string key = TryGet(queue);
    queue.AddRateLimited(key);
    queue.Done(key);
  }
  clock.Advance(seconds(1));
  std::jthread mover([&] { (void)queue.Get({}); });  // the first that is due
  mover.join();
  EXPECT_EQ(queue.size(), 1000u);
  for (int i = 0; i < 1000; ++i) {
    std::string key = i == 0 ? "key-0" : TryGet(queue);
    queue.Forget(key);
    queue.Done(key);
  }
  EXPECT_EQ(queue.size(), 0u);
  queue.Forget("never seen");
  queue.Done("never seen");
  EXPECT_EQ(queue.size(), 0u);
}

TEST(WorkQueue, DrainsOnShutDownAndTakesNothingMore) {
  WorkQueue queue;
  queue.Add("a");
  queue.AddAfter("delayed", hours(1));
  queue.ShutDown();
  queue.Add("b");
  queue.AddAfter("c", seconds(1));
  EXPECT_EQ(TryGet(queue), "a");
  queue.Done("a");
  EXPECT_EQ(queue.Get({}), std::nullopt);
  EXPECT_EQ(queue.size(), 0u);
}

TEST(WorkQueue, StopsWaitingOnRequest) {
  FakeClock clock;
  WorkQueue queue(clock);
  std::optional<WorkQueue::Item> got = WorkQueue::Item{"x", 0};
  std::jthread worker([&](const std::stop_token& stop) { got = queue.Get(stop); });
  worker.request_stop();
  worker.join();
  EXPECT_FALSE(got);
}

TEST(WorkQueue, WaitersWakeOnShutDown) {
  FakeClock clock;
  WorkQueue queue(clock);
  std::vector<std::jthread> workers;
  std::atomic<int> ended{0};
  for (int i = 0; i < 3; ++i) {
    workers.emplace_back([&] {
      EXPECT_EQ(queue.Get({}), std::nullopt);
      ++ended;
    });
  }
  ASSERT_TRUE(Eventually([&] { return clock.waiters() == 3; }));
  EXPECT_EQ(ended, 0);
  queue.ShutDown();
  workers.clear();
  EXPECT_EQ(ended, 3);
}

TEST(KeyTable, AgreesWithAMapThroughGrowthAndShrinkage) {
  struct Thing {
    explicit Thing(std::string name) : key(std::move(name)) {}
    bool Is(const std::string& other) const { return key == other; }
    static size_t Hash(const std::string& key) { return std::hash<std::string>()(key); }
    std::string key;
    uint32_t hash = 0;
    int value = 0;
  };
  KeyTable<Thing, std::string> table;
  std::map<std::string, int> model;
  std::mt19937 random(1);
  for (int step = 0; step < 60000; ++step) {
    const std::string key = "k" + std::to_string(random() % 3000);
    // Grows in the first half, shrinks in the second.
    if (random() % 10 < (step < 30000 ? 7u : 2u)) {
      const auto [thing, is_new] = table.FindOrAdd(key, key);
      EXPECT_NE(is_new, model.contains(key));
      thing->value = model[key] = step;
    } else if (Thing* found = table.Find(key)) {
      ASSERT_EQ(model.erase(key), 1u);
      table.Erase(found);
    }
    ASSERT_EQ(table.size(), model.size());
    if (step % 5000 != 0) continue;
    for (const auto& [known, value] : model) ASSERT_EQ(table.Find(known)->value, value) << known;
  }
  // Each is met once, also while they go.
  std::map<std::string, int> met;
  table.ForEach([&](Thing* thing) {
    EXPECT_TRUE(met.emplace(thing->key, thing->value).second);
    if (thing->value % 2 == 0) table.Erase(thing);
  });
  EXPECT_EQ(met, model);
  std::erase_if(model, [](const auto& entry) { return entry.second % 2 == 0; });
  EXPECT_EQ(table.size(), model.size());
  table.Reserve(100000);
  for (const auto& [key, value] : model) EXPECT_EQ(table.Find(key)->value, value);
  table.ForEach([&](Thing* thing) { table.Erase(thing); });
  EXPECT_EQ(table.size(), 0u);
}

TEST(Backoff, DoublesUntilItsLimit) {
  BackoffOptions options{milliseconds(1), seconds(1)};
  for (auto [failures, expected] : {std::pair{0, 1}, {1, 2}, {2, 4}, {3, 8}, {4, 16}, {9, 512}, {10, 1000}, {1000000, 1000}}) {
    EXPECT_EQ(Backoff(options, failures), milliseconds(expected)) << failures;
  }
}

TEST(Backoff, NeverOverflows) {
  BackoffOptions options{milliseconds(1), hours(1000)};
  for (int failures : {0, 10, 62, 63, 64, 1000, 1 << 30}) {
    EXPECT_GT(Backoff(options, failures), Duration(0)) << failures;
    EXPECT_LE(Backoff(options, failures), hours(1000)) << failures;
  }
  options.max = Duration::max();
  EXPECT_EQ(Backoff(options, 1 << 20), Duration::max());
  options.base = minutes(1);
  EXPECT_EQ(Backoff(options, 1 << 20), Duration::max());
  EXPECT_EQ(Backoff({seconds(5), seconds(1)}, 0), seconds(1)) << "a base above the limit";
}

TEST(WorkQueue, CountsFailuresOfEachKeyUntilForgotten) {
  FakeClock clock;
  WorkQueue queue(clock, {.base = milliseconds(1), .max = seconds(1)});
  queue.AddRateLimited("one");
  queue.AddRateLimited("one");
  queue.AddRateLimited("two");
  EXPECT_EQ(queue.failures("one"), 2);
  EXPECT_EQ(queue.failures("two"), 1);
  queue.Forget("one");
  EXPECT_EQ(queue.failures("one"), 0);
  EXPECT_EQ(queue.failures("two"), 1);
  queue.AddRateLimited("one");
  EXPECT_EQ(queue.failures("one"), 1);
}

TEST(WorkQueue, BacksOffExponentiallyUntilForgotten) {
  FakeClock clock;
  WorkQueue queue(clock, {.base = milliseconds(5), .max = milliseconds(30)});
  for (int expected : {5, 10, 20, 30, 30}) {
    queue.AddRateLimited("a");
    std::atomic<bool> got{false};
    std::jthread worker([&] { got = queue.Get({}).has_value(); });
    ASSERT_TRUE(Eventually([&] { return clock.waiters() == 1; }));
    EXPECT_EQ(clock.next(), clock.Mono() + milliseconds(expected));
    clock.Advance(milliseconds(expected) - Duration(1));
    EXPECT_FALSE(got);
    clock.Advance(Duration(1));
    worker.join();
    queue.Done("a");
  }
  EXPECT_EQ(queue.failures("a"), 5);
  queue.Forget("a");
  EXPECT_EQ(queue.failures("a"), 0);
}

}  // namespace
}  // namespace holdfast::kube
