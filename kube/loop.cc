#include "kube/loop.h"

#include <signal.h>
#include <uv.h>

#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "base/log.h"

namespace holdfast::kube {

struct EventLoop::Impl {
  uv_loop_t loop{};
  uv_async_t wake{};
  std::mutex mutex{};
  std::vector<std::function<void()>> tasks{};  // guarded by `mutex`
  std::atomic<std::thread::id> thread_id{};
  std::thread thread{};

  void RunTasks() {
    std::vector<std::function<void()>> now;
    {
      std::lock_guard lock(mutex);
      now.swap(tasks);
    }
    for (auto& task : now) {
      task();
      task = nullptr;  // what it holds goes before the next one runs
    }
  }

  void Run() {
    thread_id = std::this_thread::get_id();
    // Signals are for others; and a peer that hangs up while OpenSSL writes must not end the process with SIGPIPE.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    uv_run(&loop, UV_RUN_DEFAULT);
  }
};

namespace {

void Require(bool fine, const char* what) {
  if (fine) return;
  LogError("event loop: broken", {{"what", what}});
  abort();
}

// A libuv handle may only be freed after libuv has said so.
template <class Handle>
void CloseAndDelete(Handle* handle) {
  uv_close(reinterpret_cast<uv_handle_t*>(&handle->uv), [](uv_handle_t* closed) { delete static_cast<Handle*>(closed->data); });
}

}  // namespace

EventLoop::EventLoop() : impl_(new Impl) {
  Require(uv_loop_init(&impl_->loop) == 0, "no memory or no file descriptors for a loop");
  impl_->wake.data = impl_.get();
  uv_async_init(&impl_->loop, &impl_->wake, [](uv_async_t* wake) { static_cast<Impl*>(wake->data)->RunTasks(); });
  impl_->thread = std::thread([impl = impl_.get()] { impl->Run(); });
}

EventLoop::~EventLoop() {
  Require(std::this_thread::get_id() != impl_->thread.get_id(), "destroyed from its own thread");
  Post([impl = impl_.get()] { uv_close(reinterpret_cast<uv_handle_t*>(&impl->wake), nullptr); });
  impl_->thread.join();
  Require(uv_loop_close(&impl_->loop) == 0, "timers or sockets outlive their loop");
}

void EventLoop::Post(std::function<void()> task) {
  std::lock_guard lock(impl_->mutex);
  impl_->tasks.push_back(std::move(task));
  uv_async_send(&impl_->wake);
}

void EventLoop::AssertOnLoop() const { Require(std::this_thread::get_id() == impl_->thread_id.load(), "used from another thread"); }

struct EventLoop::Timer::Handle {
  uv_timer_t uv{};
  std::function<void()> on_fire;
};

EventLoop::Timer::Timer(EventLoop& loop, std::function<void()> on_fire) : loop_(loop), handle_(new Handle{.on_fire = std::move(on_fire)}) {
  loop_.AssertOnLoop();
  handle_->uv.data = handle_;
  uv_timer_init(&loop_.impl_->loop, &handle_->uv);
}

EventLoop::Timer::~Timer() {
  loop_.AssertOnLoop();
  CloseAndDelete(handle_);
}

void EventLoop::Timer::Start(Duration after) {
  loop_.AssertOnLoop();
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(std::max(after, Duration(0))).count();
  uv_update_time(&loop_.impl_->loop);  // a callback before this one may have taken its time
  uv_timer_start(
      &handle_->uv, [](uv_timer_t* timer) { static_cast<Handle*>(timer->data)->on_fire(); }, static_cast<uint64_t>(ms), 0);
}

void EventLoop::Timer::Stop() {
  loop_.AssertOnLoop();
  uv_timer_stop(&handle_->uv);
}

struct EventLoop::Socket::Handle {
  uv_poll_t uv{};
  std::function<void(int)> on_ready;
};

EventLoop::Socket::Socket(EventLoop& loop, int fd, std::function<void(int)> on_ready)
    : loop_(loop), handle_(new Handle{.on_ready = std::move(on_ready)}) {
  loop_.AssertOnLoop();
  handle_->uv.data = handle_;
  Require(uv_poll_init_socket(&loop_.impl_->loop, &handle_->uv, fd) == 0, "cannot wait for a socket");
}

EventLoop::Socket::~Socket() {
  loop_.AssertOnLoop();
  uv_poll_stop(&handle_->uv);
  CloseAndDelete(handle_);
}

void EventLoop::Socket::Watch(int events) {
  loop_.AssertOnLoop();
  if (events == 0) {
    uv_poll_stop(&handle_->uv);
    return;
  }
  const int wanted = ((events & kRead) != 0 ? UV_READABLE : 0) | ((events & kWrite) != 0 ? UV_WRITABLE : 0);
  uv_poll_start(&handle_->uv, wanted, [](uv_poll_t* poll, int status, int got) {
    const int ready = status < 0 ? kError : ((got & UV_READABLE) != 0 ? kRead : 0) | ((got & UV_WRITABLE) != 0 ? kWrite : 0);
    static_cast<Handle*>(poll->data)->on_ready(ready);
  });
}

}  // namespace holdfast::kube
