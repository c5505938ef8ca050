#include "kube/controller.h"

#include <list>
#include <map>
#include <thread>

#include "base/log.h"

namespace holdfast::kube {
namespace {

// Requests a stop of what runs too long. One thread for all workers.
class Watchdog {
 public:
  explicit Watchdog(Clock& clock) : clock_(clock), thread_([this](const std::stop_token& stop) { Run(stop); }) {}
  ~Watchdog() {
    thread_.request_stop();
    thread_.join();
  }

  using Ticket = std::multimap<MonoTime, std::stop_source>::iterator;
  Ticket Watch(MonoTime deadline, std::stop_source source) {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
    return running_.emplace(deadline, std::move(source));
  }
  // True when it was stopped for its deadline.
  bool Release(Ticket ticket) {
    std::lock_guard lock(mutex_);
    bool late = clock_.Mono() >= ticket->first;
    running_.erase(ticket);
    return late;
  }

 private:
  void Run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      MonoTime now = clock_.Mono(), next = MonoTime::max();
      std::vector<std::stop_source> late;
      for (auto& [deadline, source] : running_) {
        if (deadline > now) {
          next = deadline;
          break;
        }
        if (!source.stop_requested()) late.push_back(source);
      }
      if (!late.empty()) {
        // Stop callbacks may run anything: not under our lock.
        lock.unlock();
        for (auto& source : late) source.request_stop();
        lock.lock();
        continue;
      }
      clock_.WaitUntil(lock, changed_, next, stop, [&] {
        for (auto& [deadline, source] : running_) {
          if (!source.stop_requested()) return deadline < next;
        }
        return false;
      });
    }
  }

  Clock& clock_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::multimap<MonoTime, std::stop_source> running_;
  std::jthread thread_;
};

}  // namespace

struct Controller::Impl {
  const ControllerOptions options;
  const Reconcile reconcile;
  Clock& clock;
  WorkQueue queue{clock, options.backoff};
  std::unique_ptr<Watchdog> watchdog{};
  std::vector<std::jthread> workers{};

  void Work(const std::stop_token& stop) {
    while (auto key = queue.Get(stop)) {
      Finish(*key, Once(*key, stop));
      queue.Done(*key);
    }
  }

  Result<ReconcileResult> Once(const std::string& key, const std::stop_token& stop) {
    std::stop_source source;
    std::stop_callback forward(stop, [&source] { source.request_stop(); });
    auto ticket = watchdog->Watch(clock.Mono() + options.timeout, source);
    Result<ReconcileResult> result = Guarded(key, source.get_token());
    bool late = watchdog->Release(ticket);
    if (late && !result.ok())
      return result.status().With("stopped after " +
                                  std::to_string(std::chrono::duration_cast<std::chrono::seconds>(options.timeout).count()) + " s");
    return result;
  }

  Result<ReconcileResult> Guarded(const std::string& key, std::stop_token stop) {
    try {
      return reconcile(key, std::move(stop));
    } catch (const std::exception& e) {
      return Status(Code::kInternal, std::string("reconcile threw: ") + e.what());
    } catch (...) {
      return Status(Code::kInternal, "reconcile threw something that is no std::exception");
    }
  }

  void Finish(const std::string& key, const Result<ReconcileResult>& result) {
    if (result.ok()) {
      queue.Forget(key);
      if (result->requeue_after) queue.AddAfter(key, *result->requeue_after);
      return;
    }
    // A lost optimistic lock is everyday life: somebody else wrote, and the next try sees it.
    LogLevel level =
        result.status().code() == Code::kConflict || result.status().code() == Code::kCancelled ? LogLevel::kInfo : LogLevel::kWarning;
    Log(level, "reconcile failed, will be tried again",
        {{"controller", options.name}, {"key", key}, {"error", result.status().ToString()}, {"failures", queue.failures(key) + 1}});
    queue.AddRateLimited(key);
  }
};

Controller::Controller(ControllerOptions options, Reconcile reconcile, Clock& clock)
    : impl_(new Impl{.options = std::move(options), .reconcile = std::move(reconcile), .clock = clock}) {}

Controller::~Controller() { Stop(); }

void Controller::Enqueue(const std::string& key) { impl_->queue.Add(key); }

void Controller::EnqueueAfter(const std::string& key, Duration delay) { impl_->queue.AddAfter(key, delay); }

void Controller::Start() {
  if (!impl_->workers.empty()) return;
  impl_->watchdog = std::make_unique<Watchdog>(impl_->clock);
  for (int i = 0; i < std::max(impl_->options.workers, 1); ++i) {
    impl_->workers.emplace_back([impl = impl_.get()](const std::stop_token& stop) { impl->Work(stop); });
  }
}

void Controller::Stop() {
  for (std::jthread& worker : impl_->workers) worker.request_stop();
  impl_->queue.ShutDown();
  impl_->workers.clear();  // joins
  impl_->watchdog.reset();
}

}  // namespace holdfast::kube
