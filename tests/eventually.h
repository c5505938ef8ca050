// How tests wait: for a condition, with a limit, never for a time.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "base/clock.h"

namespace holdfast::testing {

// How many times longer than on a quiet machine things take here (HF_SLOW; scripts/test.py measures it): limits are multiplied by it.
inline double Slow() {
  const char* slow = getenv("HF_SLOW");  // NOLINT(concurrency-mt-unsafe): nothing here calls setenv
  return slow != nullptr ? std::clamp(strtod(slow, nullptr), 1.0, 10.0) : 1.0;
}

// Whether ready() becomes true before the limit.
template <class Ready>
bool Eventually(Ready ready, Duration limit = std::chrono::seconds(20), Duration every = std::chrono::milliseconds(2)) {
  const auto longest = std::chrono::duration_cast<Duration>(limit * Slow());
  for (const MonoTime end = Clock::Real().Mono() + longest; Clock::Real().Mono() < end;) {
    if (ready()) return true;
    Clock::Real().Sleep(every, {});
  }
  return ready();
}

}  // namespace holdfast::testing
