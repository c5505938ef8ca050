// metav1.Condition, and how a controller keeps a list of them.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "kube/shared_string.h"

namespace holdfast::kube {

struct Condition {
  SharedString type, status, reason, message, last_transition_time;
  int64_t observed_generation = 0;
  static Condition FromJson(const Json& json);
  void Share(StringPool* pool);  // for caches: stores what other objects have too only once
};
Json ToJson(const Condition& condition);

// The condition of `type`, or nullptr.
const Condition* FindCondition(const std::vector<Condition>& conditions, std::string_view type);

// Puts `wanted` into the list in the place of the one of its type, or at the end. last_transition_time moves to `now` only when the status
// changed, and is `wanted`'s own where that is set. What the API would refuse is made fit: a status other than True and False is Unknown, a
// reason is reduced to what is allowed there and never empty, a message is cut. True when anything changed, so that there is something to
// write.
bool SetCondition(std::vector<Condition>& conditions, Condition wanted, WallTime now);
// True when there was one.
bool RemoveCondition(std::vector<Condition>& conditions, std::string_view type);

// As `kubectl wait` sees it: the status is `status` (compared without case) and speaks of this generation, or says no generation.
bool IsCondition(const std::vector<Condition>& conditions, std::string_view type, std::string_view status, int64_t generation);

Json ToJson(const std::vector<Condition>& conditions);

}  // namespace holdfast::kube
