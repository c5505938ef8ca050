#include "controller/eviction_hold.h"

namespace holdfast::controller {

void EvictionHold::Wait(const std::function<bool()>& over) {
  const MonoTime until = clock_.Mono() + longest_;
  std::unique_lock lock(mutex_);
  if (longest_ <= Duration(0) || held_ >= kMost) return;
  ++held_;
  // Not under the lock: a handler of a cache may be waiting for it in Changed().
  const auto is_over = [&] {
    lock.unlock();
    const bool is = over();
    lock.lock();
    return is;
  };
  uint64_t seen = changes_;
  while (!is_over()) {
    if (!clock_.WaitUntil(lock, wake_, until, stop_.get_token(), [&] { return changes_ != seen; })) break;
    seen = changes_;
  }
  --held_;
}

void EvictionHold::Changed() {
  {
    std::lock_guard lock(mutex_);
    ++changes_;
  }
  wake_.notify_all();
}

void EvictionHold::Stop() { stop_.request_stop(); }

}  // namespace holdfast::controller
