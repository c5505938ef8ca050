#include "base/thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/per_thread.h"

namespace holdfast {
namespace {

TEST(Thread, IsToldToStopAndWaitedForAtItsEnd) {
  std::atomic<bool> ended = false;
  {
    Thread thread([&](std::stop_token stop) {
      Clock::Real().Sleep(std::chrono::hours(1), stop);
      ended = true;
    });
    EXPECT_TRUE(thread.joinable());
  }
  EXPECT_TRUE(ended);
}

TEST(Thread, EndsTheOneInWhosePlaceItIsPut) {
  std::atomic<int> ended = 0;
  auto body = [&](std::stop_token stop) {
    Clock::Real().Sleep(std::chrono::hours(1), stop);
    ++ended;
  };
  Thread thread(body);
  thread = Thread(body);
  EXPECT_EQ(ended, 1);
  thread = {};
  EXPECT_EQ(ended, 2);
  EXPECT_FALSE(thread.joinable());
}

TEST(Thread, NeedNotAskWhetherItIsToStop) {
  std::atomic<bool> ran = false;
  Thread thread([&] { ran = true; });
  thread.join();
  EXPECT_TRUE(ran);
}

TEST(Thread, KeepsWhatIsPerThreadApart) {
  static const PerThread<const int> slot;
  const int mine = 1, its = 2;
  slot.set(&mine);
  const int* seen = &mine;
  Thread([&] {
    seen = slot.get();
    slot.set(&its);
  }).join();
  EXPECT_EQ(seen, nullptr);
  EXPECT_EQ(slot.get(), &mine);
  slot.set(nullptr);
}

// Starts everything on the spot.
class AtOnce final : public Threads {
 public:
  std::vector<std::string> seen;
  std::unique_ptr<Running> Start(std::function<void()> body) override {
    seen.emplace_back("start");
    body();
    return std::make_unique<Ended>(seen);
  }

 private:
  class Ended final : public Running {
   public:
    explicit Ended(std::vector<std::string>& seen) : seen_(seen) {}
    void Join() override { seen_.emplace_back("join"); }

   private:
    std::vector<std::string>& seen_;
  };
};

TEST(Thread, ComesFromWhereItIsSaid) {
  AtOnce threads;
  Threads::Use(&threads);
  {
    const Thread thread([&] { threads.seen.emplace_back("run"); });
  }
  Threads::Use(nullptr);
  EXPECT_EQ(threads.seen, (std::vector<std::string>{"start", "run", "join"}));
}

}  // namespace
}  // namespace holdfast
