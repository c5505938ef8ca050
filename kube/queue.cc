#include "kube/queue.h"

#include <algorithm>
#include <deque>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace holdfast::kube {

struct WorkQueue::Impl {
  Clock& clock;
  const BackoffOptions backoff;
  mutable std::mutex mutex{};
  std::condition_variable_any changed{};
  std::deque<std::string> ready{};               // keys of `dirty` that are not in `processing`
  std::unordered_set<std::string> dirty{};       // have to be worked on
  std::unordered_set<std::string> processing{};  // given out by Get
  std::set<std::pair<MonoTime, std::string>> delayed{};
  std::unordered_map<std::string, MonoTime> due{};  // key → its time in `delayed`
  std::unordered_map<std::string, int> failures{};
  bool shut_down = false;

  // All with `mutex` held.
  void Add(const std::string& key) {
    if (shut_down || !dirty.insert(key).second) return;
    if (processing.contains(key)) return;  // Done makes it ready
    ready.push_back(key);
    changed.notify_one();
  }
  void AddAt(const std::string& key, MonoTime when) {
    if (shut_down) return;
    auto [at, added] = due.try_emplace(key, when);
    if (!added) {
      if (at->second <= when) return;
      delayed.erase({at->second, key});
      at->second = when;
    }
    delayed.emplace(when, key);
    changed.notify_all();  // whoever waits for the next time may have to wait less
  }
  void AddWhatIsDue() {
    while (!delayed.empty() && delayed.begin()->first <= clock.Mono()) {
      std::string key = delayed.begin()->second;
      delayed.erase(delayed.begin());
      due.erase(key);
      Add(key);
    }
  }
};

WorkQueue::WorkQueue(Clock& clock, BackoffOptions backoff) : impl_(new Impl{.clock = clock, .backoff = backoff}) {}

WorkQueue::~WorkQueue() = default;

void WorkQueue::Add(const std::string& key) {
  std::lock_guard lock(impl_->mutex);
  impl_->Add(key);
}

void WorkQueue::AddAfter(const std::string& key, Duration delay) {
  std::lock_guard lock(impl_->mutex);
  if (delay <= Duration(0)) return impl_->Add(key);
  MonoTime now = impl_->clock.Mono();
  impl_->AddAt(key, delay > MonoTime::max() - now ? MonoTime::max() : now + delay);
}

void WorkQueue::AddRateLimited(const std::string& key) {
  std::lock_guard lock(impl_->mutex);
  int& failed = impl_->failures[key];
  Duration delay = impl_->backoff.base;
  for (int i = 0; i < failed && delay < impl_->backoff.max; ++i) delay *= 2;
  failed = std::min(failed + 1, 1000000);
  impl_->AddAt(key, impl_->clock.Mono() + std::min(delay, impl_->backoff.max));
}

void WorkQueue::Forget(const std::string& key) {
  std::lock_guard lock(impl_->mutex);
  impl_->failures.erase(key);
}

int WorkQueue::failures(const std::string& key) const {
  std::lock_guard lock(impl_->mutex);
  auto found = impl_->failures.find(key);
  return found == impl_->failures.end() ? 0 : found->second;
}

std::optional<std::string> WorkQueue::Get(std::stop_token stop) {
  Impl& q = *impl_;
  std::unique_lock lock(q.mutex);
  for (;;) {
    if (stop.stop_requested()) return std::nullopt;
    q.AddWhatIsDue();
    if (!q.ready.empty()) break;
    // A key that is being worked on may still become ready; with nothing of that kind left the queue is drained.
    if (q.shut_down && q.dirty.empty()) return std::nullopt;
    // The next time due may change while we wait, so it is part of what ends the wait.
    const MonoTime next = q.delayed.empty() ? MonoTime::max() : q.delayed.begin()->first;
    q.clock.WaitUntil(lock, q.changed, next, stop, [&] {
      return !q.ready.empty() || (q.shut_down && q.dirty.empty()) || (!q.delayed.empty() && q.delayed.begin()->first < next);
    });
  }
  std::string key = std::move(q.ready.front());
  q.ready.pop_front();
  q.dirty.erase(key);
  q.processing.insert(key);
  if (q.shut_down) q.changed.notify_all();
  return key;
}

void WorkQueue::Done(const std::string& key) {
  Impl& q = *impl_;
  std::lock_guard lock(q.mutex);
  q.processing.erase(key);
  if (!q.dirty.contains(key)) return;
  q.ready.push_back(key);
  q.changed.notify_one();
}

void WorkQueue::ShutDown() {
  std::lock_guard lock(impl_->mutex);
  impl_->shut_down = true;
  impl_->delayed.clear();
  impl_->due.clear();
  impl_->changed.notify_all();
}

size_t WorkQueue::depth() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->ready.size();
}

}  // namespace holdfast::kube
