#include "tests/sim/store.h"

namespace holdfast::sim {

Status Store::Carry(Turns& turns, int64_t bytes, const storage::IngestOptions& options) {
  constexpr Duration kPart = std::chrono::milliseconds(100);
  if (pace == 0) return Status::Ok();
  ++senders_;
  Status carried;
  for (int64_t sent = 0; sent < bytes && carried.ok(); sent = std::min(bytes, sent + pace / 10 / senders_)) {
    if (options.progress) options.progress({static_cast<uint64_t>(sent), static_cast<uint64_t>(bytes)});
    turns.Pause(kPart);
    carried = options.stop.stop_requested() ? Status(Code::kCancelled, "stopped")
              : reachable()                 ? Status::Ok()
                                            : Status(Code::kUnavailable, "the store does not answer");
  }
  --senders_;
  return carried;
}

}  // namespace holdfast::sim
