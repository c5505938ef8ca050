// What a store's process does beside its requests: gives space back, looks for damage, and ends sessions that nobody uses.
#pragma once

#include "base/thread.h"
#include "storage/local_store.h"

namespace holdfast::storage {

struct UpkeepOptions {
  uint64_t collect_bytes_per_second = 64 << 20;
  Duration tighten_after = Duration::max();  // see CollectOptions
  ScrubOptions scrub{};                      // its stop_token is not used; `every` 0: never
};

// The store outlives it. Stops by its end, within the time of one operation on a file.
class Upkeep {
 public:
  Upkeep(LocalStore& store, UpkeepOptions options, Clock& clock);
  void RequestStop();

 private:
  void Expire(const std::stop_token& stop);
  void Collect(const std::stop_token& stop);
  void Scrub(const std::stop_token& stop);

  LocalStore& store_;
  const UpkeepOptions options_;
  Clock& clock_;
  Thread expirer_, collector_, scrubber_;
};

}  // namespace holdfast::storage
