#include <cstdlib>
#include <regex>
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

// "PLACE[@WORKLOAD]:NTH[+SECONDS or +MILLISECONDSms]:FAULT[:AMOUNT]", with commas.
bool ReadSteps(const std::string& text, std::vector<Step>* steps) {
  static const std::regex kStep(R"(([A-Za-z.]+)(?:@([a-z0-9-]+))?:(\d{1,4})(?:\+(\d{1,5})(ms)?)?:([a-z-]+)(?::(-?\d{1,5}))?)");
  std::stringstream in(text);
  for (std::string one; std::getline(in, one, ',');) {
    std::smatch is;
    if (!std::regex_match(one, is, kStep) || !IsFault(is[6])) return false;
    auto number = [&](size_t part) { return std::atoi(is.str(part).c_str()); };
    const Duration after = std::chrono::milliseconds(number(4)) * (is[5].matched ? 1 : 1000);
    steps->push_back({is[1], is[2], number(3), after, is[6], number(7)});
  }
  return !steps->empty();
}

}  // namespace

std::string StepText(const Step& step) {
  std::string text = step.place + (step.workload.empty() ? "" : "@" + step.workload) + ":" + std::to_string(step.nth);
  const auto ms = step.after / std::chrono::milliseconds(1);
  if (ms != 0) text += "+" + (ms % 1000 == 0 ? std::to_string(ms / 1000) : std::to_string(ms) + "ms");
  text += ":" + step.fault;
  return step.amount == 0 ? text : text + ":" + std::to_string(step.amount);
}

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
  for (const Step& step : plan.at) text += (&step == plan.at.data() ? " at=" : ",") + StepText(step);
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
    } else if (name == "at") {
      if (!ReadSteps(value, &plan.at)) return std::nullopt;
    } else if (name == "only") {
      plan.only = Numbers(value);
    } else {
      return std::nullopt;
    }
  }
  return plan;
}

}  // namespace holdfast::sim
