// Refuses orders of a leader that another has followed. A Lease alone does not: a leader that was paused may still act in the belief that
// it leads. So whoever has side effects hands its lease's transition number along, and whoever carries them out asks a Fence.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace holdfast::kube {

// Thread-safe. To outlive a restart of the process, keep highest() and give it to the next.
class Fence {
 public:
  explicit Fence(int64_t highest = -1) : highest_(highest) {}

  // kFailedPrecondition, marked Terminal, when `transition` is lower than one admitted before; else remembers it.
  Status Admit(int64_t transition) {
    int64_t seen = highest_.load();
    while (transition > seen && !highest_.compare_exchange_weak(seen, transition)) {
    }
    if (transition >= seen) return Status::Ok();
    return Status(Code::kFailedPrecondition, "a leader of term " + std::to_string(transition) + " asks, but one of term " +
                                                 std::to_string(seen) + " has asked already")
        .Terminal();
  }

  int64_t highest() const { return highest_.load(); }

 private:
  std::atomic<int64_t> highest_;
};

}  // namespace holdfast::kube
