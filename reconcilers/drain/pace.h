// How fast a node stores what its pods are, and so whether one more of them can be frozen with the hope that all are stored by their
// deadlines: of a node with more state than its bandwidth carries in one, fewer are frozen at a time, and none of them is lost. Pure.
#pragma once

#include <vector>

#include "reconcilers/claims.h"

namespace holdfast::reconcilers::drain {

inline constexpr int64_t kUnknownBytes = int64_t{512} << 20;  // of a pod of which nothing is known
// A second: of a node of which nothing is known. Most are far faster, and tell so by the first that they store; who takes a slow one for a
// fast one freezes what it cannot store.
inline constexpr int64_t kUnknownPace = int64_t{4} << 20;
// How long a finished checkpoint tells of its node's pace.
inline constexpr Duration kPaceIsOf = std::chrono::minutes(10);

struct Pace {
  int64_t bytes_per_second = kUnknownPace;
  bool measured = false;                // else it is at least so fast
  int64_t usual_bytes = kUnknownBytes;  // the most that one of its pods was, as far as was seen
};
// Of a node, by what was done there of late and is done now.
Pace PaceOf(const std::vector<CheckpointPtr>& on_node, WallTime now);

// What it is, or is expected to be: as its agent says, or else `expected`.
int64_t BytesOf(const api::Checkpoint& checkpoint, int64_t expected);
// What of that is not stored yet.
int64_t BytesLeftOf(const api::Checkpoint& checkpoint, int64_t expected);

// One that is under way.
struct Load {
  int64_t bytes_left = 0;
  Duration time_left{0};  // until its deadline
};
// Whether one more of so many bytes, which would have so long, leaves all of `load` time enough, and has it. `before_it`: bytes of those
// that come before it and have not begun. Beside nothing there is always room.
bool Fits(const std::vector<Load>& load, int64_t before_it, int64_t bytes, Duration time, int64_t bytes_per_second);

}  // namespace holdfast::reconcilers::drain
