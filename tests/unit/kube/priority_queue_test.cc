// The queue's priorities, and what its metrics show of them. Named as in controller-runtime's priorityqueue_test.go where it has the same.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <thread>

#include "kube/metrics.h"
#include "kube/queue.h"
#include "tests/unit/kube/simulation.h"

namespace holdfast::kube {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

class PriorityQueue : public ::testing::Test {
 protected:
  // The key that comes next; there must be one.
  std::string Get() {
    EXPECT_GT(queue_.depth(), 0u);
    auto item = queue_.Get({});
    priority_ = item ? item->priority : -1;
    return item ? item->key : "";
  }
  int DepthOf(int priority) const {
    return static_cast<int>(
        MetricValue(registry_, "workqueue_depth", {{"name", "test"}, {"controller", "test"}, {"priority", std::to_string(priority)}}));
  }
  double Value(const std::string& name, bool sum = false) const {
    return MetricValue(registry_, name, {{"name", "test"}, {"controller", "test"}}, sum);
  }
  int adds() const { return static_cast<int>(Value("workqueue_adds_total")); }
  int retries() const { return static_cast<int>(Value("workqueue_retries_total")); }
  FakeClock clock_;
  prometheus::Registry registry_;
  RuntimeMetrics metrics_{registry_, clock_};
  WorkQueue queue_{clock_, {}, &metrics_.Queue("test")};
  int priority_ = 0;
};

TEST_F(PriorityQueue, ReturnsAnItem) {
  queue_.Add("foo");
  EXPECT_EQ(Get(), "foo");
  EXPECT_EQ(DepthOf(0), 0);
  EXPECT_EQ(adds(), 1);
  EXPECT_EQ(retries(), 0);
}

TEST_F(PriorityQueue, ReturnsItemsInOrder) {
  queue_.Add("foo");
  queue_.Add("bar");
  EXPECT_EQ(Get(), "foo");
  EXPECT_EQ(Get(), "bar");
  EXPECT_EQ(DepthOf(0), 0);
  EXPECT_EQ(adds(), 2);
}

TEST_F(PriorityQueue, DoesNotReturnAnItemThatIsCurrentlyLocked) {
  queue_.Add("foo");
  EXPECT_EQ(Get(), "foo");
  queue_.Add("foo");
  queue_.Add("bar");
  EXPECT_EQ(Get(), "bar");
  EXPECT_EQ(DepthOf(0), 1);
  EXPECT_EQ(adds(), 3);
}

TEST_F(PriorityQueue, ReturnsAnItemAsSoonAsItIsUnlocked) {
  queue_.Add("foo");
  EXPECT_EQ(Get(), "foo");
  queue_.Add("foo");
  queue_.Add("bar");
  EXPECT_EQ(Get(), "bar");
  queue_.Add("baz");
  queue_.Done("foo");
  EXPECT_EQ(Get(), "foo");
  EXPECT_EQ(DepthOf(0), 1);
  EXPECT_EQ(adds(), 4);
}

TEST_F(PriorityQueue, DeduplicatesItems) {
  queue_.Add("foo");
  queue_.Add("foo");
  EXPECT_EQ(queue_.depth(), 1u);
  EXPECT_EQ(DepthOf(0), 1);
  EXPECT_EQ(adds(), 1);
}

TEST_F(PriorityQueue, EnqueuesALockedItem) {
  queue_.Add("foo");
  EXPECT_EQ(Get(), "foo");
  queue_.Add("foo");
  EXPECT_EQ(queue_.depth(), 1u);
  queue_.Done("foo");
  EXPECT_EQ(Get(), "foo");
  EXPECT_EQ(DepthOf(0), 0);
  EXPECT_EQ(adds(), 2);
}

TEST_F(PriorityQueue, RetainsTheHighestPriority) {
  queue_.Add("foo", {.priority = 1});
  queue_.Add("foo", {.priority = 2});
  EXPECT_EQ(Get(), "foo");
  EXPECT_EQ(priority_, 2);
  EXPECT_EQ(queue_.depth(), 0u);
  EXPECT_EQ(DepthOf(1), 0);
  EXPECT_EQ(DepthOf(2), 0);
  EXPECT_EQ(adds(), 1);
}

TEST_F(PriorityQueue, WillNotDecreaseThePriority) {
  queue_.Add("foo", {.priority = 2});
  queue_.Add("foo", {.priority = 1});
  EXPECT_EQ(Get(), "foo");
  EXPECT_EQ(priority_, 2);
  EXPECT_EQ(DepthOf(2), 0);
  EXPECT_EQ(adds(), 1);
}

TEST_F(PriorityQueue, GetsPushedToTheFrontIfThePriorityIncreases) {
  for (const char* key : {"foo", "bar", "baz"}) queue_.Add(key);
  queue_.Add("baz", {.priority = 1});
  EXPECT_EQ(Get(), "baz");
  EXPECT_EQ(priority_, 1);
  EXPECT_EQ(queue_.depth(), 2u);
  EXPECT_EQ(DepthOf(0), 2);
  EXPECT_EQ(DepthOf(1), 0);
  EXPECT_EQ(adds(), 3);
}

TEST_F(PriorityQueue, RetainsTheLowestAfterDuration) {
  queue_.Add("foo");
  queue_.Add("foo", {.after = hours(1)});
  EXPECT_EQ(Get(), "foo");
  EXPECT_EQ(queue_.depth(), 0u);
  EXPECT_EQ(DepthOf(0), 0);
  EXPECT_EQ(adds(), 1);
}

TEST_F(PriorityQueue, DoesNotIncludeItemsThatAreNotReadyInItsDepth) {
  queue_.Add("foo", {.after = minutes(1)});
  queue_.Add("baz");
  queue_.Add("bar", {.after = minutes(1)});
  queue_.Add("bal");
  EXPECT_EQ(queue_.depth(), 2u);
  EXPECT_EQ(DepthOf(0), 2);
  EXPECT_EQ(retries(), 2);
}

TEST_F(PriorityQueue, GetDoesNotGetStuckWhenTheQueueIsShutDown) {
  queue_.Add("baz");
  queue_.ShutDown();
  queue_.Add("foo", {.after = seconds(1)});
  EXPECT_EQ(Get(), "baz") << "what was ready is still given out";
  EXPECT_EQ(queue_.Get({}), std::nullopt);
  EXPECT_EQ(queue_.Get({}), std::nullopt);
}

TEST_F(PriorityQueue, ReturnsManyItems) {
  std::mt19937 random(1);
  WorkQueue queue;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 1000; ++i) {
      const int number = static_cast<int>(random() % 100);
      const std::string key = "foo" + std::to_string(i);
      if (number < 10) {
        queue.Add(key, {.after = milliseconds(number)});
      } else {
        queue.Add(key, {.priority = number});
      }
    }
    std::vector<std::jthread> workers;
    for (int w = 0; w < 20; ++w) {
      workers.emplace_back([&] {
        for (int i = 0; i < 50; ++i) {
          auto item = queue.Get({});
          ASSERT_TRUE(item);
          queue.Done(item->key);
        }
      });
    }
  }
}

TEST_F(PriorityQueue, UpdatesMetricsForAnItemAddedWithADelayAndThenWithout) {
  queue_.Add("foo", {.after = hours(1)});
  EXPECT_EQ(queue_.depth(), 0u);
  EXPECT_EQ(DepthOf(0), 0);
  queue_.Add("foo");
  EXPECT_EQ(queue_.depth(), 1u);
  EXPECT_EQ(DepthOf(0), 1);
  EXPECT_EQ(Get(), "foo");
  EXPECT_EQ(DepthOf(0), 0);
  EXPECT_EQ(adds(), 1);
}

TEST_F(PriorityQueue, UpdatesMetricsWhenADelayedItemIsAddedAgainWithHigherPriorityAndNoDelay) {
  queue_.Add("foo", {.after = hours(1), .priority = 0});
  queue_.Add("foo", {.priority = 1});
  EXPECT_EQ(DepthOf(0), 0);
  EXPECT_EQ(DepthOf(1), 1);
  EXPECT_EQ(Get(), "foo");
  EXPECT_EQ(priority_, 1);
  EXPECT_EQ(DepthOf(0), 0);
  EXPECT_EQ(DepthOf(1), 0);
}

TEST_F(PriorityQueue, FollowsFifoOrderInTheNewPriorityQueueWhenItemPriorityChanges) {
  queue_.Add("foo", {.priority = 0});
  queue_.Add("bar", {.priority = 1});
  queue_.Add("foo", {.priority = 1});
  EXPECT_EQ(queue_.depth(), 2u);
  EXPECT_EQ(Get(), "bar");
  EXPECT_EQ(priority_, 1);
  EXPECT_EQ(Get(), "foo");
  EXPECT_EQ(priority_, 1);
}

TEST_F(PriorityQueue, HighPriorityItemsAreReturnedBeforeLowPriorityItemsManyTimes) {
  for (Duration after : {-seconds(1), seconds(0), seconds(1)}) {
    constexpr int kEach = 200;
    for (int i = 0; i < kEach; ++i) {
      for (int priority : {-10, 10, 0, -5, 5}) queue_.Add(std::to_string(priority) + "/" + std::to_string(i), {after, false, priority});
    }
    clock_.Advance(seconds(1));
    for (int priority : {10, 5, 0, -5, -10}) {
      for (int i = 0; i < kEach; ++i) {
        auto item = queue_.Get({});
        ASSERT_EQ(item->key, std::to_string(priority) + "/" + std::to_string(i));
        ASSERT_EQ(item->priority, priority);
        queue_.Done(item->key);
      }
      EXPECT_EQ(DepthOf(priority), 0);
    }
  }
}

TEST_F(PriorityQueue, ALockedKeyDoesNotHoldUpOthersOfAnyClass) {
  queue_.Add("busy", {.priority = 10});
  EXPECT_EQ(Get(), "busy");
  queue_.Add("busy", {.priority = 10});
  queue_.Add("low", {.priority = kLowPriority});
  EXPECT_EQ(Get(), "low");
  queue_.Done("busy");
  EXPECT_EQ(Get(), "busy");
}

TEST_F(PriorityQueue, ItemsAreInItsDepthAndMetricsOnceTheyAreReady) {
  for (int round = 0; round < 2; ++round) {
    queue_.Add("foo", {.after = milliseconds(500)});
    queue_.Add("baz");
    queue_.Add("bar", {.after = milliseconds(500)});
    queue_.Add("bal");
    EXPECT_EQ(queue_.depth(), 2u);
    EXPECT_EQ(DepthOf(0), 2);
    clock_.Advance(seconds(1));
    EXPECT_EQ(Get(), "baz");
    EXPECT_EQ(queue_.depth(), 3u);
    EXPECT_EQ(DepthOf(0), 3);
    queue_.Done("baz");
    for (int i = 0; i < 3; ++i) queue_.Done(Get());
    EXPECT_EQ(queue_.depth(), 0u);
    EXPECT_EQ(DepthOf(0), 0);
  }
}

TEST_F(PriorityQueue, ManyThreadsNeverHoldTheSameKeyAndLoseNone) {
  WorkQueue queue;
  constexpr int kKeys = 50;
  std::atomic<int> added[kKeys] = {}, seen[kKeys] = {}, holders[kKeys] = {};
  std::atomic<bool> twice{false};
  std::vector<std::jthread> workers;
  for (int w = 0; w < 8; ++w) {
    workers.emplace_back([&](const std::stop_token& stop) {
      while (auto item = queue.Get(stop)) {
        const int key = std::stoi(item->key);
        if (holders[key].fetch_add(1) != 0) twice = true;
        seen[key] = added[key].load();
        std::this_thread::yield();
        holders[key].fetch_sub(1);
        queue.Done(item->key);
      }
    });
  }
  std::vector<std::jthread> producers;
  for (unsigned p = 0; p < 4; ++p) {
    producers.emplace_back([&, p] {
      std::mt19937 random(p);
      for (int i = 0; i < 1000; ++i) {
        const int key = static_cast<int>(random() % kKeys);
        ++added[key];
        queue.Add(std::to_string(key), {.after = milliseconds(random() % 4), .priority = static_cast<int>(random() % 5)});
      }
    });
  }
  producers.clear();
  for (int key = 0; key < kKeys; ++key) {
    EXPECT_TRUE(Eventually([&] { return seen[key] == added[key]; })) << "key " << key << " was not given out after it was added last";
  }
  EXPECT_FALSE(twice);
}

// What the queue is, said as plainly as possible; random calls must have the same outcome on both.
class Model {
 public:
  void Add(const std::string& key, Duration after, int priority, MonoTime now) {
    auto [at, fresh] = waiting_.try_emplace(key, Entry{priority, now + after, after <= Duration(0), 0});
    Entry& e = at->second;
    if (fresh) {
      e.order = ++order_;
      return;
    }
    if (priority > e.priority) {
      e.priority = priority;
      if (e.ready) e.order = ++order_;
    }
    if (e.ready) return;
    if (after <= Duration(0)) {
      e.ready = true;
      e.order = ++order_;
    } else if (now + after < e.due) {
      e.due = now + after;
      e.order = ++order_;
    }
  }
  // The key that comes next, "" for none; ties between keys that become ready at the same moment are the queue's to break.
  std::set<std::string> Next(MonoTime now) {
    std::vector<std::pair<MonoTime, std::string>> due;
    for (auto& [key, e] : waiting_) {
      if (!e.ready && e.due <= now) due.emplace_back(e.due, key);
    }
    std::sort(due.begin(), due.end());
    for (auto& [when, key] : due) {
      waiting_[key].ready = true;
      waiting_[key].order = ++order_;
      waiting_[key].tie = when;
    }
    const Entry* best = nullptr;
    for (auto& [key, e] : waiting_) {
      if (!e.ready || locked_.contains(key)) continue;
      if (best == nullptr || e.priority > best->priority || (e.priority == best->priority && e.order < best->order)) best = &e;
    }
    std::set<std::string> next;
    for (auto& [key, e] : waiting_) {
      if (best == nullptr || !e.ready || locked_.contains(key) || e.priority != best->priority) continue;
      if (e.order == best->order || (best->tie != MonoTime() && e.tie == best->tie)) next.insert(key);
    }
    return next;
  }
  void Take(const std::string& key) {
    waiting_.erase(key);
    locked_.insert(key);
  }
  std::set<std::string> locked_;

 private:
  struct Entry {
    int priority;
    MonoTime due;
    bool ready;
    int order;
    MonoTime tie{};
  };
  std::map<std::string, Entry> waiting_;
  int order_ = 0;
};

TEST_F(PriorityQueue, AgreesWithAModelUnderRandomCalls) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    FakeClock clock;
    clock.Advance(seconds(1));
    WorkQueue queue(clock);
    Model model;
    for (int step = 0; step < 2000; ++step) {
      switch (random() % 4) {
        case 0:
        case 1: {
          const std::string key = "k" + std::to_string(random() % 12);
          const Duration after = milliseconds(random() % 3 == 0 ? random() % 10 : 0);
          const int priority = static_cast<int>(random() % 3);
          queue.Add(key, {.after = after, .priority = priority});
          model.Add(key, after, priority, clock.Mono());
          break;
        }
        case 2: {
          clock.Advance(milliseconds(random() % 3));
          const std::set<std::string> expected = model.Next(clock.Mono());
          if (expected.empty()) break;
          auto item = queue.Get({});
          ASSERT_TRUE(item);
          ASSERT_TRUE(expected.contains(item->key)) << "seed " << seed << ", step " << step << ": " << item->key;
          model.Take(item->key);
          break;
        }
        case 3: {
          if (model.locked_.empty()) break;
          const std::string key = *std::next(model.locked_.begin(), static_cast<long>(random() % model.locked_.size()));
          queue.Done(key);
          model.locked_.erase(key);
          break;
        }
      }
    }
  }
}

TEST_F(PriorityQueue, EveryWorkerReturnsOnShutDownThoughKeysAreBeingHandedOut) {
  for (int round = 0; round < 20; ++round) {
    WorkQueue queue;
    std::vector<std::jthread> workers;
    for (unsigned w = 0; w < 8; ++w) {
      workers.emplace_back([&queue, w] {
        std::mt19937 random(w);
        for (;;) {
          queue.Add(std::to_string(random() % 1000), {.priority = static_cast<int>(random() % 100)});
          if (!queue.Get({})) return;  // never done: most keys become locked
        }
      });
    }
    Clock::Real().Sleep(milliseconds(1), {});
    queue.ShutDown();
    workers.clear();  // or the test does not end
  }
}

TEST_F(PriorityQueue, ManyPrioritiesShareOneSeries) {
  for (int i = 0; i < 1000; ++i) queue_.Add(std::to_string(i), {.priority = i * 7});
  for (int i = 999; i >= 0; --i) {
    ASSERT_EQ(Get(), std::to_string(i));
    queue_.Done(std::to_string(i));
  }
  size_t series = 0;
  for (const auto& family : registry_.Collect()) {
    if (family.name != "workqueue_depth") continue;
    series = family.metric.size();
    for (const auto& metric : family.metric) EXPECT_EQ(metric.gauge.value, 0);
  }
  EXPECT_LE(series, 17u);
}

TEST_F(PriorityQueue, MeasuresWaitingWorkingAndUnfinishedWork) {
  queue_.Add("foo");
  EXPECT_EQ(adds(), 1);
  EXPECT_EQ(DepthOf(0), 1);
  clock_.Advance(microseconds(50));
  EXPECT_EQ(Get(), "foo");
  EXPECT_DOUBLE_EQ(Value("workqueue_queue_duration_seconds", /*sum=*/true), 5e-05);
  EXPECT_EQ(Value("workqueue_queue_duration_seconds"), 1);
  for (int i = 0; i < 5; ++i) queue_.Add("foo");
  EXPECT_EQ(adds(), 2);
  EXPECT_EQ(DepthOf(0), 1);
  clock_.Advance(microseconds(25));
  queue_.Done("foo");
  EXPECT_DOUBLE_EQ(Value("workqueue_work_duration_seconds", true), 2.5e-05);
  EXPECT_EQ(DepthOf(0), 1);
  EXPECT_EQ(Get(), "foo");
  EXPECT_DOUBLE_EQ(Value("workqueue_queue_duration_seconds", true), 7.5e-05);
  EXPECT_EQ(Value("workqueue_queue_duration_seconds"), 2);
  clock_.Advance(milliseconds(1));
  metrics_.Refresh();
  EXPECT_DOUBLE_EQ(Value("workqueue_unfinished_work_seconds"), .001);
  EXPECT_DOUBLE_EQ(Value("workqueue_longest_running_processor_seconds"), .001);
  queue_.Done("foo");
  EXPECT_DOUBLE_EQ(Value("workqueue_work_duration_seconds", true), 0.001025);
  metrics_.Refresh();
  EXPECT_EQ(Value("workqueue_unfinished_work_seconds"), 0);
  queue_.AddRateLimited("foo");
  EXPECT_EQ(retries(), 1);
}

TEST(QueueMetrics, BeginAnewWithEachQueueOfTheName) {
  prometheus::Registry registry;
  RuntimeMetrics metrics(registry);
  const prometheus::Labels depth = {{"name", "q"}, {"controller", "q"}, {"priority", "0"}};
  {
    WorkQueue queue(Clock::Real(), {}, &metrics.Queue("q"));
    queue.Add("a");
    queue.Add("b");
    (void)queue.Get({});
    EXPECT_EQ(MetricValue(registry, "workqueue_depth", depth), 1);
  }
  EXPECT_EQ(MetricValue(registry, "workqueue_depth", depth), 0);
  metrics.Refresh();
  EXPECT_EQ(MetricValue(registry, "workqueue_longest_running_processor_seconds", {{"name", "q"}, {"controller", "q"}}), 0);
}

}  // namespace
}  // namespace holdfast::kube
