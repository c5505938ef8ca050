// Holds a refused eviction for the second or two that its pod's checkpoint needs: kubectl drain asks again only after 5 s, whatever it is
// told, so that each drain took at least as long. Bounded in time, well below the webhook's timeout, and in number: every one held takes a
// thread of the server. Thread-safe.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

#include "base/clock.h"

namespace holdfast::controller {

class EvictionHold {
 public:
  static constexpr int kMost = 6;  // of the server's 16 threads

  // 0: nobody is held.
  EvictionHold(Clock& clock, Duration longest) : clock_(clock), longest_(longest) {}
  // Returns once over() is true, after `longest`, at Stop(), or at once where as many are held as may be. over() is asked at first, and
  // after each Changed(), and takes no lock under which that is called.
  void Wait(const std::function<bool()>& over);
  void Changed();
  void Stop();

 private:
  Clock& clock_;
  const Duration longest_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::stop_source stop_;
  int held_ = 0;
  uint64_t changes_ = 0;
};

}  // namespace holdfast::controller
