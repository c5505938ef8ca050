#include "base/stop_signals.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

namespace holdfast {

StopSignals::StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  waiter_ = std::jthread([signals, stop = stop_](std::stop_token done) mutable {
    const timespec tick{0, 200'000'000};
    while (!done.stop_requested()) {
      if (sigtimedwait(&signals, nullptr, &tick) > 0) stop.request_stop();
    }
  });
}

}  // namespace holdfast
