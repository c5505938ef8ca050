#include "kube/initial_events_timer.h"

#include "base/log.h"

namespace holdfast::kube {
namespace {

constexpr Duration kWarnAfter = std::chrono::seconds(10);
constexpr Duration kGiveUpAfter = std::chrono::seconds(30);

}  // namespace

InitialEventsTimer::InitialEventsTimer(Clock& clock, std::string resource, std::stop_source give_up)
    : clock_(clock), resource_(std::move(resource)), give_up_(std::move(give_up)), last_event_(clock.Mono()) {
  thread_ = Thread([this](const std::stop_token& stop) { Run(stop); });
}

void InitialEventsTimer::OnEvent() {
  const MonoTime now = clock_.Mono();
  std::lock_guard lock(mutex_);
  last_event_ = now;
}

void InitialEventsTimer::Done() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

void InitialEventsTimer::Run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  for (MonoTime tick = last_event_ + kWarnAfter;; tick += kWarnAfter) {
    clock_.WaitUntil(lock, changed_, tick, stop, [] { return false; });
    if (stop.stop_requested()) return;
    const Duration silent = tick - last_event_;
    if (silent < kWarnAfter) continue;
    ++warnings_;
    LogWarning("the bookmark that ends the initial events is missing",
               {{"resource", resource_}, {"silent_s", silent / std::chrono::seconds(1)}});
    if (silent >= kGiveUpAfter) {
      gave_up_ = true;
      give_up_.request_stop();
      return;
    }
  }
}

}  // namespace holdfast::kube
