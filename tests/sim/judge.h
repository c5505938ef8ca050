// The rules that hold whatever happens, told by what containers do and what the API says. docs/simulation.md has them in words.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/machine.h"

namespace holdfast::sim {

class Judge final : public Observer {
 public:
  // `stored(container, memory)`: the name of a checkpoint that holds it, and of its pod's other containers what they did last, too; else
  // empty.
  using Stored = std::function<std::string(const std::string& container, const Memory& memory)>;
  Judge(std::function<void(const std::string&)> tell, Stored stored) : tell_(std::move(tell)), stored_(std::move(stored)) {}

  void Started(const std::string& node, const Container& container, bool restored) override;
  void Froze(const std::string& node, const Container& container) override;
  void Thawed(const std::string& node, const Container& container) override;
  void Ended(const std::string& node, const Container& container, bool crashed) override;
  int64_t NewLineage(const Container& container) override;
  void Tries(const Memory& memory) override { ++lineages_[memory.lineage].tries; }
  void DidNotRun(const Memory& memory) override { --lineages_[memory.lineage].tries; }
  void Emptied(const std::string& node, const Container& container) override;

  // Hears of each turn that a container takes, after the judge: "starts", "restored", "cold", "frozen", "thawed", "ends".
  std::function<void(const char* turn, const Container& container)> on_turn;

  void Event(const Json& event);
  void PodMade(const std::string& owner, const std::string& uid) { pods_[owner].push_back(uid); }
  // A pod that came to be while no webhook answered: docs/faults.md allows it a cold start without a word.
  // Or one that nobody owns, made anew by its user, who asked for no state.
  void Unadmitted(const std::string& uid) { unadmitted_.insert(uid); }
  // Its user ended it, and what is ended so is not checkpointed (chart value checkpointOnStop).
  void Discarded(const std::string& uid) { discarded_.insert(uid); }
  // Once all is quiet.
  void AtTheEnd();
  // Whether that is the last that a lineage did.
  bool IsItsLast(const Memory& memory) const;
  void Break(const std::string& rule, const std::string& what);

  const std::vector<std::string>& broken() const { return broken_; }
  int moved() const { return moved_; }
  int cold() const { return cold_; }

 private:
  struct Lineage {
    int64_t acted = 0;              // the highest count that anybody saw
    bool at_rest = true;            // it has done nothing since it was frozen last
    int tries = 0;                  // to restore it that are under way, or were cut off
    std::set<std::string> running;  // containers
    bool crashed = false;           // it ended with its node
  };
  struct Seat {
    int64_t lineage = 0;  // the last
    std::string holder;   // uid of the pod that had it last
  };
  struct Loss {
    std::string pod, owner, from, to;  // uids: the pod that had the state, and the one that started without it
  };
  void Turn(const char* turn, const Container& container) {
    if (on_turn) on_turn(turn, container);
  }
  void RunsOn(const std::string& node, const Container& container, const char* how);

  std::function<void(const std::string&)> tell_;
  Stored stored_;
  std::map<int64_t, Lineage> lineages_;
  std::map<std::string, Seat> seats_;
  std::map<std::string, std::vector<std::string>> pods_;  // by owner: uids, in the order in which they were made
  std::vector<Loss> losses_;
  std::map<std::string, std::set<std::string>> told_;  // reasons of events, by pod uid
  std::set<std::string> unadmitted_, discarded_;
  std::vector<std::string> broken_;
  int moved_ = 0, cold_ = 0;
};

}  // namespace holdfast::sim
