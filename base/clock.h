// The seam to time. Components take a Clock and never read the real one, so unit tests run in virtual time.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <stop_token>

namespace holdfast {

using Duration = std::chrono::nanoseconds;
using MonoTime = std::chrono::time_point<std::chrono::steady_clock, Duration>;  // for durations and deadlines
using WallTime = std::chrono::time_point<std::chrono::system_clock, Duration>;  // for what people and the API read

class Clock {
 public:
  virtual ~Clock() = default;
  virtual MonoTime Mono() const = 0;
  virtual WallTime Wall() const = 0;
  // Waits on `cv` (whose mutex `lock` holds) until `ready()`, `deadline` or a stop request. True when ready() holds. `ready` runs locked.
  virtual bool WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable_any& cv, MonoTime deadline, std::stop_token stop,
                         const std::function<bool()>& ready) = 0;
  // False when stopped before `duration` passed.
  bool Sleep(Duration duration, std::stop_token stop);
  static Clock& Real();
};

// Time moves only by Advance, which wakes whoever waits. Thread-safe.
class FakeClock final : public Clock {
 public:
  explicit FakeClock(WallTime start = WallTime(std::chrono::hours(24 * 365 * 50)));
  MonoTime Mono() const override;
  WallTime Wall() const override;
  bool WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable_any& cv, MonoTime deadline, std::stop_token stop,
                 const std::function<bool()>& ready) override;
  void Advance(Duration by);
  int waiters() const;    // how many threads wait in WaitUntil now
  MonoTime next() const;  // the earliest deadline of those, max when there is none
  // Waits for up to `limit` of real time until `threads` threads are in WaitUntil and each has looked and found that it has to wait on:
  // then nothing happens any more before time or somebody else moves. False when it did not come to that.
  bool Settle(int threads, Duration limit = std::chrono::seconds(10));

 private:
  struct Waiter {
    MonoTime deadline;
    std::condition_variable_any* cv;
    uint64_t looked = 0;  // epoch_ when it began to look last and found nothing
  };
  bool AllLooked(uint64_t since) const;

  mutable std::mutex mutex_;
  Duration passed_{0};
  const WallTime start_;
  std::set<Waiter*> waiting_;
  uint64_t changes_ = 0;  // of waiting_
  std::atomic<uint64_t> epoch_{0};
};

}  // namespace holdfast
