// SIGTERM and SIGINT as a stop request, for a program that runs until it is told to end. For programs that start no others: what is blocked
// here stays blocked in every child.
#pragma once

#include <stop_token>
#include <thread>

namespace holdfast {

class StopSignals {
 public:
  StopSignals();  // before any thread starts: all inherit the blocked signals, and one of its own takes them. Ignores SIGPIPE, too
  std::stop_token token() const { return stop_.get_token(); }

 private:
  std::stop_source stop_;
  std::jthread waiter_;
};

}  // namespace holdfast
