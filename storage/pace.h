// Slows its thread down to so many bytes a second. Who was kept from working for a while does not make up for it at once.
#pragma once

#include "base/clock.h"

namespace holdfast::storage {

class Pace {
 public:
  Pace(uint64_t bytes_per_second, Clock& clock) : rate_(bytes_per_second), clock_(clock), due_(clock.Mono()) {}  // 0: as fast as it goes
  void Took(uint64_t bytes, const std::stop_token& stop) {
    if (rate_ == 0) return;
    const MonoTime now = clock_.Mono();
    if (now - due_ > kForgiven) due_ = now - kForgiven;
    due_ += std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(bytes) / static_cast<double>(rate_) * 1e9));
    if (due_ - now > kWorthASleep) clock_.Sleep(due_ - now, stop);
  }

 private:
  static constexpr Duration kForgiven = std::chrono::seconds(1), kWorthASleep = std::chrono::milliseconds(20);
  const uint64_t rate_;
  Clock& clock_;
  MonoTime due_;  // when the next byte may come
};

}  // namespace holdfast::storage
