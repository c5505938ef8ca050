// What of two recordings is compared (recording.h).
#include <algorithm>

#include "tests/sim/recording.h"

namespace holdfast::sim {

const std::vector<Simpler> kSimpler = {
    {"ReplicaSets, and events that are not Holdfast's",
     "the simulation's have no status, and say nothing; Holdfast reads of a ReplicaSet whose it is, and no events"},
    {"conditions other than Ready, their reasons, and the states of containers",
     "what a kubelet says beside them is not simulated; the containers have other names"},
    {"Succeeded and Failed of a pod that ends",
     "without `world=1` the simulated kubelet takes the pod away with its last container, so nobody sees it between the two"},
    {"that a pod ends, when it is deleted by force",
     "the simulated API server takes it away in one write, the real one in two, one right after the other"},
    {"the finalizers of what is deleted", "the simulated API server writes once more between the last one and the end, in the same turn"},
    {"Storing, where the recording has none",
     "a word of progress: the agent tells it once, and goes on where the write fails (`Executor::PatchPhase`)"},
    {"whether a pod is ready before its restore is told of", "the real kubelet says so up to a second later, the simulated one at once"},
};

namespace {

std::string Value(const Json& line, const char* key) { return GetString(line, {key}); }

void Add(std::string& text, const std::string& word) {
  if (!word.empty()) text += (text.empty() ? "" : ", ") + word;
}

// The finalizers of what does not end yet.
std::string Ending(const Json& line) {
  if (GetBool(line, {"deleting"})) return "ends";
  std::string text;
  for (const Json& one : GetArray(line, {"finalizers"})) Add(text, one.get<std::string>());
  return text;
}

std::string OfPod(const Json& line) {
  std::string text;
  for (const Json& gate : GetArray(line, {"gates"})) Add(text, "gate " + gate.get<std::string>());
  if (!Value(line, "node").empty()) Add(text, "on " + Value(line, "node"));
  Add(text, Value(line, "class"));
  Add(text, Value(line, "phase"));
  if (GetString(line, {"conditions", "Ready"}).starts_with("True")) Add(text, "ready");
  for (const auto& [key, value] : GetObject(line, {"annotations"}).items()) Add(text, key + "=" + value.get<std::string>());
  Add(text, Ending(line));
  return text;
}

std::string OfCheckpoint(const Json& line) {
  std::string text = Value(line, "trigger") + (GetBool(line, {"final"}) ? ", final" : "");
  Add(text, Value(line, "phase"));
  if (GetString(line, {"conditions", "Ready"}).starts_with("True")) Add(text, "ready");
  if (!Value(line, "node").empty()) Add(text, "of " + Value(line, "pod") + " on " + Value(line, "node"));
  Add(text, Value(line, "term"));
  int restorable = 0;
  for (const Json& one : GetObject(line, {"restorable"})) restorable += one == true ? 1 : 0;
  if (restorable > 0) Add(text, std::to_string(restorable) + " restorable");
  for (const Json& one : GetArray(line, {"owners"})) Add(text, "owned by a " + one.get<std::string>());
  if (!Value(line, "claim").empty()) Add(text, "claimed for " + Value(line, "claim"));
  for (const Json& one : GetArray(line, {"restores"}))
    Add(text, Value(one, "outcome") + " " + Value(one, "pod") + " on " + Value(one, "node") + (GetBool(one, {"ran"}) ? ", ran" : ""));
  Add(text, Ending(line));
  std::string has;
  for (const Json& key : GetArray(line, {"has"})) has += " " + key.get<std::string>();
  return text + (has.empty() ? "" : "; has" + has);
}

// The app of a pod of the recording.
std::string App(const std::string& name) { return name.substr(0, name.rfind('-')); }

}  // namespace

std::map<std::string, std::vector<std::string>> Chains(const Lines& lines) {
  std::map<std::string, std::vector<std::string>> chains;
  std::set<std::string> forced;  // apps, of which a pod is about to go by force
  for (const Json& line : lines) {
    const std::string kind = Value(line, "kind");
    if (Value(line, "how").starts_with("--force")) forced.insert(Value(line, "app"));
    std::string who = kind + " " + Value(line, "name"), text;
    if (kind == "Pod") {
      const bool gone = Value(line, "verb") == "DELETED", ends = GetBool(line, {"deleting"}) && !gone;
      if (ends && (Value(line, "phase") == "Succeeded" || Value(line, "phase") == "Failed")) continue;
      if (ends && forced.contains(App(Value(line, "name")))) continue;
      if (gone) forced.erase(App(Value(line, "name")));
      text = OfPod(line);
    } else if (kind == "Checkpoint") {
      text = OfCheckpoint(line);
    } else if (kind == "Node") {
      text = GetBool(line, {"cordoned"}) ? "cordoned" : "in use";
    } else if (kind == "Event" && Value(line, "by").starts_with("holdfast")) {
      who = "events of " + Value(line, "about");
      text = Value(line, "type") + " " + Value(line, "reason") + " by " + Value(line, "by");
    } else {
      continue;
    }
    if (Value(line, "verb") == "DELETED") text = "gone";
    std::vector<std::string>& chain = chains[who];
    if (chain.empty() || chain.back() != text) chain.push_back(std::move(text));
  }
  return chains;
}

std::vector<std::string> Differences(const Lines& recorded, const Lines& simulated) {
  std::map<std::string, std::pair<std::vector<std::string>, std::vector<std::string>>> both;
  for (auto& [who, chain] : Chains(recorded)) both[who].first = chain;
  for (auto& [who, chain] : Chains(simulated)) both[who].second = chain;
  std::vector<std::string> differences;
  for (auto& [who, chains] : both) {
    auto& [was, is] = chains;
    auto stores = [](const std::string& text) { return text.find(", Storing,") != std::string::npos; };
    if (std::none_of(was.begin(), was.end(), stores)) std::erase_if(is, stores);
    if (was == is) continue;
    std::string text = who + " (- recorded, + simulated):\n";
    size_t first = 0, last = 0;  // what is the same at the beginning, and at the end
    const size_t least = std::min(was.size(), is.size());
    while (first < least && was[first] == is[first]) text += "    " + was[first++] + "\n";
    while (last < least - first && was[was.size() - 1 - last] == is[is.size() - 1 - last]) ++last;
    for (size_t i = first; i < was.size() - last; ++i) text += "  - " + was[i] + "\n";
    for (size_t i = first; i < is.size() - last; ++i) text += "  + " + is[i] + "\n";
    for (size_t i = was.size() - last; i < was.size(); ++i) text += "    " + was[i] + "\n";
    differences.push_back(std::move(text));
  }
  return differences;
}

std::vector<std::string> BrokenOrders(const Lines& lines) {
  std::vector<std::string> broken;
  // The first line of an object for which that holds; after all lines: none.
  auto first = [&](const std::string& kind, const std::string& name, auto holds) {
    for (size_t i = 0; i < lines.size(); ++i) {
      if (Value(lines[i], "kind") == kind && (name.empty() || Value(lines[i], "name") == name) && holds(lines[i])) return i;
    }
    return lines.size();
  };
  auto want = [&](const std::string& rule, const std::string& who, size_t before, size_t after) {
    if (after < lines.size() && before >= after) broken.push_back(rule + ": " + who);
  };
  auto ends = [](const Json& line) { return GetBool(line, {"deleting"}) || Value(line, "verb") == "DELETED"; };
  auto gated = [](const Json& line) { return !GetArray(line, {"gates"}).empty(); };
  auto bound = [](const Json& line) { return !Value(line, "node").empty(); };
  std::set<std::string> seen;
  for (const Json& line : lines) {
    const std::string kind = Value(line, "kind"), name = Value(line, "name");
    if (!seen.insert(kind + " " + name).second) continue;
    if (kind == "Pod") {
      const std::string number = name.substr(name.rfind('-') + 1);
      if (number == "1") continue;
      const std::string before = name.substr(0, name.size() - number.size()) + std::to_string(std::stoi(number) - 1);
      const size_t made = first(kind, name, [](const Json&) { return true; });
      want("a pod is made once its predecessor ends", name, first(kind, before, ends), made);
      want("a pod has its gate before it has a node", name, first(kind, name, gated), first(kind, name, bound));
    }
    if (kind != "Checkpoint") continue;
    const std::string pod = Value(line, "name").substr(0, name.rfind('-')).substr(sizeof "checkpoint of " - 1);
    const size_t ready = first(kind, name, [](const Json& c) { return Value(c, "phase") == "Ready"; });
    want("a Checkpoint is Ready before its pod is deleted", name, ready, first("Pod", pod, ends));
    const size_t claimed = first(kind, name, [](const Json& c) { return !Value(c, "claim").empty(); });
    want("a Checkpoint is Ready before it is claimed", name, ready, claimed);
    if (claimed == lines.size()) continue;
    const std::string by = Value(lines[claimed], "claim");
    want("the claim comes before the gate is removed", name, claimed, first("Pod", by, [&](const Json& p) { return !gated(p); }));
    auto restore = [&](const char* outcome) {
      return first(kind, name, [&](const Json& c) {
        for (const Json& one : GetArray(c, {"restores"}))
          if (Value(one, "outcome") == outcome) return true;
        return false;
      });
    };
    const size_t started = restore("Started"), restored = restore("Restored");
    want("a restore is Started before it is Restored", name, started, restored);
    want("a restore is Started once its pod has a node", name, first("Pod", by, bound), started);
  }
  return broken;
}

}  // namespace holdfast::sim
