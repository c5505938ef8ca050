#include "reconcilers/restorepolicy/retention.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/time_format.h"
#include "reconcilers/text.h"

namespace holdfast::reconcilers::restorepolicy {
namespace {

constexpr std::string_view kKeepNames[] = {"Pinned",        "UnderWay", "HoldsPod", "Claimed",    "LastGood",  "Awaited",   "PassedOn",
                                           "PolicyMissing", "Ttl",      "KeepLast", "KeepWithin", "KeepDaily", "Diagnosis", "DryRun"};
constexpr std::string_view kDropNames[] = {"TtlOver", "Superseded", "Orphaned", "Spent", "MaxBytes", "Quota", "VolumeFull"};

// Older first. Total, so that no result depends on the order of what was seen.
bool Older(const Subject& a, const Subject& b) { return std::tie(a.at, a.ns, a.name, a.uid) < std::tie(b.at, b.ns, b.name, b.uid); }

// What is known of one subject while a plan is made.
struct Row {
  std::optional<Keep> shield;  // it goes for no reason
  Keep keep{};                 // else: what rule keeps it
  std::optional<Drop> falls;   // or, by a rule, it goes
  bool dry_run = false;        // … would go
  std::optional<Drop> drops;   // it goes
  std::optional<Drop> would;   // by maxBytes, if its policy were not on dryRun
  std::string text, limit_text;
};

class Planner {
 public:
  Planner(Seen seen, WallTime now) : seen_(std::move(seen)), now_(now) {
    plan_.subjects = std::move(seen_.subjects);
    std::sort(plan_.subjects.begin(), plan_.subjects.end(), Older);
    rows_.resize(size());
    for (size_t i = 0; i < size(); ++i) {
      if (!at(i).cut.empty()) cuts_[CutKey(at(i))].push_back(i);
      alone_.push_back({i});
    }
  }

  Plan Make() {
    NoticeOrphans();
    Protect();
    ApplyRules();
    UniteCuts();
    FindClaims();
    DropFallen();
    MeetMaxBytes();
    MeetQuotas();
    MeetVolumes();
    for (size_t i = size(); i-- > 0;) {
      if (!at(i).leaving && !rows_[i].drops) plan_.stays.push_back(StayOf(i));
    }
    std::stable_sort(plan_.stays.begin(), plan_.stays.end(), [](const Stay& a, const Stay& b) { return a.subject->ns < b.subject->ns; });
    return std::move(plan_);
  }

 private:
  size_t size() const { return plan_.subjects.size(); }
  const Subject& at(size_t i) const { return plan_.subjects[i]; }
  static std::string CutKey(const Subject& s) { return s.ns + "/" + s.cut; }
  // What stays or goes with it, and itself.
  const std::vector<size_t>& Together(size_t i) const { return at(i).cut.empty() ? alone_[i] : cuts_.at(CutKey(at(i))); }
  static std::string WithText(const Subject& s, const std::string& text) { return "with Checkpoint " + s.name + " of its cut: " + text; }
  static std::string Seat(const Subject& s) { return s.ns + "/" + s.workload; }
  static std::string PolicyText(const Subject& s) { return s.policy.empty() ? "the built-in policy" : "RestorePolicy " + s.policy; }
  const Rules* RulesOf(const Subject& s) const {
    static const Rules built_in;
    if (s.policy.empty()) return &built_in;
    auto found = seen_.policies.find(s.ns + "/" + s.policy);
    return found == seen_.policies.end() ? nullptr : &found->second;
  }
  bool Exists(const std::string& pod_uid) const { return !pod_uid.empty() && seen_.pods.contains(pod_uid); }
  // Its workload is gone, and has been for longer than it takes to make one anew.
  bool Orphan(const Subject& s) const { return !s.workload_exists && s.orphaned && now_ - *s.orphaned >= kOrphanSettles; }
  void Until(WallTime when) {
    if (when > now_ && (!plan_.next || when < *plan_.next)) plan_.next = when;
  }

  void NoticeOrphans() {
    for (const Subject& s : plan_.subjects) {
      if (s.leaving || s.under_way) continue;
      if (!s.workload_exists && !s.orphaned) plan_.orphaned.push_back(&s);
      if (s.workload_exists && s.orphaned) plan_.adopted.push_back(&s);
      if (!s.workload_exists && s.orphaned) Until(*s.orphaned + kOrphanSettles);
    }
  }

  // The newest good one of each workload that exists and of each pod that does; a pod that has none yet still has the one that it came
  // from. Subjects are oldest first, so the last one that is written down is the newest.
  std::set<size_t> LastGood() const {
    std::map<std::string, size_t> of_seat, of_pod, of_heir;
    for (size_t i = 0; i < size(); ++i) {
      const Subject& s = at(i);
      if (!s.good || s.leaving) continue;
      if (!Orphan(s)) of_seat[Seat(s)] = i;
      if (Exists(s.pod_uid)) of_pod[s.pod_uid] = i;
      if (Exists(s.heir_uid)) of_heir[s.heir_uid] = i;
    }
    std::set<size_t> last;
    for (const auto& [seat, i] : of_seat) last.insert(i);
    for (const auto& [pod, i] : of_pod) last.insert(i);
    for (const auto& [heir, i] : of_heir) {
      if (!of_pod.contains(heir)) last.insert(i);
    }
    return last;
  }

  void Protect() {
    const std::set<size_t> last = LastGood();
    for (size_t i = 0; i < size(); ++i) {
      const Subject& s = at(i);
      auto shield = [&](Keep keep, std::string text) {
        rows_[i].shield = keep;
        rows_[i].text = std::move(text);
      };
      if (s.pinned) {
        shield(Keep::kPinned, "spec.pinned");
      } else if (s.under_way) {
        shield(Keep::kUnderWay, "it is being made");
      } else if (s.holds_pod) {
        shield(Keep::kHoldsPod, s.spent ? "evictions of its pod are answered from it" : "its pod is still there, frozen");
      } else if (s.in_use) {
        shield(Keep::kClaimed, "the pod that claimed it does not run yet");
      } else if (last.contains(i)) {
        shield(Keep::kLastGood, "the last good one of " + s.workload + ", or of one of its pods");
      } else if (s.awaited) {
        shield(Keep::kAwaited, "nobody has gone on from it, and a pod may still come that does");
      }
    }
    for (const auto& [key, cut] : cuts_) {
      const auto first = std::find_if(cut.begin(), cut.end(), [&](size_t i) { return rows_[i].shield.has_value(); });
      if (first == cut.end()) continue;
      const Row by = rows_[*first];
      for (size_t i : cut) {
        if (rows_[i].shield) continue;
        rows_[i].shield = by.shield;
        rows_[i].text = WithText(at(*first), by.text);
      }
    }
  }

  // After the rules were asked about each: what one of a cut is kept by keeps the others.
  void UniteCuts() {
    for (const auto& [key, cut] : cuts_) {
      const auto kept = std::find_if(cut.begin(), cut.end(), [&](size_t i) { return !rows_[i].falls; });
      const bool dry_run = std::any_of(cut.begin(), cut.end(), [&](size_t i) { return rows_[i].dry_run; });
      for (size_t i : cut) {
        rows_[i].dry_run = rows_[i].falls && dry_run;
        if (kept == cut.end() || !rows_[i].falls) continue;
        rows_[i].falls.reset();
        rows_[i].keep = rows_[*kept].keep;
        rows_[i].text = WithText(at(*kept), rows_[*kept].text);
      }
    }
    std::erase_if(falls_, [&](size_t i) { return !rows_[i].falls; });
  }

  // What the policies' rules say of each, protected or not.
  void ApplyRules() {
    struct Series {
      int64_t count = 0;
      std::set<int64_t> days;
    };
    std::map<std::string, Series> series;
    std::map<std::string, size_t> spent;
    for (size_t i = size(); i-- > 0;) {
      const Subject& s = at(i);
      if (s.leaving || s.under_way) continue;
      if (s.broken) {
        Falls(i, Drop::kSpent, "its cut is not whole any more, so nothing can be restored from it", false);
        continue;
      }
      if (s.spent) {
        JudgeSpent(i, ++spent[Seat(s)]);
        continue;
      }
      Series& own = series[Seat(s) + (s.manual ? " manual " : " ") + (s.damaged ? "damaged " : "") +
                           (s.replica && Exists(s.pod_uid) ? s.pod_uid : "")];
      const int64_t day = std::chrono::floor<std::chrono::days>(s.at).time_since_epoch().count();
      const bool last_of_day = own.days.insert(day).second;
      Judge(i, ++own.count, last_of_day && static_cast<int64_t>(own.days.size()) <= DailyOf(s));
    }
  }
  int64_t DailyOf(const Subject& s) const {
    const Rules* rules = RulesOf(s);
    return rules != nullptr ? rules->keep_daily : 0;
  }

  void Kept(size_t i, Keep keep, std::string text) {
    rows_[i].keep = keep;
    if (!rows_[i].shield) rows_[i].text = std::move(text);
  }
  void Falls(size_t i, Drop drop, std::string text, bool dry_run) {
    if (rows_[i].shield) return;
    rows_[i].falls = drop;
    rows_[i].dry_run = dry_run;
    rows_[i].text = std::move(text);
    falls_.push_back(i);
  }

  void JudgeTtl(size_t i) {
    const Subject& s = at(i);
    const std::string ttl = FormatDuration(*s.ttl);
    if (now_ - s.at >= *s.ttl) return Falls(i, Drop::kTtl, "its ttl of " + ttl + " is over", false);
    Until(s.at + *s.ttl);
    Kept(i, Keep::kTtl, "its ttl of " + ttl + " is not over");
  }

  // `nth` of its workload, from the newest.
  void JudgeSpent(size_t i, size_t nth) {
    const Subject& s = at(i);
    if (s.ttl) return JudgeTtl(i);
    const Rules* rules = RulesOf(s);
    const std::string which =
        "the newest " + std::to_string(kSpentKept) + " failed ones of a workload are kept, for a week, for who looks for the cause";
    if (nth <= kSpentKept && now_ - s.at < kSpentFor) {
      Until(s.at + kSpentFor);
      return Kept(i, Keep::kDiagnosis, which);
    }
    Falls(i, Drop::kSpent, "only " + which, rules != nullptr && rules->dry_run);
  }

  // `nth` of its series, from the newest; `daily`: keepDaily counts it.
  void Judge(size_t i, int64_t nth, bool daily) {
    const Subject& s = at(i);
    if (s.ttl) return JudgeTtl(i);
    const Rules* rules = RulesOf(s);
    if (rules == nullptr) return Kept(i, Keep::kPolicyMissing, PolicyText(s) + " does not exist, so its rules are not known");
    if (rules->keep_within && now_ - s.at < *rules->keep_within) {
      Until(s.at + *rules->keep_within);
      return Kept(i, Keep::kKeepWithin, "retention.keepWithin " + FormatDuration(*rules->keep_within));
    }
    if (!s.workload_exists && s.orphaned) {
      const Duration keep = std::max<Duration>(rules->keep_orphans, kOrphanSettles);
      if (now_ - *s.orphaned >= keep) {
        return Falls(i, Drop::kOrphaned,
                     s.workload + " does not exist any more, and retention.keepOrphans " + FormatDuration(keep) + " is over",
                     rules->dry_run);
      }
      Until(*s.orphaned + keep);
    }
    if (nth <= rules->keep_last) return Kept(i, Keep::kKeepLast, "retention.keepLast " + std::to_string(rules->keep_last));
    if (daily) return Kept(i, Keep::kKeepDaily, "retention.keepDaily " + std::to_string(rules->keep_daily) + ", by days in UTC");
    std::string text = "no rule of " + PolicyText(s) + " keeps it: keepLast " + std::to_string(rules->keep_last);
    if (rules->keep_within) text += ", keepWithin " + FormatDuration(*rules->keep_within);
    if (rules->keep_daily > 0) text += ", keepDaily " + std::to_string(rules->keep_daily);
    Falls(i, Drop::kSuperseded, text, rules->dry_run);
  }

  // A claim tells that the state of its pod went on elsewhere; agents and later claims read it. While that pod may still run, or has
  // checkpoints that a successor could get, the claimed one stays.
  static bool Claimable(const Subject& s) { return s.good && !s.leaving && s.heir_uid.empty(); }
  void FindClaims() {
    for (const Subject& s : plan_.subjects) claimable_[s.pod_uid] += Claimable(s) ? 1 : 0;
    // Claimed ones last: they wait for the others.
    std::sort(falls_.begin(), falls_.end(),
              [&](size_t a, size_t b) { return std::pair(!at(a).heir_uid.empty(), a) < std::pair(!at(b).heir_uid.empty(), b); });
  }
  bool PassedOn(size_t i) const {
    return std::any_of(Together(i).begin(), Together(i).end(), [&](size_t one) { return PassedOnAlone(one); });
  }
  bool PassedOnAlone(size_t i) const {
    const Subject& s = at(i);
    return !s.heir_uid.empty() && (Exists(s.pod_uid) || claimable_.at(s.pod_uid) > 0);
  }
  bool MayGo(size_t i) const { return !at(i).leaving && !rows_[i].shield && !rows_[i].drops && !PassedOn(i); }

  void DropIt(size_t i, Drop drop, const std::string& text) {
    for (size_t one : Together(i)) {
      rows_[one].drops = drop;
      plan_.drops.push_back({&at(one), drop, one == i ? text : WithText(at(i), text)});
      if (Claimable(at(one))) --claimable_[at(one).pod_uid];
    }
  }
  void DropFallen() {
    for (size_t before = SIZE_MAX; before != plan_.drops.size();) {  // what goes may be what a claimed one of a cut waited for
      before = plan_.drops.size();
      for (size_t i : falls_) {
        if (!rows_[i].dry_run && MayGo(i)) DropIt(i, *rows_[i].falls, rows_[i].text);
      }
    }
  }

  // Those that may go first, first; `has`: which of them the limit is about.
  template <class Has>
  std::vector<size_t> LeastValuable(Has has) const {
    std::vector<size_t> order;
    for (size_t i = 0; i < size(); ++i) {
      if (!at(i).leaving && has(at(i))) order.push_back(i);
    }
    auto worth = [&](size_t i) { return at(i).spent ? 0 : Orphan(at(i)) ? 1 : 2; };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return worth(a) < worth(b); });
    return order;
  }
  int64_t Bytes(const std::vector<size_t>& order) const {
    return std::accumulate(order.begin(), order.end(), int64_t{0},
                           [&](int64_t sum, size_t i) { return rows_[i].drops ? sum : sum + at(i).bytes; });
  }
  // Drops of `order`, from its begin, until nothing is over() the limit any more.
  template <class Over>
  void DropUntil(const std::vector<size_t>& order, Drop limit, const std::string& text, Over over) {
    int64_t left = over();
    for (size_t n = 0; n < order.size() && left > 0;) {
      const size_t i = order[n++];
      if (!MayGo(i)) continue;
      DropIt(i, limit, text);
      DropFallen();
      left = over();
      const auto& gone = Together(i);
      if (std::any_of(gone.begin(), gone.end(), [&](size_t one) { return Claimable(at(one)) && claimable_[at(one).pod_uid] == 0; }))
        n = 0;  // a claimed one that was passed over may go now
    }
  }

  void MeetMaxBytes() {
    for (const auto& [key, rules] : seen_.policies) {
      if (rules.max_bytes == 0) continue;
      const auto order = LeastValuable([&, &key = key](const Subject& s) { return !s.policy.empty() && s.ns + "/" + s.policy == key; });
      const std::string text = "the checkpoints of RestorePolicy " + key.substr(key.find('/') + 1) + " take more than its maxBytes " +
                               FormatBytes(rules.max_bytes) + ", and of those that may go it is the least valuable";
      auto over = [&, &rules = rules] { return Bytes(order) - rules.max_bytes; };
      if (rules.dry_run) {
        WouldDrop(order, rules.max_bytes, text);
        continue;
      }
      DropUntil(order, Drop::kMaxBytes, text, over);
      if (over() > 0) plan_.unmet.push_back({Drop::kMaxBytes, key.substr(0, key.find('/')), key.substr(key.find('/') + 1), "", over()});
    }
  }
  void WouldDrop(const std::vector<size_t>& order, int64_t max_bytes, const std::string& text) {
    int64_t left = 0;
    for (size_t i : order) left += rows_[i].falls && !PassedOn(i) ? 0 : at(i).bytes;
    for (size_t i : order) {
      if (left <= max_bytes) return;
      if (rows_[i].falls || !MayGo(i)) continue;
      rows_[i].would = Drop::kMaxBytes;
      rows_[i].limit_text = text;
      left -= at(i).bytes;
    }
  }

  void MeetQuotas() {
    for (const auto& [ns, quota] : seen_.quotas) {
      const auto order = LeastValuable([&, &ns = ns](const Subject& s) { return s.ns == ns; });
      auto over = [&, quota = quota] { return Bytes(order) - quota; };
      DropUntil(order, Drop::kQuota,
                "the checkpoints of namespace " + ns + " take more than its quota " + FormatBytes(quota) +
                    ", and of those that may go it is the least valuable",
                over);
      if (over() > 0) plan_.unmet.push_back({Drop::kQuota, ns, "", "", over()});
    }
  }

  // Of a volume that is too full only what is on it helps.
  void MeetVolumes() {
    for (const auto& [store, excess_bytes] : seen_.excess_bytes) {
      if (excess_bytes <= 0) continue;
      auto here = [&, &store = store](const Subject& s) { return s.store == store; };
      int64_t gone = 0;
      for (size_t i = 0; i < size(); ++i) gone += here(at(i)) && (at(i).leaving || rows_[i].drops) ? at(i).bytes : 0;
      const auto order = LeastValuable(here);
      const std::string text = "the volume of store \"" + store + "\" is above its high mark, and of what may go it is the least valuable";
      const int64_t all = Bytes(order) + gone;
      auto over = [&, excess = excess_bytes] { return excess - (all - Bytes(order)); };
      DropUntil(order, Drop::kVolume, text, over);
      if (over() > 0) plan_.unmet.push_back({Drop::kVolume, "", "", store, over()});
    }
  }

  Stay StayOf(size_t i) const {
    const Row& row = rows_[i];
    Stay stay{&at(i), row.keep, row.text, std::nullopt, ""};
    if (row.shield) {
      stay.keep = *row.shield;
    } else if (PassedOn(i)) {
      stay.keep = Keep::kPassedOn;
      stay.text = "a pod went on from it, and that must not be forgotten while its own pod is there, or has others that could be restored";
    } else if (row.falls || row.would) {
      stay.keep = Keep::kDryRun;
      stay.would = row.falls ? *row.falls : *row.would;
      stay.text = "retention.dryRun";
      stay.would_text = row.falls ? row.text : row.limit_text;
    }
    return stay;
  }

  Seen seen_;
  const WallTime now_;
  Plan plan_;
  std::vector<Row> rows_;  // of plan_.subjects
  std::map<std::string, std::vector<size_t>> cuts_;
  std::vector<std::vector<size_t>> alone_;
  std::vector<size_t> falls_;             // by rules, in the order in which they go
  std::map<std::string, int> claimable_;  // by pod: checkpoints that a successor could get
};

}  // namespace

std::string_view KeepName(Keep keep) { return kKeepNames[static_cast<size_t>(keep)]; }
std::string_view DropName(Drop drop) { return kDropNames[static_cast<size_t>(drop)]; }

Plan MakePlan(Seen seen, WallTime now) { return Planner(std::move(seen), now).Make(); }

int64_t Excess(const VolumeUse& use, const VolumeMarks& marks, bool emptying) {
  const double size = static_cast<double>(use.packs) + static_cast<double>(use.room);
  const double live = static_cast<double>(use.live);
  if (marks.high_percent <= 0 || live <= size * (emptying ? marks.low_percent : marks.high_percent) / 100) return 0;
  return static_cast<int64_t>(live - size * marks.low_percent / 100);
}

}  // namespace holdfast::reconcilers::restorepolicy
