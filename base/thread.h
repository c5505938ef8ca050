// Threads of code that a simulation runs in turns (tests/sim): such code starts them by Thread, and waits by Clock alone.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace holdfast {

// Where Threads come from.
class Threads {
 public:
  class Running {
   public:
    virtual ~Running() = default;
    virtual void Join() = 0;  // once
  };
  virtual ~Threads() = default;
  virtual std::unique_ptr<Running> Start(std::function<void()> body) = 0;

  // The system's, unless Use said otherwise.
  static Threads& Now();
  // From here on; null: the system's. While no Thread runs, and from one thread.
  static void Use(Threads* threads);
};

// As std::jthread: its destructor, and an assignment to it, tell what runs to stop, and wait for its end.
class Thread {
 public:
  Thread() = default;
  template <class Body>
  explicit Thread(Body body) requires(!std::is_same_v<std::remove_cvref_t<Body>, Thread>)
      : running_(Threads::Now().Start(Bound(std::move(body)))) {}
  Thread(Thread&&) noexcept = default;
  Thread& operator=(Thread&& other) noexcept {
    End();
    stop_ = std::move(other.stop_);
    running_ = std::move(other.running_);
    return *this;
  }
  ~Thread() { End(); }

  bool joinable() const { return running_ != nullptr; }
  void request_stop() { stop_.request_stop(); }
  void join() { std::exchange(running_, nullptr)->Join(); }

 private:
  template <class Body>
  std::function<void()> Bound(Body body) {
    if constexpr (std::is_invocable_v<Body&, std::stop_token>) {
      return [body = std::move(body), stop = stop_.get_token()]() mutable { body(stop); };
    } else {
      return body;
    }
  }
  void End() {
    if (!joinable()) return;
    request_stop();
    join();
  }

  std::stop_source stop_;  // first: what starts asks for its token
  std::unique_ptr<Threads::Running> running_;
};

// What PerThreads say on this thread: who runs several Threads on one of the system's takes it along (tests/sim).
inline constexpr size_t kMostPerThread = 8;
using PerThreadValues = std::array<const void*, kMostPerThread>;
PerThreadValues& PerThreadNow();
size_t NextPerThread();

// A pointer that every thread has its own of, null at first; for `static` ones alone.
template <class T>
class PerThread {
 public:
  T* get() const { return const_cast<T*>(static_cast<const T*>(PerThreadNow()[slot_])); }
  void set(T* value) const { PerThreadNow()[slot_] = value; }

 private:
  const size_t slot_ = NextPerThread();  // each object is a slot
};

}  // namespace holdfast
