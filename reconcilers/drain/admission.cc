#include "reconcilers/drain/admission.h"

#include <algorithm>

namespace holdfast::reconcilers::drain {
namespace {

bool Covers(const PodDisruptionBudget& budget, const Seat& seat) {
  return seat.pod && seat.pod->meta.ns == budget.meta.ns && budget.selector.Matches(seat.pod->meta.labels);
}

// The budget that has no slot left for `seat`. A frozen pod that failed its probes is counted twice, by the budget and by us: that only
// waits longer.
const PodDisruptionBudget* FullBudget(const Seat& seat, const Traffic& traffic) {
  for (const PdbPtr& budget : traffic.budgets) {
    if (!Covers(*budget, seat)) continue;
    const int64_t taken = std::count_if(traffic.granted.begin(), traffic.granted.end(), [&](const Seat& other) {
      return other.checkpoint->meta.uid != seat.checkpoint->meta.uid && Covers(*budget, other);
    });
    if (budget->disruptions_allowed - taken <= 0) return budget.get();
  }
  return nullptr;
}

// Higher priority first, then who asked first.
bool Before(const Seat& a, const Seat& b) {
  if (a.pod->priority != b.pod->priority) return a.pod->priority > b.pod->priority;
  const WallTime at_a = CreatedAt(*a.checkpoint), at_b = CreatedAt(*b.checkpoint);
  return at_a != at_b ? at_a < at_b : a.checkpoint->meta.Key() < b.checkpoint->meta.Key();
}

bool OnNodeOf(const Seat& seat, const Seat& other) {
  return other.pod && other.pod->node_name == seat.pod->node_name && other.checkpoint->meta.uid != seat.checkpoint->meta.uid;
}

// Whether the last place of its node is kept from `seat` for another namespace's pods that wait there: a tenant with many pods, or slow
// ones and long deadlines, does not hold up the drain of all others.
bool LeavesThePlace(const Seat& seat, const Traffic& traffic) {
  auto of_namespace = [&](const Seat& other) { return OnNodeOf(seat, other) && other.pod->meta.ns == seat.pod->meta.ns; };
  const auto held = std::count_if(traffic.granted.begin(), traffic.granted.end(), of_namespace);
  if (held < std::max(1, traffic.max_per_node - 1)) return false;
  return std::any_of(traffic.waiting.begin(), traffic.waiting.end(), [&](const Seat& other) {
    return OnNodeOf(seat, other) && other.pod->meta.ns != seat.pod->meta.ns && other.pod->phase == "Running" &&
           FullBudget(other, traffic) == nullptr;
  });
}

// Of one that was granted: it ends, one way or the other. (An agent that is gone ends nothing.)
bool GetsOn(const Seat& seat, WallTime now) { return seat.checkpoint->done() || now < WaitedForUntil(*seat.checkpoint); }

}  // namespace

checkpoint::Admission Admit(const Seat& me, const Traffic& traffic) {
  checkpoint::Admission answer;
  if (const PodDisruptionBudget* full = FullBudget(me, traffic)) {
    answer.budget = true;
    answer.waits_for = "PodDisruptionBudget " + full->meta.Key() + " allows no disruption now";
    return answer;
  }
  auto here = [&](const Seat& seat) { return OnNodeOf(me, seat); };
  const auto busy = std::count_if(traffic.granted.begin(), traffic.granted.end(), here);
  const auto stuck = std::count_if(traffic.granted.begin(), traffic.granted.end(),
                                   [&](const Seat& seat) { return here(seat) && !GetsOn(seat, traffic.now); });
  const auto ahead = std::count_if(traffic.waiting.begin(), traffic.waiting.end(), [&](const Seat& seat) {
    return here(seat) && Before(seat, me) && seat.pod->phase == "Running" && FullBudget(seat, traffic) == nullptr &&
           !LeavesThePlace(seat, traffic);
  });
  if (LeavesThePlace(me, traffic)) {
    answer.waits_for = "namespace " + me.pod->meta.ns + " has all but one of the " + std::to_string(traffic.max_per_node) +
                       " checkpoints under way on node " + me.pod->node_name + ", and pods of other namespaces wait there";
    answer.queued = stuck < traffic.max_per_node;
    return answer;
  }
  if (busy + ahead >= traffic.max_per_node) {
    answer.waits_for = std::to_string(busy) + " of at most " + std::to_string(traffic.max_per_node) +
                       " checkpoints are under way on node " + me.pod->node_name +
                       (ahead > 0 ? ", " + std::to_string(ahead) + " wait before it" : "");
    answer.queued = stuck < traffic.max_per_node;
    return answer;
  }
  answer.granted = true;
  return answer;
}

}  // namespace holdfast::reconcilers::drain
