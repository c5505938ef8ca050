// holdfast-sim: plays the simulation from one seed, or from many in a row.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/clock.h"
#include "tests/sim/replay.h"
#include "tests/sim/shrink.h"

namespace {

using holdfast::sim::Plan;
using holdfast::sim::Verdict;

void Report(const Plan& plan, const Verdict& verdict) {
  std::printf("%s: %s; %d moved, %d cold, %zu faults, %llu turns, %.0f s\n", PlanText(plan).c_str(),
              verdict.broken.empty() ? "all is well" : "RULES BROKEN", verdict.moved, verdict.cold, verdict.faults.size(),
              static_cast<unsigned long long>(verdict.turns), std::chrono::duration<double>(verdict.lasted).count());
  for (const std::string& rule : verdict.broken) std::printf("  %s\n", rule.c_str());
  for (const std::string& step : verdict.missed) std::printf("  never came: %s\n", step.c_str());
  std::fflush(stdout);
}

// Against a recording (recorded/): 0 when nothing differs that matters.
int ReplayFile(const std::string& file, uint64_t seed, bool story) {
  using namespace holdfast::sim;  // NOLINT(google-build-using-namespace): a main
  const Lines recorded = ReadRecording(file);
  if (recorded.empty()) {
    std::fprintf(stderr, "holdfast-sim: %s is no recording of tests/sim/record.py\n", file.c_str());
    return 2;
  }
  const Place place;
  const Replayed replayed = Replay(recorded, seed, place.folder());
  if (story) std::fputs(replayed.verdict.story.c_str(), stdout);
  std::vector<std::string> wrong = replayed.missing;
  for (const auto& more : {Differences(recorded, replayed.lines), BrokenOrders(replayed.lines), replayed.verdict.broken})
    wrong.insert(wrong.end(), more.begin(), more.end());
  for (const std::string& one : wrong) std::printf("%s\n", one.c_str());
  std::printf("%zu lines recorded, %zu simulated, %zu differences\n", recorded.size(), replayed.lines.size(), wrong.size());
  return wrong.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace holdfast;  // NOLINT(google-build-using-namespace): a main
  std::vector<std::string> words;
  uint64_t seeds = 1;
  double minutes = 0;
  bool story = false, shrink = false;
  CLI::App app("Plays Holdfast in one process and virtual time (docs/simulation.md).", "holdfast-sim");
  app.add_option("plan", words,
                 "seed=N nodes=N pods=N drains=N mib=N pace=N faults=N store=real only=NUMBER,… or at=PLACE:NTH:FAULT,… "
                 "(tests/sim/steps.cc); the same plan, "
                 "the same story");
  app.add_option("--seeds", seeds, "so many, from seed= on");
  app.add_option("--minutes", minutes, "instead: as many as can be played in that time");
  app.add_flag("--story", story, "print what happened");
  app.add_flag("--shrink", shrink, "of the first seed that breaks a rule, find the shortest plan that still does, and print its story");
  std::string recording;
  app.add_option("--replay", recording, "play what this recording of a real cluster did, and print what differs");
  CLI11_PARSE(app, argc, argv);
  std::string text;
  for (const std::string& word : words) text += word + " ";
  std::optional<Plan> read = sim::ParsePlan(text);
  if (!read) {
    std::fprintf(stderr, "holdfast-sim: \"%s\" is no plan; see --help\n", text.c_str());
    return 2;
  }
  Plan plan = *read;
  if (!recording.empty()) return ReplayFile(recording, plan.seed, story);
  const sim::Place place;
  plan.folder = place.folder();
  const MonoTime began = Clock::Real().Mono();
  auto passed = [&] { return std::chrono::duration<double>(Clock::Real().Mono() - began).count() / 60; };
  int moved = 0, failed = 0;
  for (uint64_t played = 0; minutes > 0 ? passed() < minutes : played < seeds; ++played, ++plan.seed) {
    const Verdict verdict = sim::Play(plan);
    moved += verdict.moved;
    failed += verdict.broken.empty() ? 0 : 1;
    if (story) std::fputs(verdict.story.c_str(), stdout);
    Report(plan, verdict);
    if (verdict.broken.empty() || !shrink) continue;
    const Plan small = sim::Shrink(plan, verdict, 400, sim::Play, [](const std::string& nearer) {
      std::printf("  shrunk to %s\n", nearer.c_str());
      std::fflush(stdout);
    });
    const Verdict told = sim::Play(small);
    std::fputs(told.story.c_str(), stdout);
    Report(small, told);
    return 1;
  }
  std::printf("%d moved in %.2f minutes: %.0f a minute; %d seeds with broken rules\n", moved, passed(), moved / passed(), failed);
  return failed == 0 ? 0 : 1;
}
