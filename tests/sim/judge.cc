#include "tests/sim/judge.h"

#include <algorithm>

namespace holdfast::sim {
namespace {

std::string Who(const std::string& node, const Container& c) {
  return c.pod + " on " + node + " (lineage " + std::to_string(c.memory.lineage) + ", count " + std::to_string(c.memory.count) + ")";
}

}  // namespace

void Judge::Break(const std::string& rule, const std::string& what) {
  broken_.push_back(rule + ": " + what);
  tell_("RULE BROKEN " + broken_.back());
}

int64_t Judge::NewLineage(const Container& c) {
  const int64_t lineage = static_cast<int64_t>(lineages_.size()) + 1;
  lineages_[lineage];
  if (of_owner_.contains(c.owner)) {
    ++cold_;
    if (!unadmitted_.contains(c.pod_uid)) losses_.push_back({c.pod, c.owner, holder_[c.owner], c.pod_uid});
  }
  return lineage;
}

void Judge::RunsOn(const std::string& node, const Container& c, const char* how) {
  Lineage& lineage = lineages_[c.memory.lineage];
  if (!lineage.running.empty()) Break("TwoCopies", Who(node, c) + " " + how + " while " + *lineage.running.begin() + " runs");
  if (c.memory.count < lineage.acted)
    Break("CountRepeated", Who(node, c) + " " + how + ", but its state had come to " + std::to_string(lineage.acted));
  lineage.running.insert(c.id);
}

void Judge::Started(const std::string& node, const Container& c, bool restored) {
  tell_(Who(node, c) + (restored ? " goes on from its checkpoint" : of_owner_.contains(c.owner) ? " starts cold" : " starts"));
  RunsOn(node, c, "starts");
  of_owner_[c.owner] = c.memory.lineage;
  holder_[c.owner] = c.pod_uid;
  if (restored) ++moved_;
}

void Judge::Froze(const std::string& node, const Container& c) {
  tell_(Who(node, c) + " is frozen");
  Lineage& lineage = lineages_[c.memory.lineage];
  lineage.acted = std::max(lineage.acted, c.memory.count);
  lineage.running.erase(c.id);
}

void Judge::Thawed(const std::string& node, const Container& c) {
  tell_(Who(node, c) + " is thawed");
  RunsOn(node, c, "is thawed");
}

void Judge::Ended(const std::string& node, const Container& c) {
  tell_(Who(node, c) + " ends");
  Lineage& lineage = lineages_[c.memory.lineage];
  lineage.acted = std::max(lineage.acted, c.memory.count);
  lineage.running.erase(c.id);
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
      if (*at == loss.to) break;
    }
    if (!said) Break("SilentColdStart", loss.pod + " started without the state of its predecessor, and no event says so");
  }
}

}  // namespace holdfast::sim
