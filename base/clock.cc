#include "base/clock.h"

#include <algorithm>

namespace holdfast {
namespace {

class RealClock final : public Clock {
 public:
  MonoTime Mono() const override { return std::chrono::steady_clock::now(); }
  WallTime Wall() const override { return std::chrono::system_clock::now(); }
  bool WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable_any& cv, MonoTime deadline, std::stop_token stop,
                 const std::function<bool()>& ready) override {
    if (deadline == MonoTime::max()) return cv.wait(lock, std::move(stop), ready);
    return cv.wait_until(lock, std::move(stop), deadline, ready);
  }
};

}  // namespace

Clock& Clock::Real() {
  static RealClock clock;
  return clock;
}

bool Clock::Sleep(Duration duration, std::stop_token stop) {
  std::mutex mutex;
  std::condition_variable_any cv;
  std::unique_lock lock(mutex);
  WaitUntil(lock, cv, Mono() + duration, stop, [] { return false; });
  return !stop.stop_requested();
}

FakeClock::FakeClock(WallTime start) : start_(start) {}

MonoTime FakeClock::Mono() const {
  std::lock_guard lock(mutex_);
  return MonoTime(passed_);
}

WallTime FakeClock::Wall() const {
  std::lock_guard lock(mutex_);
  return start_ + passed_;
}

bool FakeClock::WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable_any& cv, MonoTime deadline, std::stop_token stop,
                          const std::function<bool()>& ready) {
  Waiter self{deadline, &cv};
  {
    std::lock_guard guard(mutex_);
    waiting_.insert(&self);
    ++changes_;
  }
  for (;;) {
    const uint64_t epoch = epoch_;
    if (ready() || Mono() >= deadline || stop.stop_requested()) break;
    {
      std::lock_guard guard(mutex_);
      self.looked = epoch;
    }
    // A short real wait closes the race between a test's Advance and a waiter that has just looked at the time.
    cv.wait_for(lock, stop, std::chrono::milliseconds(2), [&] { return ready() || Mono() >= deadline || epoch_ != epoch; });
  }
  std::lock_guard guard(mutex_);
  waiting_.erase(&self);
  ++changes_;
  return ready();
}

void FakeClock::Advance(Duration by) {
  std::lock_guard lock(mutex_);
  passed_ += by;
  for (Waiter* waiter : waiting_) waiter->cv->notify_all();
}

MonoTime FakeClock::next() const {
  std::lock_guard lock(mutex_);
  MonoTime next = MonoTime::max();
  for (const Waiter* waiter : waiting_) next = std::min(next, waiter->deadline);
  return next;
}

bool FakeClock::AllLooked(uint64_t since) const {
  return std::all_of(waiting_.begin(), waiting_.end(), [&](const Waiter* w) { return w->looked >= since; });
}

bool FakeClock::Settle(int threads, Duration limit) {
  constexpr Duration kPause = std::chrono::microseconds(200);
  const MonoTime end = Real().Mono() + limit;
  uint64_t round = 0, changes = 0;  // round 0: none under way
  while (Real().Mono() < end) {
    {
      std::lock_guard lock(mutex_);
      if (round != 0 && changes == changes_ && AllLooked(round)) return true;
      if (static_cast<int>(waiting_.size()) != threads) {
        round = 0;
      } else if (round == 0 || changes != changes_) {
        round = ++epoch_;
        changes = changes_;
        for (Waiter* waiter : waiting_) waiter->cv->notify_all();
      }
    }
    Real().Sleep(kPause, {});
  }
  return false;
}

int FakeClock::waiters() const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(waiting_.size());
}

}  // namespace holdfast
