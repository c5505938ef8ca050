#include "kube/connection_queue.h"

namespace holdfast::kube {

ConnectionQueue::ConnectionQueue(size_t threads, size_t max_waiting) : max_waiting_(max_waiting) {
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

void ConnectionQueue::enqueue(std::function<void()> serve) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.size() < max_waiting_; });
  waiting_.push_back(std::move(serve));
  changed_.notify_all();
}

void ConnectionQueue::shutdown() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

size_t ConnectionQueue::waiting() const {
  std::lock_guard lock(mutex_);
  return waiting_.size();
}

void ConnectionQueue::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !waiting_.empty() || closing_; });
    if (waiting_.empty()) return;
    std::function<void()> serve = std::move(waiting_.front());
    waiting_.pop_front();
    changed_.notify_all();
    lock.unlock();
    serve();
    lock.lock();
  }
}

void OwnPort(socket_t socket) {
  const int yes = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
}

}  // namespace holdfast::kube
