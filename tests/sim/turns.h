// One thread on which many take turns: the product's Threads are fibers here, its Clock is virtual, and who comes next is drawn from a
// seed. A turn lasts until its fiber waits (Clock::WaitUntil, Clock::Sleep, Thread::join). When nobody can go on, time moves to the next
// moment at which somebody can. Everything of a simulation happens inside Run.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/per_thread.h"
#include "base/thread.h"

namespace holdfast::sim {

// SplitMix64 (Steele, Lea, Flood, 2014). The same numbers everywhere, unlike the standard's distributions.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  uint64_t Below(uint64_t limit) { return Next() % limit; }
  bool Chance(double probability) { return static_cast<double>(Next() >> 11) * 0x1.0p-53 < probability; }
  Duration Between(Duration least, Duration most) { return least + Duration(Below(static_cast<uint64_t>((most - least).count()) + 1)); }

 private:
  uint64_t state_;
};

// For mistakes of the simulation itself.
[[noreturn]] void Die(const char* what);

class Turns final : public Threads, public Clock {
 public:
  explicit Turns(uint64_t seed);
  ~Turns() override;  // every fiber must have ended
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  std::unique_ptr<Running> Start(std::function<void()> body) override;
  MonoTime Mono() const override { return MonoTime(passed_); }
  WallTime Wall() const override;
  bool WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable_any& cv, MonoTime deadline, std::stop_token stop,
                 const std::function<bool()>& ready) override;
  // For who has no mutex: waits until `ready` or `deadline`. Only on a fiber.
  bool Await(const std::function<bool()>& ready, MonoTime deadline = MonoTime::max(), std::stop_token stop = {});
  void Pause(Duration duration) {
    (void)Await([] { return false; }, Mono() + duration);
  }

  // Runs `body` and what it starts, until `body` returns; false when nobody can go on any more before that (everybody waits for ever).
  bool Run(const std::function<void()>& body);
  Random& random() { return random_; }
  uint64_t turns() const { return turns_; }
  size_t fibers() const { return fibers_.size(); }  // that have not ended, the one that asks among them

 private:
  struct Fiber;
  class Handle;
  static void Main(unsigned high, unsigned low);
  void Switch(Fiber* to);
  void BackToScheduler();
  bool Runnable(const Fiber& fiber) const;
  bool Step();
  Fiber* New(std::function<void()> body);

  Duration passed_{0};
  Random random_;
  uint64_t turns_ = 0;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<std::unique_ptr<Fiber>> ended_;  // their stacks are used again
  Fiber* current_ = nullptr;                   // null: the scheduler itself
  std::unique_ptr<Fiber> scheduler_;
};

}  // namespace holdfast::sim
