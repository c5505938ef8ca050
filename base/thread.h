// Threads of code that a simulation runs in turns (tests/sim): such code starts them by Thread, and waits by Clock alone.
#pragma once

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

}  // namespace holdfast
