// A cluster with Holdfast in it, users who drain it, and faults, all from one seed; and the judge of what comes of it.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"

namespace holdfast::sim {

inline constexpr int kAllKinds = 13, kKindsOfProcesses = 7;
// What Plan::world adds to Deployments of one pod each.
inline constexpr int kOwners = 1;  // StatefulSets, Jobs and bare pods; containers that crash; pods whose end is seen before they are gone
inline constexpr int kAllWorlds = 1;

// A fault by its place, not by its time: it comes to be when the place is reached for the nth time, or so long after that. Of a plan of
// such steps little is left to the seed, so it shows what it shows whatever the product asks or waits for. Places and faults: steps.cc.
struct Step {
  std::string place;
  std::string workload;  // of whose pods; empty: of any
  int nth = 1;
  Duration after{0};
  std::string fault;
  int amount = 0;  // mostly for how many seconds; 0: as long as is usual
};
bool IsFault(const std::string& name);

struct Plan {
  uint64_t seed = 1;
  int nodes = 3, pods = 10;
  int drains = 12;        // of nodes, one after the other
  int mib = 0;            // that each pod is, as it says in its requests; 0: next to nothing
  int pace = 0;           // MiB a second that the store takes of all together; 0: as fast as may be
  double faults = 20;     // in a thousand turns of the world's own clock (100 ms each), of all kinds together; 0: none
  int kinds = kAllKinds;  // of faults, in the order of faults.cc: those of processes and networks come first, then those of nodes and users
  int world = 0;          // of the above; what nobody asks for leaves every story as it is
  bool real_store = false;  // the product's own, with faults of its own beside the others; else a model of it
  // Of the faults that the seed says, by their numbers, only these come to be; unset: all. What shrinks a story (shrink.h).
  std::optional<std::set<int>> only{};
  // In place of all that a seed draws of drains, faults and weather: just these, each once. Empty: what the seed says.
  std::vector<Step> at{};
  std::string folder{};  // for the nodes' files, which Play makes and removes
};

// "checkpoint.claimed@web-1:2+5:power:60": the node has no power for a minute, from five seconds after a pod of web-1 was given a
// Checkpoint for the second time.
std::string StepText(const Step& step);
// "seed=42 drains=2 pods=3 only=4,17", as holdfast-sim and seeds.txt have it; what stands there as always is left out.
std::string PlanText(const Plan& plan);
// Nothing: it cannot be read.
std::optional<Plan> ParsePlan(const std::string& text);

struct Verdict {
  std::vector<std::string> broken;  // "rule: what was seen"; empty: all is well
  std::string story;
  uint64_t turns = 0;
  int moved = 0, cold = 0;
  int drains = 0;                   // that had begun when the first rule was broken, else at the end
  std::vector<int> faults;          // the numbers of those that came to be
  std::vector<std::string> missed;  // of Plan::at, the steps whose places were never reached: it tells another story than it was made for
  Duration lasted{0};
  std::string Rule() const { return broken.empty() ? "" : broken[0].substr(0, broken[0].find(':')); }
};

// A folder in memory for Plan::folder, while this lives; on disk where there is none.
class Place {
 public:
  Place();
  ~Place();
  std::string folder() const { return path_ + "/nodes"; }

 private:
  std::string path_;
};

// Runs it to its end. The same plan gives the same verdict, story and all (what names the folder reads "…" there).
Verdict Play(const Plan& plan);

}  // namespace holdfast::sim
