#include "kube/reflector_backoff.h"

#include <algorithm>
#include <random>

#include "base/random_seed.h"

namespace holdfast::kube {
namespace {

constexpr Duration kFirst = std::chrono::milliseconds(800);
constexpr Duration kLongest = std::chrono::seconds(30);
constexpr Duration kForget = std::chrono::minutes(2);
constexpr Duration kForgetErrors = std::chrono::minutes(1);

}  // namespace

RandomFn MakeRandom() {
  return [engine = std::mt19937_64(RandomSeed())]() mutable { return std::uniform_real_distribution<double>(0, 1)(engine); };
}

Duration ReflectorBackoff::Next() {
  const MonoTime now = clock_.Mono();
  pause_ = pause_ == Duration(0) || now - last_end_ >= kForget ? kFirst : std::min<Duration>(pause_ * 2, kLongest);
  Duration pause = pause_ + Duration(static_cast<int64_t>(static_cast<double>(pause_.count()) * random_()));
  last_end_ = now + pause;
  return pause;
}

bool RetryWindow::ShouldRetry() {
  if (window_ <= Duration(0)) return false;
  const MonoTime now = clock_.Mono();
  if (!running_ || now - last_ >= kForgetErrors) first_ = now;
  running_ = true;
  last_ = now;
  if (now - first_ <= window_) return true;
  running_ = false;
  return false;
}

}  // namespace holdfast::kube
