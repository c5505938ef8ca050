#include "tests/sim/shrink.h"

#include <algorithm>

namespace holdfast::sim {
namespace {

class Shrinker {
 public:
  Shrinker(Plan plan, const Verdict& found, int tries, const std::function<Verdict(const Plan&)>& play,
           const std::function<void(const std::string&)>& say)
      : best_(std::move(plan)), found_(found), rule_(found.Rule()), left_(tries), play_(play), say_(say) {}

  Plan Run() {
    if (!best_.at.empty()) return FewerSteps();
    best_.only = std::set<int>(found_.faults.begin(), found_.faults.end());
    if (!StillBreaks(best_)) return best_;  // the same plan, said otherwise
    for (size_t before = 0; before != Size() && left_ > 0;) {
      before = Size();
      FewerDrains();
      FewerFaults();
      FewerPods();
    }
    return best_;
  }

 private:
  size_t Size() const { return best_.only->size() + static_cast<size_t>(best_.drains + best_.pods); }

  // Keeps `plan` if it breaks the same rule.
  bool StillBreaks(const Plan& plan) {
    if (left_ <= 0) return false;
    --left_;
    const Verdict verdict = play_(plan);
    if (verdict.Rule() != rule_) return false;
    best_ = plan;
    found_ = verdict;
    if (best_.at.empty()) best_.only = std::set<int>(verdict.faults.begin(), verdict.faults.end());
    say_(PlanText(best_));
    return true;
  }

  // Of a plan by places, what nothing hangs on.
  Plan FewerSteps() {
    for (size_t i = best_.at.size(); i > 0 && best_.at.size() > 1; --i) {
      Plan plan = best_;
      plan.at.erase(plan.at.begin() + static_cast<std::ptrdiff_t>(i - 1));
      (void)StillBreaks(plan);
    }
    FewerPods();
    return best_;
  }

  void FewerDrains() {
    Plan plan = best_;
    plan.drains = std::min(found_.drains, best_.drains - 1);
    while (plan.drains >= 0 && StillBreaks(plan)) {
      plan = best_;
      --plan.drains;
    }
  }

  void FewerPods() {
    for (Plan plan = best_; plan.pods > 1;) {
      plan.pods = plan.pods > 3 ? plan.pods / 2 : plan.pods - 1;
      if (!StillBreaks(plan)) return;
    }
  }

  // Without the latter half, without the first, without quarters, … without each.
  void FewerFaults() {
    for (size_t part = (best_.only->size() + 1) / 2; part > 0; part = part == 1 ? 0 : (part + 1) / 2) {
      for (size_t from = 0; from < best_.only->size();) {
        const std::vector<int> all(best_.only->rbegin(), best_.only->rend());
        Plan plan = best_;
        for (size_t i = from; i < std::min(all.size(), from + part); ++i) plan.only->erase(all[i]);
        if (!StillBreaks(plan)) from += part;
      }
    }
  }

  Plan best_;
  Verdict found_;
  const std::string rule_;
  int left_;
  const std::function<Verdict(const Plan&)>& play_;
  const std::function<void(const std::string&)>& say_;
};

}  // namespace

Plan Shrink(Plan plan, const Verdict& found, int tries, const std::function<Verdict(const Plan&)>& play,
            const std::function<void(const std::string&)>& say) {
  return Shrinker(std::move(plan), found, tries, play, say).Run();
}

}  // namespace holdfast::sim
