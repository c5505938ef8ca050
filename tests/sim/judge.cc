#include "tests/sim/judge.h"

#include <algorithm>

namespace holdfast::sim {
namespace {

std::string Who(const std::string& node, const Container& c) {
  return c.pod + (c.name == "main" ? "" : " " + c.name) + " on " + node + " (lineage " + std::to_string(c.memory.lineage) + ", count " +
         std::to_string(c.memory.count) + ")";
}

}  // namespace

void Judge::Break(const std::string& rule, const std::string& what) {
  broken_.push_back(rule + ": " + what);
  tell_("RULE BROKEN " + broken_.back());
}

int64_t Judge::NewLineage(const Container& c) {
  const int64_t lineage = static_cast<int64_t>(lineages_.size()) + 1;
  lineages_[lineage];
  const auto seat = seats_.find(c.seat());
  if (seat == seats_.end()) return lineage;
  ++cold_;
  const Lineage& last = lineages_[seat->second.lineage];
  const bool unheard = unadmitted_.contains(c.pod_uid);
  // What ran when its node lost power is lost to everybody, as after any crash.
  if (!unheard && !last.crashed && !discarded_.contains(seat->second.holder))
    losses_.push_back({c.pod, c.owner, seat->second.holder, c.pod_uid});
  const std::string stored = stored_(c.name, {seat->second.lineage, last.acted});
  if (!unheard && last.running.empty() && !stored.empty())
    Break("StoredStateUnused", c.pod + " " + c.name + " starts without the state that " + stored + " has of its predecessor");
  return lineage;
}

void Judge::RunsOn(const std::string& node, const Container& c, const char* how) {
  Lineage& lineage = lineages_[c.memory.lineage];
  if (!lineage.running.empty()) Break("TwoCopies", Who(node, c) + " " + how + " while " + *lineage.running.begin() + " runs");
  if (c.memory.count < lineage.acted)
    Break("CountRepeated", Who(node, c) + " " + how + ", but its state had come to " + std::to_string(lineage.acted));
  const auto seat = seats_.find(c.seat());
  if (seat != seats_.end() && c.memory.lineage < seat->second.lineage)
    Break("PastReturned",
          Who(node, c) + " " + how + ", but lineage " + std::to_string(seat->second.lineage) + " has acted in its place since");
  lineage.running.insert(c.id);
  lineage.at_rest = false;
}

bool Judge::IsItsLast(const Memory& memory) const {
  const auto lineage = lineages_.find(memory.lineage);
  return lineage != lineages_.end() && lineage->second.acted == memory.count && lineage->second.at_rest && lineage->second.tries == 0;
}

void Judge::Started(const std::string& node, const Container& c, bool restored) {
  const char* turn = restored ? "restored" : seats_.contains(c.seat()) ? "cold" : "starts";
  tell_(Who(node, c) + (restored ? " goes on from its checkpoint" : seats_.contains(c.seat()) ? " starts cold" : " starts"));
  RunsOn(node, c, "starts");
  seats_[c.seat()] = {c.memory.lineage, c.pod_uid};
  if (restored) ++moved_;
  Turn(turn, c);
}

void Judge::Froze(const std::string& node, const Container& c) {
  tell_(Who(node, c) + " is frozen");
  Lineage& lineage = lineages_[c.memory.lineage];
  lineage.at_rest = true;
  lineage.tries = 0;
  lineage.acted = std::max(lineage.acted, c.memory.count);
  lineage.running.erase(c.id);
  Turn("frozen", c);
}

void Judge::Thawed(const std::string& node, const Container& c) {
  tell_(Who(node, c) + " is thawed");
  RunsOn(node, c, "is thawed");
  Turn("thawed", c);
}

void Judge::Ended(const std::string& node, const Container& c, bool crashed) {
  tell_(Who(node, c) + (c.exit_code == 0 ? " is done" : c.exit_code == 1 ? " crashes" : crashed ? " is gone with its node" : " ends"));
  Lineage& lineage = lineages_[c.memory.lineage];
  lineage.acted = std::max(lineage.acted, c.memory.count);
  lineage.running.erase(c.id);
  lineage.crashed = crashed;
  Turn("ends", c);
}

void Judge::Emptied(const std::string& node, const Container& c) {
  Break("VolumesEmptied", "the volumes of " + Who(node, c) + " are emptied while it runs");
}

void Judge::Event(const Json& event) {
  const std::string reason = GetString(event, {"reason"});
  tell_("event " + reason + " of " + GetString(event, {"regarding", "kind"}) + " " + GetString(event, {"regarding", "name"}) + ": " +
        GetString(event, {"note"}));
  told_[GetString(event, {"regarding", "uid"})].insert(reason);
}

void Judge::AtTheEnd() {
  static const std::set<std::string> kSayIt = {"ColdStart",     "StateNotKept",  "NotProtected",
                                               "RestoreFailed", "RestartedCold", "StateIsOlder"};
  for (const Loss& loss : losses_) {
    const std::vector<std::string>& pods = pods_[loss.owner];
    bool said = false;
    for (auto at = std::find(pods.begin(), pods.end(), loss.from); at != pods.end(); ++at) {
      for (const std::string& reason : told_[*at]) said = said || kSayIt.contains(reason);
      // Its user deleted it before what it was given had begun to run there.
      said = said || discarded_.contains(*at);
      said = said || unadmitted_.contains(*at);  // it came in between, and no webhook answered then: not for the eviction before it either
      if (*at == loss.to) break;
    }
    if (!said) Break("SilentColdStart", loss.pod + " started without the state of its predecessor, and no event says so");
  }
}

}  // namespace holdfast::sim
