#include "base/thread.h"

#include <atomic>
#include <thread>

namespace holdfast {
namespace {

class SystemThreads final : public Threads {
 public:
  std::unique_ptr<Running> Start(std::function<void()> body) override { return std::make_unique<SystemThread>(std::move(body)); }

 private:
  class SystemThread final : public Running {
   public:
    explicit SystemThread(std::function<void()> body) : thread_(std::move(body)) {}
    void Join() override { thread_.join(); }

   private:
    std::thread thread_;
  };
};

std::atomic<Threads*> g_threads = nullptr;

}  // namespace

Threads& Threads::Now() {
  static SystemThreads system;
  Threads* used = g_threads;
  return used != nullptr ? *used : system;
}

void Threads::Use(Threads* threads) { g_threads = threads; }

}  // namespace holdfast
