// The API server's wall clock, as its answers tell it: what several machines compare (a deadline in a status) is compared by one clock,
// though that of a node or of a replica is wrong.
#pragma once

#include <atomic>

#include "kube/http.h"

namespace holdfast::kube {

// Wall() is the API server's, Mono() and waiting are `own`'s. It begins as `own`'s wall clock, goes on with Mono, so that nobody sets it,
// and is moved by no more than an answer shows (whose Date has whole seconds, and which was some time on its way). Thread-safe.
class ServerClock final : public Clock {
 public:
  explicit ServerClock(Clock& own) : own_(own), at_zero_((own.Wall().time_since_epoch() - own.Mono().time_since_epoch()).count()) {}
  MonoTime Mono() const override { return own_.Mono(); }
  WallTime Wall() const override { return WallTime(Duration(at_zero_.load()) + Mono().time_since_epoch()); }
  bool WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable_any& cv, MonoTime deadline, std::stop_token stop,
                 const std::function<bool()>& ready) override {
    return own_.WaitUntil(lock, cv, deadline, std::move(stop), ready);
  }
  // How far it is ahead of our own wall clock now; negative: behind.
  Duration ahead() const { return Wall() - own_.Wall(); }
  // An answer with this Date ("Sun, 06 Nov 1994 08:49:37 GMT"), to a request that was sent and answered then. What is no such date, or of a
  // request that took long, says nothing.
  void Note(std::string_view date, MonoTime sent, MonoTime answered);

 private:
  Clock& own_;
  std::atomic<int64_t> at_zero_;  // what Wall() was when Mono() was 0
};

// `transport`, whose answers tell `clock` the time. The clock outlives it.
std::shared_ptr<Transport> TellTime(std::shared_ptr<Transport> transport, ServerClock& clock);

// As Note reads it.
std::string HttpDate(WallTime time);

}  // namespace holdfast::kube
