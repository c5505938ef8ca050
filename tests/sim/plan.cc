#include <cstdlib>
#include <sstream>

#include "tests/sim/world.h"

namespace holdfast::sim {
namespace {

std::set<int> Numbers(const std::string& text) {
  std::set<int> numbers;
  std::stringstream in(text);
  for (std::string one; std::getline(in, one, ',');) numbers.insert(std::atoi(one.c_str()));
  return numbers;
}

}  // namespace

std::string PlanText(const Plan& plan) {
  const Plan usual;
  std::string text = "seed=" + std::to_string(plan.seed);
  auto add = [&](const char* name, int value, int as_always) {
    if (value != as_always) text += std::string(" ") + name + "=" + std::to_string(value);
  };
  add("nodes", plan.nodes, usual.nodes);
  add("pods", plan.pods, usual.pods);
  add("drains", plan.drains, usual.drains);
  add("mib", plan.mib, usual.mib);
  add("pace", plan.pace, usual.pace);
  add("faults", static_cast<int>(plan.faults), static_cast<int>(usual.faults));
  add("kinds", plan.kinds, usual.kinds);
  add("world", plan.world, usual.world);
  if (plan.real_store) text += " store=real";
  if (!plan.only) return text;
  text += " only=";
  for (const int number : *plan.only) text += (text.back() == '=' ? "" : ",") + std::to_string(number);
  return text;
}

std::optional<Plan> ParsePlan(const std::string& text) {
  Plan plan;
  std::stringstream in(text);
  for (std::string word; in >> word;) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) return std::nullopt;
    const std::string name = word.substr(0, equals), value = word.substr(equals + 1);
    const int number = std::atoi(value.c_str());
    if (name == "seed") {
      plan.seed = std::strtoull(value.c_str(), nullptr, 10);
    } else if (name == "nodes" && number > 1) {
      plan.nodes = number;
    } else if (name == "pods" && number > 0) {
      plan.pods = number;
    } else if (name == "drains" && number >= 0) {
      plan.drains = number;
    } else if (name == "mib" && number > 0) {
      plan.mib = number;
    } else if (name == "pace" && number > 0) {
      plan.pace = number;
    } else if (name == "faults" && number >= 0) {
      plan.faults = number;
    } else if (name == "kinds" && number > 0 && number <= kAllKinds) {
      plan.kinds = number;
    } else if (name == "world" && number >= 0 && number <= kAllWorlds) {
      plan.world = number;
    } else if (name == "store" && (value == "real" || value == "model")) {
      plan.real_store = value == "real";
    } else if (name == "only") {
      plan.only = Numbers(value);
    } else {
      return std::nullopt;
    }
  }
  return plan;
}

}  // namespace holdfast::sim
