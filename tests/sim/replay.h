// Plays what users did while a real cluster was recorded (recording.h), in a simulated one of two nodes and two Deployments, without faults
// but those that the recording names. Pods are placed as recorded.
#pragma once

#include "tests/sim/recording.h"
#include "tests/sim/world.h"

namespace holdfast::sim {

struct Replayed {
  Lines lines;                       // of the simulated cluster, until the recording's last mark
  std::vector<std::string> missing;  // what of the recording was waited for in vain
  Verdict verdict;
};

// `folder` as Plan::folder; the same seed gives the same lines.
Replayed Replay(const Lines& recorded, uint64_t seed, const std::string& folder);

}  // namespace holdfast::sim
