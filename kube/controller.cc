#include "kube/controller.h"

#include <atomic>

#include "base/json.h"
#include "base/log.h"
#include "base/per_thread.h"
#include "base/random_seed.h"
#include "base/thread.h"
#include "kube/metrics.h"
#include "kube/reconcile_limit.h"

namespace holdfast::kube {
namespace {

// Who reconciles on this thread. The id becomes a string only when somebody asks for it.
struct Scope {
  uint32_t life;    // of the controller, random: so that ids of two processes differ
  uint64_t number;  // of the reconcile
  const std::string& controller;
  const std::string& key;

  std::string Id() const {
    char text[32];
    snprintf(text, sizeof text, "%08x-%llu", life, static_cast<unsigned long long>(number));
    return text;
  }
};

const PerThread<const Scope> t_scope;

std::string Seconds(Duration duration) { return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(duration).count()) + " s"; }

}  // namespace

std::string CurrentReconcileId() { return t_scope.get() == nullptr ? "" : t_scope.get()->Id(); }

struct Controller::Impl {
  Impl(ControllerOptions given, Reconcile fn, Clock& time)
      : options(std::move(given)),
        reconcile(std::move(fn)),
        clock(time),
        metrics(options.metrics != nullptr ? &options.metrics->Controller(options.name) : nullptr),
        queue(clock, options.backoff, options.metrics != nullptr ? &options.metrics->Queue(options.name) : nullptr),
        own_writes(clock, options.own_writes_patience) {}

  const ControllerOptions options;
  const Reconcile reconcile;
  Clock& clock;
  ControllerMetrics* const metrics;
  WorkQueue queue;
  OwnWrites own_writes;
  const uint32_t life = static_cast<uint32_t>(RandomSeed());
  std::atomic<uint64_t> count{0};

  std::stop_source ending{};  // Stop was called: a Start under way gives up

  std::mutex mutex{};  // of what follows: starting and stopping
  std::vector<Source> sources{};
  bool started = false, stopped = false, claimed = false;
  std::unique_ptr<ReconcileLimit> limit{};
  std::vector<Thread> workers{};

  Status StartSources(const std::stop_token& stop);
  void Work(size_t worker, const std::stop_token& stop);
  Result<ReconcileResult> Once(size_t worker, const std::string& key, const std::stop_token& stop);
  Result<ReconcileResult> Guarded(const std::string& key, std::stop_token stop);
  void Finish(const WorkQueue::Item& item, const Result<ReconcileResult>& result);
  void Failed(const WorkQueue::Item& item, const Status& error);
};

// With `mutex` held.
Status Controller::Impl::StartSources(const std::stop_token& stop) {
  if (sources.empty()) return Status::Ok();
  const MonoTime deadline = clock.Mono() + options.sync_timeout;
  std::stop_source in_time;
  std::stop_callback on_stop(stop, [&in_time] { in_time.request_stop(); });
  std::stop_callback on_end(ending.get_token(), [&in_time] { in_time.request_stop(); });
  auto stopped_by_caller = [&] { return stop.stop_requested() || ending.stop_requested(); };
  Thread timer([&](const std::stop_token& over) {
    if (clock.Sleep(options.sync_timeout, over)) in_time.request_stop();
  });
  auto failed = [&](const Source& source, const std::string& what) {
    return Status(Code::kDeadlineExceeded,
                  "controller " + options.name + ": source " + source.name + " " + what + " within " + Seconds(options.sync_timeout));
  };
  std::vector<Source> starting;
  starting.swap(sources);  // a source may hold a cache; nobody needs it here any more
  for (const Source& source : starting) {
    if (!source.start) continue;
    Status status = source.start(in_time.get_token());
    if (stopped_by_caller()) return Status::Ok();
    if (in_time.stop_requested()) return failed(source, "did not start");
    if (!status.ok()) return status.With("controller " + options.name + ": source " + source.name);
  }
  for (const Source& source : starting) {
    if (!source.wait_for_sync) continue;
    const bool synced = source.wait_for_sync(std::max(deadline - clock.Mono(), Duration(0)), in_time.get_token());
    if (stopped_by_caller()) return Status::Ok();
    if (!synced) return failed(source, "has not handed over what is there");
  }
  return Status::Ok();
}

void Controller::Impl::Work(size_t worker, const std::stop_token& stop) {
  while (std::optional<WorkQueue::Item> item = queue.Get(stop)) {
    {
      const Scope scope{life, ++count, options.name, item->key};
      t_scope.set(&scope);
      LogContext context([&scope](Json& fields) {
        fields["controller"] = scope.controller;
        fields["key"] = scope.key;
        fields["reconcile_id"] = scope.Id();
      });
      Finish(*item, Once(worker, item->key, stop));
      t_scope.set(nullptr);
    }
    queue.Done(item->key);
  }
}

Result<ReconcileResult> Controller::Impl::Once(size_t worker, const std::string& key, const std::stop_token& stop) {
  std::stop_source source;
  std::stop_callback forward(stop, [&source] { source.request_stop(); });
  const MonoTime start = clock.Mono();
  if (metrics != nullptr) metrics->active_workers.Increment();
  limit->Begin(worker, start, source);
  if (!own_writes.Await(key, source.get_token()) && !source.stop_requested()) {
    LogWarning("a cache is behind what was written; reconciles with what it has", {});
  }
  Result<ReconcileResult> result = Guarded(key, source.get_token());
  const bool late = limit->End(worker);
  if (metrics != nullptr) {
    metrics->active_workers.Decrement();
    metrics->seconds.Observe(std::chrono::duration<double>(clock.Mono() - start).count());
    if (late) metrics->timeouts.Increment();
  }
  if (late && !result.ok()) return result.status().With("stopped after " + Seconds(options.timeout));
  return result;
}

Result<ReconcileResult> Controller::Impl::Guarded(const std::string& key, std::stop_token stop) {
  std::string what;
  const OwnWrites::Scope writes(own_writes, key);
  try {
    return reconcile(key, std::move(stop));
  } catch (const std::exception& e) {
    what = std::string("reconcile threw: ") + e.what();
  } catch (...) {
    what = "reconcile threw something that is no std::exception";
  }
  if (metrics != nullptr) metrics->panics.Increment();
  return Status(Code::kInternal, what);
}

void Controller::Impl::Finish(const WorkQueue::Item& item, const Result<ReconcileResult>& result) {
  if (!result.ok()) return Failed(item, result.status());
  queue.Forget(item.key);
  if (result->requeue_after) {
    queue.Add(item.key, {.after = *result->requeue_after, .priority = result->priority.value_or(item.priority)});
  }
  if (metrics != nullptr) (result->requeue_after ? metrics->requeue_after : metrics->success).Increment();
}

void Controller::Impl::Failed(const WorkQueue::Item& item, const Status& error) {
  if (metrics != nullptr) {
    metrics->error.Increment();
    metrics->errors.Increment();
    if (error.terminal()) metrics->terminal_errors.Increment();
  }
  if (error.terminal()) {
    LogError("reconcile failed, will not be tried again", {{"error", error.ToString()}});
    queue.Forget(item.key);
    return;
  }
  // A lost optimistic lock is everyday life: somebody else wrote, and the next try sees it.
  const LogLevel level = error.code() == Code::kConflict || error.code() == Code::kCancelled ? LogLevel::kInfo : LogLevel::kWarning;
  Log(level, "reconcile failed, will be tried again", {{"error", error.ToString()}, {"failures", queue.failures(item.key) + 1}});
  queue.Add(item.key, {.rate_limited = true, .priority = item.priority});
}

Controller::Controller(ControllerOptions options, Reconcile reconcile, Clock& clock)
    : impl_(new Impl(std::move(options), std::move(reconcile), clock)) {}

Controller::~Controller() { Stop(); }

void Controller::Enqueue(const std::string& key, int priority) { impl_->queue.Add(key, {.priority = priority}); }

void Controller::EnqueueAfter(const std::string& key, Duration delay) { impl_->queue.AddAfter(key, delay); }

void Controller::AddSource(Source source) {
  std::lock_guard lock(impl_->mutex);
  if (source.wait_for_version && impl_->options.own_writes_patience > Duration(0)) {
    impl_->own_writes.AddCache(source.collection, std::move(source.wait_for_version));
  }
  impl_->sources.push_back(std::move(source));
}

Status Controller::Warmup(std::stop_token stop) {
  std::lock_guard lock(impl_->mutex);
  return impl_->StartSources(stop);
}

Status Controller::Start(std::stop_token stop) {
  Impl& c = *impl_;
  std::lock_guard lock(c.mutex);
  if (c.started || c.stopped) return {Code::kFailedPrecondition, "controller " + c.options.name + " was started before"};
  if (c.options.metrics != nullptr && !c.claimed) {
    c.claimed = c.options.metrics->Claim(c.options.name);
    if (!c.claimed)
      return {Code::kAlreadyExists, "there is a controller named " + c.options.name + " already: give each a name of its own"};
  }
  HF_RETURN_IF_ERROR(c.StartSources(stop));
  if (stop.stop_requested() || c.ending.stop_requested()) return Status::Ok();
  c.started = true;
  const size_t workers = static_cast<size_t>(std::max(c.options.workers, 1));
  if (c.metrics != nullptr) c.metrics->max_concurrent.Set(static_cast<double>(workers));
  c.limit = std::make_unique<ReconcileLimit>(c.clock, c.options.timeout, workers);
  for (size_t i = 0; i < workers; ++i) {
    c.workers.emplace_back([&c, i](const std::stop_token& token) { c.Work(i, token); });
  }
  return Status::Ok();
}

void Controller::Stop() {
  Impl& c = *impl_;
  c.ending.request_stop();
  std::lock_guard lock(c.mutex);
  c.stopped = true;
  for (Thread& worker : c.workers) worker.request_stop();
  c.queue.ShutDown();
  c.workers.clear();  // joins
  c.limit.reset();
  if (c.claimed) c.options.metrics->Release(c.options.name);
  c.claimed = false;
}

size_t Controller::depth() const { return impl_->queue.depth(); }

}  // namespace holdfast::kube
