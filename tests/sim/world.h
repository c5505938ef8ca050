// A cluster with Holdfast in it, users who drain it, and faults, all from one seed; and the judge of what comes of it.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/process.h"

namespace holdfast::sim {

struct Plan {
  uint64_t seed = 1;
  int nodes = 3, pods = 10;
  int drains = 12;       // of nodes, one after the other
  double faults = 20;    // in a thousand turns of the world's own clock (100 ms each), of all kinds together; 0: none
  std::string folder{};  // for the nodes' files, which Play makes and removes
};

struct Verdict {
  std::vector<std::string> broken;  // rules, with what was seen; empty: all is well
  std::string story;
  uint64_t turns = 0;
  int moved = 0, cold = 0, faults = 0;
  Duration lasted{0};
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
