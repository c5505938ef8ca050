#include "base/clock.h"

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
  decltype(waiting_)::iterator self;
  {
    std::lock_guard guard(mutex_);
    self = waiting_.insert(&cv);
  }
  // A short real wait closes the race between a test's Advance and a waiter that has just looked at the time.
  while (!ready() && Mono() < deadline && !stop.stop_requested()) {
    cv.wait_for(lock, stop, std::chrono::milliseconds(2), [&] { return ready() || Mono() >= deadline; });
  }
  std::lock_guard guard(mutex_);
  waiting_.erase(self);
  return ready();
}

void FakeClock::Advance(Duration by) {
  std::lock_guard lock(mutex_);
  passed_ += by;
  for (auto* cv : waiting_) cv->notify_all();
}

int FakeClock::waiters() const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(waiting_.size());
}

}  // namespace holdfast
