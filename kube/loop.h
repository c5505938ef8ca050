// One thread that waits for sockets and timers. libuv is its body and stays in loop.cc. Callbacks run on that thread one at a time, so they
// must not block; what only they touch needs no lock.
#pragma once

#include <functional>
#include <memory>

#include "base/clock.h"

namespace holdfast::kube {

class EventLoop {
 public:
  EventLoop();  // starts the thread; it takes no signals
  // Runs what was posted, then ends the thread. Every Timer and Socket must be gone by then. Not from the loop's own thread.
  ~EventLoop();

  // From any thread: `task` runs soon on the loop's thread, after what was posted before.
  void Post(std::function<void()> task);
  // Ends the process when this is not the loop's thread: what is owned by the loop was touched from elsewhere.
  void AssertOnLoop() const;

  // Both belong to the loop's thread, from construction to destruction; their callbacks may destroy them.
  class Timer {
   public:
    Timer(EventLoop& loop, std::function<void()> on_fire);
    ~Timer();
    void Start(Duration after);  // fires once; a timer that runs starts over
    void Stop();

   private:
    struct Handle;
    EventLoop& loop_;
    Handle* handle_;
  };

  class Socket {
   public:
    enum Event { kRead = 1, kWrite = 2, kError = 4 };
    // `fd` stays the caller's, who closes it after this object is gone. `on_ready` gets a union of Event.
    Socket(EventLoop& loop, int fd, std::function<void(int)> on_ready);
    ~Socket();
    void Watch(int events);  // kRead | kWrite; 0: nothing

   private:
    struct Handle;
    EventLoop& loop_;
    Handle* handle_;
  };

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast::kube
