// {"selector": a label selector, "labels": the labels}: reading and matching, and that NotIn and In of the same values exclude each other.
#include "api/restore_policy.h"

using namespace holdfast;  // NOLINT(google-build-using-namespace)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto json = ParseJson({reinterpret_cast<const char*>(data), size});
  if (!json.ok()) return 0;
  api::LabelSelector selector = api::LabelSelector::FromJson(Find(*json, {"selector"}));
  std::map<std::string, std::string> labels;
  for (const auto& [key, value] : GetObject(*json, {"labels"}).items()) {
    if (value.is_string()) labels[key] = value.get<std::string>();
  }
  if (selector.Matches(labels) && !selector.present) __builtin_trap();
  for (const api::SelectorRequirement& requirement : selector.match_expressions) {
    if (requirement.op != "In" && requirement.op != "NotIn") continue;
    api::LabelSelector in, not_in;
    in.present = not_in.present = true;
    in.match_expressions = {{requirement.key, "In", requirement.values}};
    not_in.match_expressions = {{requirement.key, "NotIn", requirement.values}};
    if (in.Matches(labels) && not_in.Matches(labels)) __builtin_trap();
  }
  return 0;
}
