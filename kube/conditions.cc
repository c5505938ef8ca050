#include "kube/conditions.h"

#include <algorithm>
#include <cstring>

#include "base/time_format.h"
#include "kube/utf8.h"

namespace holdfast::kube {
namespace {

// Limits of metav1.Condition.
constexpr size_t kMaxTypeBytes = 316;
constexpr size_t kMaxReasonBytes = 1024;
constexpr size_t kMaxMessageBytes = 32768;

auto At(const std::vector<Condition>& conditions, std::string_view type) {
  return std::find_if(conditions.begin(), conditions.end(), [&](const Condition& c) { return c.type == type; });
}

// ^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$
std::string FitReason(std::string_view reason) {
  std::string fit;
  for (char c : reason) {
    const bool letter = isalpha(static_cast<unsigned char>(c)) != 0;
    const bool later = isdigit(static_cast<unsigned char>(c)) != 0 || c == '_' || c == ',' || c == ':';
    if (fit.size() < kMaxReasonBytes && (letter || (later && !fit.empty()))) fit += c;
  }
  while (!fit.empty() && (fit.back() == ',' || fit.back() == ':')) fit.pop_back();
  return fit.empty() ? "Unknown" : fit;
}

Condition Fit(Condition c) {
  c.type = c.type.substr(0, kMaxTypeBytes);
  if (c.status != "True" && c.status != "False") c.status = "Unknown";
  c.reason = FitReason(c.reason.view());
  c.message = Clip(c.message, kMaxMessageBytes);
  return c;
}

bool EqualWithoutCase(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

Condition Condition::FromJson(const Json& json) {
  return {GetString(json, {"type"}),
          GetString(json, {"status"}),
          GetString(json, {"reason"}),
          GetString(json, {"message"}),
          GetString(json, {"lastTransitionTime"}),
          GetInt(json, {"observedGeneration"})};
}

void Condition::Share(StringPool* pool) {
  for (SharedString* text : {&type, &status, &reason, &last_transition_time}) pool->Share(text);
}

Json ToJson(const Condition& condition) {
  return {{"type", condition.type},
          {"status", condition.status},
          {"reason", condition.reason},
          {"message", condition.message},
          {"lastTransitionTime", condition.last_transition_time},
          {"observedGeneration", condition.observed_generation}};
}

Json ToJson(const std::vector<Condition>& conditions) {
  Json json = Json::array();
  for (const Condition& condition : conditions) json.push_back(ToJson(condition));
  return json;
}

const Condition* FindCondition(const std::vector<Condition>& conditions, std::string_view type) {
  auto found = At(conditions, type);
  return found == conditions.end() ? nullptr : &*found;
}

bool SetCondition(std::vector<Condition>& conditions, Condition wanted, WallTime now) {
  wanted = Fit(std::move(wanted));
  auto found = conditions.begin() + (At(conditions, wanted.type) - conditions.begin());
  const bool same_status = found != conditions.end() && found->status == wanted.status;
  if (same_status && !found->last_transition_time.empty()) {
    wanted.last_transition_time = found->last_transition_time;
  } else if (wanted.last_transition_time.empty()) {
    wanted.last_transition_time = FormatTime(now);
  }
  if (found == conditions.end()) {
    conditions.push_back(std::move(wanted));
    return true;
  }
  const bool changed = !same_status || found->reason != wanted.reason || found->message != wanted.message ||
                       found->observed_generation != wanted.observed_generation;
  *found = std::move(wanted);
  return changed;
}

bool RemoveCondition(std::vector<Condition>& conditions, std::string_view type) {
  return std::erase_if(conditions, [&](const Condition& c) { return c.type == type; }) > 0;
}

bool IsCondition(const std::vector<Condition>& conditions, std::string_view type, std::string_view status, int64_t generation) {
  auto found = std::find_if(conditions.begin(), conditions.end(), [&](const Condition& c) { return EqualWithoutCase(c.type, type); });
  if (found == conditions.end() || !EqualWithoutCase(found->status, status)) return false;
  return found->observed_generation == 0 || found->observed_generation >= generation;
}

}  // namespace holdfast::kube
