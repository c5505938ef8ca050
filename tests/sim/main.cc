// holdfast-sim [--seed N] [--seeds COUNT] [--drains N] [--faults N] [--story]: plays the simulation from one seed, or from many in a row.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/clock.h"
#include "tests/sim/world.h"

int main(int argc, char** argv) {
  using namespace holdfast;  // NOLINT(google-build-using-namespace): a main
  sim::Plan plan;
  uint64_t seeds = 1;
  bool story = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool more = i + 1 < argc;
    if (word == "--seed" && more) {
      plan.seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--seeds" && more) {
      seeds = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--drains" && more) {
      plan.drains = std::atoi(argv[++i]);
    } else if (word == "--faults" && more) {
      plan.faults = std::atof(argv[++i]);
    } else if (word == "--story") {
      story = true;
    } else {
      std::printf("holdfast-sim [--seed N] [--seeds COUNT] [--drains N, of nodes] [--faults N, in a thousand turns] [--story]\n");
      return word == "--help" ? 0 : 2;
    }
  }
  const sim::Place place;
  plan.folder = place.folder();
  const MonoTime began = Clock::Real().Mono();
  int moved = 0, failed = 0;
  for (uint64_t seed = plan.seed, end = seed + seeds; seed < end; ++seed) {
    plan.seed = seed;
    const sim::Verdict verdict = sim::Play(plan);
    moved += verdict.moved;
    if (story || (!verdict.broken.empty() && seeds == 1)) std::fputs(verdict.story.c_str(), stdout);
    std::printf("seed %llu: %s; %d moved, %d cold, %d faults, %llu turns, %.0f s\n", static_cast<unsigned long long>(seed),
                verdict.broken.empty() ? "all is well" : "RULES BROKEN", verdict.moved, verdict.cold, verdict.faults,
                static_cast<unsigned long long>(verdict.turns), std::chrono::duration<double>(verdict.lasted).count());
    for (const std::string& rule : verdict.broken) std::printf("  %s\n", rule.c_str());
    std::fflush(stdout);
    failed += verdict.broken.empty() ? 0 : 1;
  }
  const double minutes = std::chrono::duration<double>(Clock::Real().Mono() - began).count() / 60;
  std::printf("%d moved in %.2f minutes: %.0f a minute; %d seeds with broken rules\n", moved, minutes, moved / minutes, failed);
  return failed == 0 ? 0 : 1;
}
