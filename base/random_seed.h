// Seeds of jitter, and of ids that tell two processes apart: random, but repeatable in a simulation.
#pragma once

#include <cstdint>
#include <functional>

namespace holdfast {

// From the system, or from `source` since UseSeeds. For keys and anything else that must stay secret: storage/aead.h.
uint64_t RandomSeed();
// A simulation's (tests/sim); null: the system's again. From one thread.
void UseSeeds(std::function<uint64_t()> source);

}  // namespace holdfast
