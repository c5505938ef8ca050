// How much of a store a dump will take, as far as that is known before anything is frozen. Pure.
#pragma once

#include <cstdint>

#include "api/checkpoint.h"

namespace holdfast::agent {

// `estimate_bytes`: of the dump, as it lies in memory. `last`: the newest checkpoint of the same workload in that store, or null; it tells
// what part of one is new there, after compression. Where there is none, a final one, without which its pod's state is lost, is thought to
// shrink as memory often does, and is tried; another one is not worth standing still for what may not fit.
uint64_t WillTake(uint64_t estimate_bytes, bool final, const api::Checkpoint* last);

}  // namespace holdfast::agent
