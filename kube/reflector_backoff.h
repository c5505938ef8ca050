// How long a reflector waits after failures: 800 ms, twice as long each time up to 30 s, times [1, 2); anew after two minutes without one.
// Thread-compatible.
#pragma once

#include <functional>

#include "base/clock.h"

namespace holdfast::kube {

// Uniform in [0, 1).
using RandomFn = std::function<double()>;
RandomFn MakeRandom();  // seeded by the system; thread-compatible

class ReflectorBackoff {
 public:
  ReflectorBackoff(Clock& clock, RandomFn random) : clock_(clock), random_(std::move(random)) {}
  Duration Next();
  double Random() { return random_(); }

 private:
  Clock& clock_;
  const RandomFn random_;
  Duration pause_{0};
  MonoTime last_end_{};
};

// For how long errors of one kind are tried again before something dearer is done: `window` from the first of them, anew after a minute
// without one. Thread-compatible.
class RetryWindow {
 public:
  RetryWindow(Clock& clock, Duration window) : clock_(clock), window_(window) {}
  bool ShouldRetry();  // called once for each error

 private:
  Clock& clock_;
  const Duration window_;
  MonoTime first_{}, last_{};
  bool running_ = false;
};

}  // namespace holdfast::kube
