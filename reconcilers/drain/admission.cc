#include "reconcilers/drain/admission.h"

#include <algorithm>
#include <map>
#include <set>

#include "reconcilers/drain/pace.h"
#include "reconcilers/text.h"

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

// Of one that was granted: it ends, one way or the other. (An agent that is gone ends nothing.)
bool GetsOn(const Seat& seat, WallTime now) { return seat.checkpoint->done() || now < WaitedForUntil(*seat.checkpoint); }

// How many places of the node of `me` each namespace has, and had of late.
std::map<std::string, int> PlacesOf(const Seat& me, const Traffic& traffic) {
  std::map<std::string, int> places;
  std::set<std::string> counted;
  for (const Seat& seat : traffic.granted) {
    if (OnNodeOf(me, seat) && counted.insert(seat.checkpoint->meta.uid).second) ++places[seat.pod->meta.ns];
  }
  for (const CheckpointPtr& c : traffic.done_here) {
    const auto began = ParseTime(c->status.started_at);
    if (began && traffic.now - *began < kPaceIsOf && counted.insert(c->meta.uid).second) ++places[c->meta.ns];
  }
  return places;
}

// Those that wait on the node of `me` and could be frozen, `me` with them, in the order of their turns: a namespace after the other, by the
// places that each has had; within one the highest priority first. So neither many pods nor high priorities of one tenant hold up those of
// another.
std::vector<Seat> InOrder(const Seat& me, const Traffic& traffic) {
  std::map<std::string, int> places = PlacesOf(me, traffic);
  std::vector<Seat> waiting = {me};
  for (const Seat& seat : traffic.waiting) {
    if (OnNodeOf(me, seat) && seat.pod->phase == "Running" && FullBudget(seat, traffic) == nullptr) waiting.push_back(seat);
  }
  std::sort(waiting.begin(), waiting.end(), Before);
  std::vector<std::pair<int, Seat>> rounds;
  for (Seat& seat : waiting) {
    const int round = places[seat.pod->meta.ns]++;
    rounds.emplace_back(round, std::move(seat));
  }
  std::stable_sort(rounds.begin(), rounds.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  waiting.clear();
  for (auto& [round, seat] : rounds) waiting.push_back(std::move(seat));
  return waiting;
}

// Coarse, so that it is not written anew all the time.
Duration Rounded(Duration about) {
  const Duration step = about < std::chrono::minutes(2) ? Duration(std::chrono::seconds(10)) : Duration(std::chrono::minutes(1));
  return (about / step + 1) * step;
}

std::string Others(int64_t count) { return std::to_string(count) + (count == 1 ? " waits" : " wait") + " before it"; }

}  // namespace

checkpoint::Admission Admit(const Seat& me, const Traffic& traffic) {
  checkpoint::Admission answer;
  if (const PodDisruptionBudget* full = FullBudget(me, traffic)) {
    answer.budget = true;
    answer.waits_for = "PodDisruptionBudget " + full->meta.Key() + " allows no disruption now";
    return answer;
  }
  const Pace pace = PaceOf(traffic.done_here, traffic.now);
  int64_t busy = 0, stuck = 0, own = 0, bytes = 0;
  std::vector<Load> load;
  const Duration time = std::min(me.checkpoint->spec.deadline, traffic.longest);
  const auto expected = [&](const Seat& seat) { return seat.bytes > 0 ? seat.bytes : pace.usual_bytes; };
  for (const Seat& seat : traffic.granted) {
    if (!OnNodeOf(me, seat)) continue;
    ++busy;
    own += seat.pod->meta.ns == me.pod->meta.ns ? 1 : 0;
    const bool gets_on = GetsOn(seat, traffic.now);
    stuck += gets_on ? 0 : 1;
    if (seat.checkpoint->done() || !gets_on) continue;
    const bool begins = seat.checkpoint->status.phase == api::Phase::kPending;  // granted a moment ago
    load.push_back({BytesLeftOf(*seat.checkpoint, expected(seat)), begins ? time : DeadlineOf(*seat.checkpoint) - traffic.now});
    bytes += load.back().bytes_left;
  }
  int64_t ahead = 0, before_it = 0;
  bool others = false;
  for (const Seat& seat : InOrder(me, traffic)) {
    if (seat.checkpoint->meta.uid == me.checkpoint->meta.uid) break;
    ++ahead;
    before_it += BytesOf(*seat.checkpoint, expected(seat));
    others = others || seat.pod->meta.ns != me.pod->meta.ns;
  }
  const std::string& node = me.pod->node_name.str();
  if (busy + ahead < traffic.max_per_node && Fits(load, before_it, BytesOf(*me.checkpoint, expected(me)), time, pace.bytes_per_second)) {
    answer.granted = true;
    answer.most = traffic.longest;
    return answer;
  }
  answer.queued = stuck < traffic.max_per_node;
  answer.position = ahead + 1;
  const Duration about = std::chrono::seconds((bytes + before_it) / pace.bytes_per_second);
  if (pace.measured) answer.about = Rounded(about);
  if (others && own >= std::max(1, traffic.max_per_node - 1)) {
    answer.waits_for = "namespace " + me.pod->meta.ns + " has all but one of the " + std::to_string(traffic.max_per_node) +
                       " checkpoints under way on node " + node + ", and pods of other namespaces wait there";
  } else if (busy + ahead < traffic.max_per_node) {
    answer.waits_for = "node " + node + " stores " + (pace.measured ? "about " : "no less than ") + FormatBytes(pace.bytes_per_second) +
                       " a second, and " + (pace.measured ? "could" : "at that could") + " not store it beside the " +
                       std::to_string(busy + ahead) + " before it by their deadlines";
  } else {
    answer.waits_for = std::to_string(busy) + " of at most " + std::to_string(traffic.max_per_node) +
                       " checkpoints are under way on node " + node + (ahead > 0 ? ", " + Others(ahead) : "");
  }
  if (answer.about) answer.waits_for += "; its turn comes in about " + FormatDuration(*answer.about);
  return answer;
}

}  // namespace holdfast::reconcilers::drain
