// Virtual time goes on by itself, for code under test that waits on a thread of its own.
#pragma once

#include <thread>

#include "base/clock.h"

namespace holdfast {

// Moves a FakeClock on by `step` while somebody waits on it, until it is gone.
class Pump {
 public:
  explicit Pump(FakeClock& clock, Duration step = std::chrono::milliseconds(100))
      : thread_([&clock, step](std::stop_token stop) {
          while (!stop.stop_requested()) {
            // Paced: free running, virtual time would outrun the code under test.
            if (clock.waiters() > 0) clock.Advance(step);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        }) {}

 private:
  std::jthread thread_;
};

}  // namespace holdfast
