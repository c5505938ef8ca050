#include "tests/sim/turns.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace holdfast::sim {
namespace {

constexpr size_t kStackBytes = size_t{1} << 20;  // of address space: only what is touched is there
const WallTime kStart = WallTime(std::chrono::hours(24 * 365 * 50));

// On its own: getcontext is one of the functions that return twice, as far as the compiler knows. makecontext passes ints.
[[gnu::noinline]] void Prepare(ucontext_t* context, void* stack, void (*main)(), uintptr_t argument) {
  getcontext(context);
  context->uc_stack.ss_sp = stack;
  context->uc_stack.ss_size = kStackBytes;
  context->uc_link = nullptr;
  makecontext(context, main, 2, static_cast<unsigned>(argument >> 32), static_cast<unsigned>(argument));
}

}  // namespace

void Die(const char* what) {
  std::fprintf(stderr, "simulation: %s\n", what);
  std::abort();
}

uint64_t Random::Next() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

struct Turns::Fiber {
  ~Fiber() {
    if (stack != nullptr) munmap(stack, kStackBytes);
  }
  ucontext_t context{};
  void* stack = nullptr;
  std::function<void()> body{};
  std::array<const void*, kMostPerThread> per_thread{};
  void* fake_stack = nullptr;  // AddressSanitizer's
  // While it waits; `ready` null: it only lets others go first.
  const std::function<bool()>* ready = nullptr;
  MonoTime deadline = MonoTime::max();
  std::stop_token stop{};
  bool waits = false, ended = false;
  std::shared_ptr<bool> over = std::make_shared<bool>(false);
};

class Turns::Handle final : public Threads::Running {
 public:
  Handle(Turns& turns, std::shared_ptr<bool> over) : turns_(turns), over_(std::move(over)) {}
  void Join() override {
    (void)turns_.Await([this] { return *over_; });
  }

 private:
  Turns& turns_;
  std::shared_ptr<bool> over_;
};

Turns::Turns(uint64_t seed) : random_(seed), scheduler_(std::make_unique<Fiber>()) {}

Turns::~Turns() {
  if (!fibers_.empty()) Die("a fiber outlives its simulation");
}

WallTime Turns::Wall() const { return kStart + passed_; }

Turns::Fiber* Turns::New(std::function<void()> body) {
  std::unique_ptr<Fiber> fiber;
  if (ended_.empty()) {
    fiber = std::make_unique<Fiber>();
    fiber->stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fiber->stack == MAP_FAILED) Die("no memory for a stack");
  } else {
    fiber = std::move(ended_.back());
    ended_.pop_back();
    fiber->ended = fiber->waits = false;
    fiber->per_thread = {};
    fiber->fake_stack = nullptr;
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(fiber->stack, kStackBytes);  // its last frames never returned
#endif
    fiber->over = std::make_shared<bool>(false);
  }
  fiber->body = std::move(body);
  Prepare(&fiber->context, fiber->stack, reinterpret_cast<void (*)()>(&Turns::Main), reinterpret_cast<uintptr_t>(this));
  fibers_.push_back(std::move(fiber));
  return fibers_.back().get();
}

void Turns::Main(unsigned high, unsigned low) {
  auto& turns = *reinterpret_cast<Turns*>(uintptr_t{high} << 32 | low);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  Fiber& self = *turns.current_;
  self.body();
  self.body = nullptr;
  self.ended = true;
  *self.over = true;
  turns.BackToScheduler();
  Die("a fiber that ended was run");
}

void Turns::Switch(Fiber* to) {
  std::swap(t_per_thread, to->per_thread);
  current_ = to;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&scheduler_->fake_stack, to->stack, kStackBytes);
#endif
  swapcontext(&scheduler_->context, &to->context);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(scheduler_->fake_stack, nullptr, nullptr);
#endif
  current_ = nullptr;
  std::swap(t_per_thread, to->per_thread);
}

void Turns::BackToScheduler() {
  Fiber& self = *current_;
#if defined(__SANITIZE_ADDRESS__)
  // The scheduler's stack is the thread's own: found out once.
  static thread_local const void* bottom = nullptr;
  static thread_local size_t size = 0;
  if (bottom == nullptr) {
    pthread_attr_t attributes;
    void* low = nullptr;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &low, &size);
    pthread_attr_destroy(&attributes);
    bottom = low;
  }
  __sanitizer_start_switch_fiber(self.ended ? nullptr : &self.fake_stack, bottom, size);
#endif
  swapcontext(&self.context, &scheduler_->context);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(self.fake_stack, nullptr, nullptr);
#endif
}

std::unique_ptr<Threads::Running> Turns::Start(std::function<void()> body) {
  return std::make_unique<Handle>(*this, New(std::move(body))->over);
}

bool Turns::Await(const std::function<bool()>& ready, MonoTime deadline, std::stop_token stop) {
  if (current_ == nullptr) Die("the scheduler itself cannot wait");
  if (ready()) return true;
  if (stop.stop_requested() || Mono() >= deadline) return false;
  Fiber& self = *current_;
  self.ready = &ready;
  self.deadline = deadline;
  self.stop = std::move(stop);
  self.waits = true;
  BackToScheduler();
  self.waits = false;
  self.stop = {};
  return ready();
}

bool Turns::WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable_any&, MonoTime deadline, std::stop_token stop,
                      const std::function<bool()>& ready) {
  for (;;) {
    if (ready()) return true;
    if (stop.stop_requested() || Mono() >= deadline) return false;
    lock.unlock();
    (void)Await(ready, deadline, stop);
    // Whoever has it is in the middle of a turn of his own.
    while (!lock.try_lock()) Pause(std::chrono::microseconds(1));
  }
}

bool Turns::Runnable(const Fiber& fiber) const {
  return !fiber.waits || fiber.deadline <= Mono() || fiber.stop.stop_requested() || (*fiber.ready)();
}

// One turn of somebody who can go on; when there is nobody, time moves to when there is. False: there never will be.
bool Turns::Step() {
  for (;;) {
    // The first that can go on, from a random place: cheap, and fair enough, since the order of fibers_ changes all the time.
    const size_t count = fibers_.size(), from = count == 0 ? 0 : random_.Below(count);
    MonoTime next = MonoTime::max();
    for (size_t i = 0; i < count; ++i) {
      Fiber* fiber = fibers_[(from + i) % count].get();
      if (!Runnable(*fiber)) {
        next = std::min(next, fiber->deadline);
        continue;
      }
      ++turns_;
      Switch(fiber);
      if (fiber->ended) {
        auto at = std::find_if(fibers_.begin(), fibers_.end(), [&](const auto& one) { return one.get() == fiber; });
        ended_.push_back(std::move(*at));
        *at = std::move(fibers_.back());
        fibers_.pop_back();
      }
      return true;
    }
    if (next == MonoTime::max()) return false;
    passed_ = next.time_since_epoch();
  }
}

bool Turns::Run(const std::function<void()>& body) {
  const std::shared_ptr<bool> over = New(body)->over;
  while (!*over) {
    if (!Step()) return false;
  }
  return true;
}

}  // namespace holdfast::sim
