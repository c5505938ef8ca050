// The queue's delays, in virtual time.
#include <gtest/gtest.h>

#include <thread>

#include "kube/queue.h"
#include "tests/unit/kube/simulation.h"

namespace holdfast::kube {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// One worker that takes what comes, and notes when.
class DelayedQueue : public ::testing::Test {
 protected:
  struct Taken {
    std::string key;
    int priority;
    Duration at;
    bool operator==(const Taken&) const = default;
    friend void PrintTo(const Taken& t, std::ostream* out) {
      *out << t.key << "(" << t.priority << ") at " << t.at.count() / 1000000 << " ms";
    }
  };
  void StartWorker() {
    worker_ = std::jthread([this](const std::stop_token& stop) {
      while (auto item = queue_.Get(stop)) {
        {
          std::lock_guard lock(mutex_);
          taken_.push_back({item->key, item->priority, clock_.Mono().time_since_epoch()});
        }
        queue_.Done(item->key);
      }
    });
    Idle();
  }
  // The worker has done what it can do now.
  void Idle() { ASSERT_TRUE(clock_.Settle(1)); }
  void Pass(Duration duration) {
    (void)Simulate(clock_, 1, duration, [] { return false; });
    Idle();
  }
  std::vector<Taken> taken() {
    std::lock_guard lock(mutex_);
    return taken_;
  }

  FakeClock clock_;
  WorkQueue queue_{clock_};
  std::mutex mutex_;
  std::vector<Taken> taken_;
  std::jthread worker_;
};

TEST_F(DelayedQueue, GivesAKeyWhenItsTimeHasCome) {
  StartWorker();
  queue_.AddAfter("a", milliseconds(50));
  EXPECT_EQ(queue_.depth(), 0u);
  Pass(milliseconds(49));
  EXPECT_TRUE(taken().empty());
  Pass(hours(1));
  EXPECT_EQ(taken(), (std::vector<Taken>{{"a", 0, milliseconds(50)}}));
}

TEST_F(DelayedQueue, KeepsTheEarlierOfTwoTimesAndGivesTheKeyOnce) {
  StartWorker();
  queue_.AddAfter("a", milliseconds(50));
  queue_.AddAfter("a", milliseconds(70));
  Pass(milliseconds(60));
  EXPECT_EQ(taken(), (std::vector<Taken>{{"a", 0, milliseconds(50)}}));
  Pass(hours(1));
  EXPECT_EQ(taken().size(), 1u) << "the later time was replaced, not added";
  queue_.AddAfter("b", milliseconds(50));
  queue_.AddAfter("b", milliseconds(30));
  const Duration now = clock_.Mono().time_since_epoch();
  Pass(hours(1));
  ASSERT_EQ(taken().size(), 2u);
  EXPECT_EQ(taken()[1].at, now + milliseconds(30));
}

TEST_F(DelayedQueue, GivesTwoKeysEachAtItsTime) {
  StartWorker();
  queue_.AddAfter("third", milliseconds(2000));
  queue_.AddAfter("first", milliseconds(50));
  queue_.AddAfter("second", milliseconds(100));
  Pass(seconds(3));
  EXPECT_EQ(taken(),
            (std::vector<Taken>{{"first", 0, milliseconds(50)}, {"second", 0, milliseconds(100)}, {"third", 0, milliseconds(2000)}}));
}

TEST_F(DelayedQueue, GivesAllThatAreDueInTheOrderOfTheirTimes) {
  for (auto [key, ms] : {std::pair{"c", 300}, {"a", 100}, {"d", 400}, {"b", 200}}) queue_.AddAfter(key, milliseconds(ms));
  clock_.Advance(seconds(1));
  StartWorker();
  std::string order;
  for (const Taken& t : taken()) order += t.key;
  EXPECT_EQ(order, "abcd");
}

TEST_F(DelayedQueue, ShortensAWaitThatRuns) {
  StartWorker();
  queue_.AddAfter("late", seconds(100));
  Idle();
  queue_.AddAfter("soon", seconds(1));
  Pass(seconds(1));
  EXPECT_EQ(taken(), (std::vector<Taken>{{"soon", 0, seconds(1)}}));
}

TEST_F(DelayedQueue, AddingWithoutADelayMakesADelayedKeyReadyAtOnce) {
  StartWorker();
  queue_.AddAfter("a", minutes(1));
  Idle();
  EXPECT_TRUE(taken().empty());
  queue_.Add("a");
  Idle();
  EXPECT_EQ(taken(), (std::vector<Taken>{{"a", 0, Duration(0)}}));
  Pass(hours(1));
  EXPECT_EQ(taken().size(), 1u);
}

TEST_F(DelayedQueue, ADelayDoesNotHoldBackAReadyKey) {
  queue_.Add("a");
  queue_.AddAfter("a", hours(1));
  StartWorker();
  EXPECT_EQ(taken(), (std::vector<Taken>{{"a", 0, Duration(0)}}));
  Pass(hours(2));
  EXPECT_EQ(taken().size(), 1u);
}

TEST_F(DelayedQueue, EndlessDelaysDoNotOverflow) {
  clock_.Advance(hours(1));
  queue_.AddAfter("a", Duration::max());
  queue_.AddAfter("b", -hours(1));
  StartWorker();
  ASSERT_EQ(taken().size(), 1u);
  EXPECT_EQ(taken()[0].key, "b");
}

TEST_F(DelayedQueue, RateLimitedKeysDoNotDelayEachOther) {
  for (int i = 0; i < 7; ++i) {
    queue_.AddRateLimited("bar");
    clock_.Advance(hours(1));
    ASSERT_EQ(queue_.Get({})->key, "bar");
    queue_.Done("bar");
  }
  const Duration start = clock_.Mono().time_since_epoch();
  StartWorker();
  queue_.AddRateLimited("foo");
  queue_.AddRateLimited("bar");  // 5 ms × 2^7
  Pass(seconds(1));
  EXPECT_EQ(taken(), (std::vector<Taken>{{"foo", 0, start + milliseconds(5)}, {"bar", 0, start + milliseconds(640)}}));
}

TEST_F(DelayedQueue, TheSoonerOfDelayAndBackoffCounts) {
  StartWorker();
  queue_.Add("a", {.after = hours(1), .rate_limited = true});
  queue_.Add("b", {.after = milliseconds(1), .rate_limited = true});
  Pass(seconds(1));
  EXPECT_EQ(taken(), (std::vector<Taken>{{"b", 0, milliseconds(1)}, {"a", 0, milliseconds(5)}}));
}

TEST_F(DelayedQueue, AHigherPriorityThatBecameReadyComesBeforeALowerOne) {
  queue_.Add("low", {.priority = -100});
  queue_.Add("prio", {.after = seconds(1), .priority = 0});
  clock_.Advance(seconds(1));
  StartWorker();
  EXPECT_EQ(taken(), (std::vector<Taken>{{"prio", 0, seconds(1)}, {"low", -100, seconds(1)}}));
}

TEST_F(DelayedQueue, TheHighestPriorityAndTheEarliestTimeAreKeptWhileDelayed) {
  StartWorker();
  queue_.Add("a", {.after = seconds(2), .priority = 5});
  queue_.Add("a", {.after = seconds(1), .priority = 1});
  queue_.Add("a", {.after = seconds(3), .priority = 7});
  Pass(minutes(1));
  EXPECT_EQ(taken(), (std::vector<Taken>{{"a", 7, seconds(1)}}));
}

}  // namespace
}  // namespace holdfast::kube
