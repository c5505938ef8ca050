// Watches over the initial events of a WatchList, which must end with a bookmark: says in the log when nothing comes for 10 s, and ends the
// stream after 30 s, because a server that does not know WatchList sends everything but the bookmark.
#pragma once

#include <atomic>
#include <string>

#include "base/clock.h"
#include "base/thread.h"

namespace holdfast::kube {

class InitialEventsTimer {
 public:
  // `give_up` is told to stop when time is up.
  InitialEventsTimer(Clock& clock, std::string resource, std::stop_source give_up);
  void OnEvent();
  void Done();  // the bookmark is there: no more timing. Any thread but the timer's; joins it.
  bool gave_up() const { return gave_up_; }
  int warnings() const { return warnings_; }

 private:
  void Run(const std::stop_token& stop);

  Clock& clock_;
  const std::string resource_;
  std::stop_source give_up_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  MonoTime last_event_;
  std::atomic<bool> gave_up_{false};
  std::atomic<int> warnings_{0};
  Thread thread_;  // last: it uses the others
};

}  // namespace holdfast::kube
