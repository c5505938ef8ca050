// What the gate plays of what there is too much of: a part, another one for every commit. By hand, and in make test-all, all of it.
#pragma once

#include <cstdlib>
#include <functional>
#include <string_view>

namespace holdfast::testing {

inline bool InGate() {
  const char* ring = getenv("HF_RING");  // NOLINT(concurrency-mt-unsafe): nothing here calls setenv
  return ring != nullptr && std::string_view(ring) == "gate";
}
inline size_t SeedOfThisCommit() {
  const char* seed = getenv("HF_SEED");  // NOLINT(concurrency-mt-unsafe): see above
  return std::hash<std::string_view>()(seed != nullptr ? seed : "");
}
// Whether this one of `of` parts is not played.
inline bool IsLeftToOtherCommits(size_t part, size_t of) { return InGate() && part % of != SeedOfThisCommit() % of; }

}  // namespace holdfast::testing
