// The end of a drain: the checkpoint is durable, its pod frozen; it is evicted, or, when that is refused for too long, taken back. Pure.
#pragma once

#include <optional>

#include "reconcilers/claims.h"
#include "reconcilers/text.h"

namespace holdfast::reconcilers::drain {

inline constexpr Duration kEvictRetry = std::chrono::seconds(2);
inline constexpr Duration kReclaimAfter = std::chrono::seconds(30);

struct World {
  CheckpointPtr checkpoint;
  PodPtr pod;                     // the checkpointed one (same uid); null: gone
  std::optional<Status> evicted;  // what the API server said to this round's eviction
};

enum class Action { kNothing, kEvict, kReclaim };

struct Step {
  Action action = Action::kNothing;
  std::string why;
  std::optional<Notice> notice;
  std::optional<Duration> again;
};

Step Next(const World& seen, WallTime now);

}  // namespace holdfast::reconcilers::drain
