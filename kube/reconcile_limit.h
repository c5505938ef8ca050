// Stops reconciles that run too long. One thread watches all workers of a controller; beginning and ending a reconcile wakes nobody.
#pragma once

#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <vector>

#include "base/clock.h"
#include "base/thread.h"

namespace holdfast::kube {

class ReconcileLimit {
 public:
  // `timeout` 0 or less, or more than a year: nothing is ever stopped.
  ReconcileLimit(Clock& clock, Duration timeout, size_t workers);
  ~ReconcileLimit();

  // Each worker, by its number, one reconcile at a time. `source` is stopped at now + timeout.
  void Begin(size_t worker, MonoTime now, std::stop_source source);
  bool End(size_t worker);  // true when it was stopped for its time

 private:
  struct Running {
    MonoTime deadline = MonoTime::max();  // max: nothing runs, or it was stopped
    std::stop_source source{std::nostopstate};
    bool stopped = false;
  };
  void Run(const std::stop_token& stop);

  Clock& clock_;
  const Duration timeout_;
  std::mutex mutex_;
  std::condition_variable_any never_;  // nobody notifies: the thread wakes when something may be late
  std::vector<Running> running_;
  Thread thread_;
};

}  // namespace holdfast::kube
