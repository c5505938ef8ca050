#include "kube/queue.h"

#include <algorithm>
#include <map>
#include <set>

#include "kube/key_table.h"
#include "kube/metrics.h"

namespace holdfast::kube {
namespace {

constexpr int kMaxFailures = 1 << 20;
// Empty classes are kept for the next key of their priority, but hostile priorities must not pile up.
constexpr size_t kMaxEmptyClasses = 16;

enum class Where : uint8_t { kNowhere, kReady, kDelayed };

struct Entry {
  explicit Entry(std::string name) : key(std::move(name)) {}
  bool Is(const std::string& other) const { return key == other; }
  static size_t Hash(const std::string& key) { return std::hash<std::string>()(key); }

  const std::string key;
  uint32_t hash = 0;
  Where where = Where::kNowhere;
  bool processing = false;  // given out by Get
  int failures = 0;
  int priority = 0;
  uint64_t order = 0;                          // of becoming delayed
  MonoTime at{};                               // kDelayed: until then; kReady: since then
  MonoTime started{};                          // processing: since then
  Entry *previous = nullptr, *next = nullptr;  // in its class, while kReady
};

// Ready keys of one priority, oldest first.
struct Class {
  Entry *first = nullptr, *last = nullptr;

  void Append(Entry* e) {
    e->previous = last;
    e->next = nullptr;
    (last != nullptr ? last->next : first) = e;
    last = e;
  }
  void Remove(Entry* e) {
    (e->previous != nullptr ? e->previous->next : first) = e->next;
    (e->next != nullptr ? e->next->previous : last) = e->previous;
  }
};

struct SoonerDue {
  bool operator()(const Entry* a, const Entry* b) const {
    if (a->at != b->at) return a->at < b->at;
    if (a->priority != b->priority) return a->priority > b->priority;
    return a->order < b->order;
  }
};

}  // namespace

Duration Backoff(const BackoffOptions& options, int failures) {
  Duration delay = std::min(options.base, options.max);
  for (int i = 0; i < failures && delay < options.max; ++i) delay = delay > options.max / 2 ? options.max : delay * 2;
  return std::max(delay, Duration(0));
}

struct WorkQueue::Impl {
  Clock& clock;
  const BackoffOptions backoff;
  QueueMetrics* const metrics;
  mutable std::mutex mutex{};
  std::condition_variable_any changed{};
  std::condition_variable_any drained{};
  KeyTable<Entry, std::string> entries{};
  std::map<int, Class, std::greater<>> classes{};
  std::set<Entry*, SoonerDue> delayed{};
  uint64_t order = 0;
  size_t ready = 0, processing = 0;
  size_t available = 0;  // ready and not being worked on
  int waiting = 0;       // threads in Get
  bool shut_down = false;
  int draining = 0;     // threads in ShutDownWithDrain
  uint64_t forced = 0;  // calls of ShutDown

  // All with `mutex` held.

  void EraseIfIdle(Entry* e) {
    if (e->where == Where::kNowhere && !e->processing && e->failures == 0) entries.Erase(e);
  }

  void MakeReady(Entry* e, MonoTime now) {
    e->where = Where::kReady;
    e->at = now;
    classes[e->priority].Append(e);
    ++ready;
    if (!e->processing) ++available;
    if (metrics != nullptr) {
      metrics->Added();
      metrics->Depth(e->priority, 1);
    }
  }

  void TakeFromClass(Entry* e) {
    auto at = classes.find(e->priority);
    at->second.Remove(e);
    if (at->second.first == nullptr && classes.size() > kMaxEmptyClasses) classes.erase(at);
    if (metrics != nullptr) metrics->Depth(e->priority, -1);
  }

  void Raise(Entry* e, int priority) {
    if (priority <= e->priority) return;
    if (e->where != Where::kReady) {
      e->priority = priority;
      return;
    }
    TakeFromClass(e);
    e->priority = priority;
    classes[priority].Append(e);
    if (metrics != nullptr) metrics->Depth(priority, 1);
  }

  void Delay(Entry* e, MonoTime until) {
    e->where = Where::kDelayed;
    e->at = until;
    e->order = order++;
    delayed.insert(e);
    if (*delayed.begin() == e && waiting > 0) changed.notify_all();  // whoever waits for the next time has to wait less
  }

  void Add(const std::string& key, const AddOptions& options);

  void TakeWhatIsDue(MonoTime now) {
    bool any = false;
    while (!delayed.empty() && (*delayed.begin())->at <= now) {
      Entry* e = *delayed.begin();
      delayed.erase(delayed.begin());
      MakeReady(e, now);
      any = true;
    }
    if (any && waiting > 0) changed.notify_all();
  }

  // The next key that nobody works on. Passes over at most as many as there are workers.
  Entry* Next() {
    for (auto& [priority, keys] : classes) {
      for (Entry* e = keys.first; e != nullptr; e = e->next) {
        if (!e->processing) return e;
      }
    }
    return nullptr;
  }

  bool Idle() const { return ready == 0 && processing == 0; }
};

void WorkQueue::Impl::Add(const std::string& key, const AddOptions& options) {
  if (shut_down) return;
  const bool timed = options.after > Duration(0) || options.rate_limited || metrics != nullptr || !delayed.empty();
  const MonoTime now = timed ? clock.Mono() : MonoTime();
  TakeWhatIsDue(now);  // it became ready before this
  Entry* e = entries.FindOrAdd(key, key).entry;

  Duration after = std::max(options.after, Duration(0));
  if (options.rate_limited) {
    const Duration limit = Backoff(backoff, e->failures);
    e->failures = std::min(e->failures + 1, kMaxFailures);
    if (after == Duration(0) || limit < after) after = limit;
  }
  const MonoTime when = after > MonoTime::max() - now ? MonoTime::max() : now + after;
  if (after > Duration(0) && metrics != nullptr) metrics->Retried();

  switch (e->where) {
    case Where::kReady:
      return Raise(e, options.priority);
    case Where::kDelayed: {
      const MonoTime sooner = std::min(e->at, when);
      delayed.erase(e);
      Raise(e, options.priority);
      if (after > Duration(0)) return Delay(e, sooner);
      break;
    }
    case Where::kNowhere:
      e->priority = options.priority;
      if (after > Duration(0)) return Delay(e, when);
      break;
  }
  MakeReady(e, now);
  if (!e->processing && waiting > 0) changed.notify_one();
}

WorkQueue::WorkQueue(Clock& clock, BackoffOptions backoff, QueueMetrics* metrics)
    : impl_(new Impl{.clock = clock, .backoff = backoff, .metrics = metrics}) {
  if (metrics != nullptr) metrics->Reset();
}

WorkQueue::~WorkQueue() {
  if (impl_->metrics != nullptr) impl_->metrics->Reset();
}

void WorkQueue::Add(const std::string& key, const AddOptions& options) {
  std::lock_guard lock(impl_->mutex);
  impl_->Add(key, options);
}

void WorkQueue::Forget(const std::string& key) {
  std::lock_guard lock(impl_->mutex);
  Entry* e = impl_->entries.Find(key);
  if (e == nullptr) return;
  e->failures = 0;
  impl_->EraseIfIdle(e);
}

int WorkQueue::failures(const std::string& key) const {
  std::lock_guard lock(impl_->mutex);
  const Entry* e = impl_->entries.Find(key);
  return e == nullptr ? 0 : e->failures;
}

std::optional<WorkQueue::Item> WorkQueue::Get(std::stop_token stop) {
  Impl& q = *impl_;
  std::unique_lock lock(q.mutex);
  for (;;) {
    if (stop.stop_requested()) return std::nullopt;
    if (!q.delayed.empty()) q.TakeWhatIsDue(q.clock.Mono());
    if (q.available > 0) break;
    if (q.shut_down) return std::nullopt;
    // The next time due may change while we wait, so it is part of what ends the wait.
    const MonoTime next = q.delayed.empty() ? MonoTime::max() : (*q.delayed.begin())->at;
    ++q.waiting;
    q.clock.WaitUntil(lock, q.changed, next, stop,
                      [&] { return q.available > 0 || q.shut_down || (!q.delayed.empty() && (*q.delayed.begin())->at < next); });
    --q.waiting;
  }
  Entry* e = q.Next();
  // Long queues are not in a near cache. What the next key needs is fetched now; where that is, was fetched when the last one was taken.
  if (const Entry* next = e->next) {
    q.entries.Prefetch(next);
    __builtin_prefetch(next->key.data());
    if (const Entry* second = next->next) {
      __builtin_prefetch(second);
      __builtin_prefetch(&second->next);
    }
  }
  q.TakeFromClass(e);
  --q.ready;
  --q.available;
  ++q.processing;
  e->where = Where::kNowhere;
  e->processing = true;
  if (q.metrics != nullptr) {
    e->started = q.clock.Mono();
    q.metrics->Taken(e->started, e->started - e->at);
  }
  return Item{e->key, e->priority};
}

void WorkQueue::Done(const std::string& key) {
  Impl& q = *impl_;
  std::lock_guard lock(q.mutex);
  Entry* e = q.entries.Find(key);
  if (e == nullptr || !e->processing) return;
  e->processing = false;
  --q.processing;
  if (q.metrics != nullptr) q.metrics->Done(e->started, q.clock.Mono());
  if (e->where == Where::kReady) {
    ++q.available;
    if (q.waiting > 0) q.changed.notify_one();
  }
  q.EraseIfIdle(e);
  if (q.draining > 0 && q.Idle()) q.drained.notify_all();
}

void WorkQueue::ShutDown() {
  Impl& q = *impl_;
  std::lock_guard lock(q.mutex);
  q.shut_down = true;
  ++q.forced;
  while (!q.delayed.empty()) {
    Entry* e = *q.delayed.begin();
    q.delayed.erase(q.delayed.begin());
    e->where = Where::kNowhere;
    q.EraseIfIdle(e);
  }
  q.changed.notify_all();
  q.drained.notify_all();
}

bool WorkQueue::ShutDownWithDrain(std::stop_token stop) {
  ShutDown();
  Impl& q = *impl_;
  std::unique_lock lock(q.mutex);
  const uint64_t forced = q.forced;
  ++q.draining;
  q.clock.WaitUntil(lock, q.drained, MonoTime::max(), std::move(stop), [&] { return q.Idle() || q.forced != forced; });
  --q.draining;
  return q.Idle();
}

size_t WorkQueue::depth() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->ready;
}

size_t WorkQueue::size() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->entries.size();
}

}  // namespace holdfast::kube
