#include "kube/reconcile_limit.h"

#include <algorithm>

namespace holdfast::kube {
namespace {

constexpr Duration kNoLimit = std::chrono::hours(24 * 365);

}  // namespace

ReconcileLimit::ReconcileLimit(Clock& clock, Duration timeout, size_t workers)
    : clock_(clock), timeout_(timeout <= Duration(0) || timeout > kNoLimit ? Duration(0) : timeout), running_(workers) {
  if (timeout_ > Duration(0)) thread_ = Thread([this](const std::stop_token& stop) { Run(stop); });
}

ReconcileLimit::~ReconcileLimit() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void ReconcileLimit::Begin(size_t worker, MonoTime now, std::stop_source source) {
  if (timeout_ == Duration(0)) return;
  std::lock_guard lock(mutex_);
  running_[worker] = {.deadline = now + timeout_, .source = std::move(source), .stopped = false};
}

bool ReconcileLimit::End(size_t worker) {
  if (timeout_ == Duration(0)) return false;
  std::lock_guard lock(mutex_);
  running_[worker].deadline = MonoTime::max();
  return running_[worker].stopped;
}

void ReconcileLimit::Run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const MonoTime now = clock_.Mono();
    // What begins after now ends after this, so it need not wake us.
    MonoTime next = now + timeout_;
    std::vector<std::stop_source> late;
    for (Running& running : running_) {
      if (running.deadline > now) {
        next = std::min(next, running.deadline);
        continue;
      }
      running.deadline = MonoTime::max();
      running.stopped = true;
      late.push_back(running.source);
    }
    if (!late.empty()) {
      // Stop callbacks may run anything: not under our lock.
      lock.unlock();
      for (std::stop_source& source : late) source.request_stop();
      lock.lock();
      continue;
    }
    clock_.WaitUntil(lock, never_, next, stop, [] { return false; });
  }
}

}  // namespace holdfast::kube
