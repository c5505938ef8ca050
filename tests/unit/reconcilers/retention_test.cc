#include "reconcilers/restorepolicy/retention.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/reconcilers/world.h"

namespace holdfast::reconcilers::restorepolicy {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using testing::kStart;

constexpr int64_t kGib = 1LL << 30;
const WallTime kNow = kStart + hours(24 * 100);  // 12:00 UTC

// A good one of Deployment web, of pod "pod", of 1 GiB, made so long ago.
Subject Made(const std::string& name, Duration ago, void (*change)(Subject*) = nullptr) {
  Subject s;
  s.ns = "default";
  s.name = s.uid = name;
  s.store = "default";
  s.policy = "p";
  s.workload = "Deployment/web";
  s.pod_uid = "pod";
  s.at = kNow - ago;
  s.replica = true;
  s.bytes = kGib;
  s.good = true;
  s.workload_exists = true;
  if (change != nullptr) change(&s);
  return s;
}

Seen With(std::vector<Subject> subjects, Rules rules = {}) {
  Seen seen;
  seen.subjects = std::move(subjects);
  seen.policies["default/p"] = std::move(rules);
  seen.pods = {"pod"};
  return seen;
}

std::vector<std::string> Names(const std::vector<Removal>& removals) {
  std::vector<std::string> names;
  for (const Removal& removal : removals) names.push_back(removal.subject->name);
  return names;
}
using N = std::vector<std::string>;
N Dropped(Seen seen, WallTime now = kNow) { return Names(MakePlan(std::move(seen), now).drops); }

const Stay* StayOf(const Plan& plan, const std::string& name) {
  for (const Stay& stay : plan.stays) {
    if (stay.subject->name == name) return &stay;
  }
  return nullptr;
}
std::string WhyKept(const Plan& plan, const std::string& name) {
  const Stay* stay = StayOf(plan, name);
  return stay == nullptr ? "gone" : std::string(KeepName(stay->keep));
}

// One an hour, the newest first: "0" was made just now.
std::vector<Subject> Hourly(int count, void (*change)(Subject*) = nullptr) {
  std::vector<Subject> all;
  for (int i = 0; i < count; ++i) all.push_back(Made(std::to_string(i), hours(i) + minutes(1), change));
  return all;
}

TEST(Retention, KeepLastKeepsTheNewestOfEachSeries) {
  EXPECT_EQ(Dropped(With(Hourly(5))), (N{"4", "3"}));
  EXPECT_EQ(Dropped(With(Hourly(3))), N());
  auto two = Hourly(3);
  for (Subject s : Hourly(3)) {
    s.name = s.uid = "db" + s.name;
    s.workload = "StatefulSet/db/0";
    s.replica = false;
    two.push_back(s);
  }
  EXPECT_EQ(Dropped(With(two)), N()) << "each workload has its own three";
}

TEST(Retention, RulesAddUp) {
  Rules rules;
  rules.keep_last = 1;
  rules.keep_within = hours(2);
  EXPECT_EQ(Dropped(With(Hourly(5), rules)), (N{"4", "3", "2"})) << "0 and 1 are younger than two hours";
  rules.keep_within.reset();
  rules.keep_daily = 2;
  // At 12:00 UTC: 0 to 11 are of today, 12 to 35 of yesterday, the others of the day before.
  const N dropped = Dropped(With(Hourly(40), rules));
  EXPECT_EQ(dropped.size(), 38u);
  EXPECT_EQ(std::count(dropped.begin(), dropped.end(), "0") + std::count(dropped.begin(), dropped.end(), "12"), 0)
      << "the last one of today, and of yesterday";
}

TEST(Retention, KeepDailyCountsDaysThatHaveAny) {
  Rules rules;
  rules.keep_last = 1;
  rules.keep_daily = 2;
  EXPECT_EQ(Dropped(With({Made("new", hours(1)), Made("month", hours(24 * 30)), Made("older", hours(24 * 40))}, rules)), (N{"older"}));
}

TEST(Retention, RunningPodsOfOneWorkloadAreSeriesOfTheirOwn) {
  std::vector<Subject> all;
  for (const char* pod : {"a", "b", "gone-1", "gone-2"}) {
    for (Subject s : Hourly(2)) {
      s.name = s.uid = pod + s.name;
      s.pod_uid = pod;
      all.push_back(s);
    }
  }
  Rules rules;
  rules.keep_last = 2;
  Seen seen = With(all, rules);
  seen.pods = {"a", "b"};
  EXPECT_EQ(Dropped(seen), (N{"gone-11", "gone-21"})) << "the newest two of all pods that are gone, and two of each that runs";
}

TEST(Retention, OfPodsThatAreGoneTheNewestStay) {
  // d was restored from c's, c from b's, b from a's.
  std::vector<Subject> all;
  const char* pods[] = {"a", "b", "c", "d"};
  for (int i = 0; i < 3; ++i) {
    Subject s = Made(std::string("of-") + pods[i], hours(10 - i));
    s.pod_uid = pods[i];
    s.heir_uid = pods[i + 1];
    all.push_back(s);
  }
  Rules rules;
  rules.keep_last = 2;
  Seen seen = With(all, rules);
  seen.pods = {"d"};
  EXPECT_EQ(Dropped(seen), (N{"of-a"}));
}

TEST(Retention, WhatAUserAskedForIsCountedApart) {
  auto all = Hourly(4);
  all[3].manual = true;
  EXPECT_EQ(Dropped(With(all)), N()) << "three of a schedule, and one by hand";
}

TEST(Retention, ATtlDecidesAlone) {
  auto all = Hourly(5);
  all[4].ttl = hours(10);
  all[1].ttl = minutes(30);
  EXPECT_EQ(Dropped(With(all)), (N{"3", "1"})) << "4 would be superseded, but its ttl is not over; 1 is among the newest, but its is";
  all[0].ttl = minutes(1);
  EXPECT_EQ(WhyKept(MakePlan(With(all), kNow), "0"), "LastGood");
}

struct Case {
  const char* what;
  void (*change)(Subject*);
  const char* why;
};
const Case kProtected[] = {
    {"pinned", [](Subject* s) { s->pinned = true; }, "Pinned"},
    {"under way", [](Subject* s) { s->good = false, s->under_way = true; }, "UnderWay"},
    {"frozen pod", [](Subject* s) { s->holds_pod = true; }, "HoldsPod"},
    {"claimed, and its pod does not run", [](Subject* s) { s->heir_uid = "heir", s->in_use = true; }, "Claimed"},
    {"awaited", [](Subject* s) { s->awaited = true; }, "Awaited"},
    {"of another pod that exists", [](Subject* s) { s->pod_uid = "other"; }, "LastGood"},
    {"what a pod that exists came from", [](Subject* s) { s->pod_uid = "gone", s->heir_uid = "other"; }, "LastGood"},
    {"of another workload that exists", [](Subject* s) { s->pod_uid = "gone", s->workload = "StatefulSet/db/0"; }, "LastGood"},
    {"passed on by a pod that may still run", [](Subject* s) { s->heir_uid = "heir"; }, "PassedOn"},
};

TEST(Retention, NothingTakesWhatIsProtected) {
  for (const Case& c : kProtected) {
    SCOPED_TRACE(c.what);
    auto all = Hourly(6);
    c.change(&all[5]);
    Rules rules;
    rules.keep_last = 1;
    rules.max_bytes = 1;
    Seen seen = With(all, rules);
    seen.pods = {"pod", "other"};
    seen.quotas["default"] = 1;
    seen.excess_bytes["default"] = int64_t{1} << 50;
    const Plan plan = MakePlan(seen, kNow);
    EXPECT_EQ(WhyKept(plan, "5"), c.why);
    EXPECT_EQ(WhyKept(plan, "0"), "LastGood");
    EXPECT_EQ(plan.drops.size(), 4u) << "all the others";
    EXPECT_EQ(plan.unmet.size(), 3u);
  }
}

TEST(Retention, AStateThatWentOnIsNotForgottenBeforeItsSiblings) {
  // Of a lost pod the newest was claimed, two more were not: while one of them is there, the claim has to be.
  auto all = Hourly(4);
  for (int i : {1, 2, 3}) all[i].pod_uid = "lost";
  all[1].heir_uid = "pod";
  Rules rules;
  rules.keep_last = 1;
  rules.max_bytes = kGib;
  Seen seen = With(all, rules);
  EXPECT_EQ(Dropped(seen), (N{"3", "2", "1"})) << "the claimed one last";
  seen.subjects[3].pinned = true;
  const Plan plan = MakePlan(seen, kNow);
  EXPECT_EQ(Names(plan.drops), (N{"2"}));
  EXPECT_EQ(WhyKept(plan, "1"), "PassedOn");
}

TEST(Retention, LimitsTakeFailedOnesThenOrphansThenTheOldest) {
  auto all = Hourly(6);
  all[2].good = false;
  all[2].spent = true;
  all[3].workload = "Deployment/gone";
  all[3].pod_uid = "gone";
  all[3].workload_exists = false;
  all[3].orphaned = kNow - hours(1);
  Rules rules;
  rules.keep_last = 10;
  rules.max_bytes = 2 * kGib;
  EXPECT_EQ(Dropped(With(all, rules)), (N{"2", "3", "5", "4"}));
  rules.max_bytes = 0;
  Seen seen = With(all, rules);
  seen.quotas["default"] = 5 * kGib;
  EXPECT_EQ(Dropped(seen), (N{"2"}));
  seen.quotas.clear();
  seen.excess_bytes["default"] = 2 * kGib - 1;
  EXPECT_EQ(Dropped(seen), (N{"2", "3"}));
  seen.subjects[5].leaving = true;
  EXPECT_EQ(Dropped(seen), (N{"2"})) << "what is on its way already counts as gone";
}

TEST(Retention, AVolumeThatIsTooFullTakesOnlyWhatIsOnIt) {
  auto all = Hourly(6);
  for (size_t i = 0; i < all.size(); i += 2) all[i].store = "holdfast-store-1";
  Seen seen = With(all, {.keep_last = 100});
  seen.excess_bytes = {{"default", 0}, {"holdfast-store-1", kGib}};
  const Plan plan = MakePlan(seen, kNow);
  ASSERT_EQ(plan.drops.size(), 1u);
  EXPECT_EQ(plan.drops[0].subject->store, "holdfast-store-1");
  EXPECT_NE(plan.drops[0].text.find("holdfast-store-1"), std::string::npos) << plan.drops[0].text;
  seen.excess_bytes = {{"default", kGib}, {"holdfast-store-1", 100 * kGib}};
  const Plan both = MakePlan(seen, kNow);
  std::map<std::string, int> gone;
  for (const Removal& removal : both.drops) ++gone[removal.subject->store];
  EXPECT_EQ(gone["default"], 1) << "what the other one lacks is no matter of this one";
  ASSERT_EQ(both.unmet.size(), 1u);
  EXPECT_EQ(both.unmet[0].store, "holdfast-store-1");
  seen.excess_bytes = {{"gone-store", kGib}};
  EXPECT_TRUE(MakePlan(seen, kNow).drops.empty());
}

TEST(Retention, MaxBytesIsOfOnePolicyAndAQuotaOfOneNamespace) {
  auto all = Hourly(3);
  Subject other = Made("other", hours(50));
  other.policy = "q";
  other.workload = "Deployment/other";
  other.pod_uid = "gone";
  Subject twin = other;
  twin.name = twin.uid = "twin";
  twin.at += minutes(1);
  all.push_back(other);
  all.push_back(twin);
  Rules rules;
  rules.max_bytes = 2 * kGib;
  Seen seen = With(all, rules);
  seen.policies["default/q"] = {};
  EXPECT_EQ(Dropped(seen), (N{"2"}));
  seen.policies["default/p"].max_bytes = 0;
  seen.quotas = {{"default", 4 * kGib}, {"elsewhere", 1}};
  EXPECT_EQ(Dropped(seen), (N{"other"}));
}

TEST(Retention, OrphansAreMarkedAndThenKeptForAWhile) {
  auto change = [](Subject* s) { s->workload_exists = false, s->pod_uid = "gone"; };
  auto all = Hourly(5, change);
  Plan plan = MakePlan(With(all), kNow);
  EXPECT_EQ(plan.orphaned.size(), 5u);
  EXPECT_EQ(Names(plan.drops), (N{"4", "3"})) << "the rules hold as before";
  EXPECT_EQ(WhyKept(plan, "0"), "LastGood") << "it may be made anew at this very moment";
  for (Subject& s : all) s.orphaned = kNow;
  Rules rules;
  rules.keep_orphans = hours(24);
  rules.keep_last = 2;
  plan = MakePlan(With(all, rules), kNow + hours(23));
  EXPECT_TRUE(plan.orphaned.empty());
  EXPECT_EQ(Names(plan.drops), (N{"4", "3", "2"}));
  EXPECT_EQ(plan.next, kNow + hours(24));
  all[2].pinned = true;
  all[1].ttl = hours(48);
  rules.keep_within = hours(29);
  plan = MakePlan(With(all, rules), kNow + hours(25));
  EXPECT_EQ(Names(plan.drops), (N{"4"})) << "3 was made 28 hours before";
  for (Subject& s : all) s.workload_exists = true;
  plan = MakePlan(With(all, rules), kNow + hours(25));
  EXPECT_EQ(plan.adopted.size(), 5u) << "it was made anew";
}

TEST(Retention, AFewFailedOnesStayForAWeek) {
  auto failed = Hourly(5, [](Subject* s) { s->good = false, s->spent = true, s->bytes = 0; });
  Plan plan = MakePlan(With(failed), kNow);
  EXPECT_EQ(Names(plan.drops), (N{"4", "3"}));
  EXPECT_EQ(plan.next, failed[2].at + kSpentFor) << "when the first of them is a week old";
  EXPECT_EQ(Dropped(With(failed), kNow + hours(24 * 8)).size(), 5u);
  auto good = Hourly(3);
  for (Subject& s : good) s.name = s.uid = "good" + s.name;
  good.insert(good.end(), failed.begin(), failed.end());
  EXPECT_EQ(Dropped(With(good)), (N{"4", "3"})) << "they take no place from good ones";
}

// Hole 12: of each kind of checkpoint there is a bound without anybody's doing. (keepDaily, ttl and maxBytes have their tests above.)
TEST(Retention, NothingThatNobodyClaimsGrowsForEver) {
  struct Case {
    const char* what;
    void (*change)(Subject*);
    size_t stay;  // of a hundred, made one an hour, a month later, while the workload exists
  };
  const Case kCases[] = {
      {"drains that nobody claimed", [](Subject*) {}, 3},
      {"manual ones", [](Subject* s) { s->manual = true; }, 3},
      {"those from which a pod went on",
       [](Subject* s) {
         s->pod_uid = "gone-" + s->name;
         s->heir_uid = "heir-" + s->name;
       },
       3},
      {"of pods that are gone", [](Subject* s) { s->pod_uid = "gone-" + s->name; }, 3},
      {"failed ones, and those whose pod was thawed",
       [](Subject* s) {
         s->good = false;
         s->spent = true;
       },
       0},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.what);
    EXPECT_EQ(Dropped(With(Hourly(100, c.change)), kNow + hours(24 * 30)).size(), 100 - c.stay);
    auto orphans = Hourly(100, c.change);
    for (Subject& s : orphans) {
      s.workload_exists = false;
      s.orphaned = kNow;
    }
    Seen gone = With(std::move(orphans));
    gone.pods.clear();
    EXPECT_EQ(Dropped(std::move(gone), kNow + hours(24 * 30)).size(), 100u) << "its workload is gone";
  }
}

TEST(Retention, ADryRunOnlySaysWhatWouldGo) {
  auto all = Hourly(6);
  all[1].ttl = minutes(1);
  Rules rules;
  rules.dry_run = true;
  rules.keep_last = 4;
  rules.max_bytes = 2 * kGib;
  const Plan plan = MakePlan(With(all, rules), kNow);
  EXPECT_EQ(Names(plan.drops), (N{"1"})) << "its own ttl";
  N would;
  for (const Stay& stay : plan.stays) {
    if (stay.would) would.push_back(stay.subject->name + " " + std::string(DropName(*stay.would)));
  }
  std::sort(would.begin(), would.end());
  EXPECT_EQ(would, (N{"3 MaxBytes", "4 Superseded", "5 Superseded"}));
  Seen seen = With(all, rules);
  seen.quotas["default"] = 5 * kGib - 1;
  EXPECT_EQ(Dropped(seen), (N{"1", "5"})) << "a quota is not the policy's";
}

TEST(Retention, OfAPolicyThatIsGoneNoRuleIsKnown) {
  Seen seen = With(Hourly(5));
  seen.policies.clear();
  EXPECT_EQ(Dropped(seen), N());
  EXPECT_EQ(WhyKept(MakePlan(seen, kNow), "4"), "PolicyMissing");
  for (Subject& s : seen.subjects) s.policy.clear();
  EXPECT_EQ(Dropped(seen), (N{"4", "3"})) << "the built-in one";
}

TEST(Retention, SaysWhy) {
  Rules rules;
  rules.keep_daily = 1;
  const Plan plan = MakePlan(With(Hourly(5), rules), kNow);
  ASSERT_EQ(plan.drops.size(), 2u);
  EXPECT_EQ(plan.drops[0].text, "no rule of RestorePolicy p keeps it: keepLast 3, keepDaily 1");
  EXPECT_EQ(DropName(plan.drops[0].why), "Superseded");
  ASSERT_NE(StayOf(plan, "2"), nullptr);
  EXPECT_EQ(StayOf(plan, "2")->text, "retention.keepLast 3");
}

TEST(Retention, KnowsWhenTimeAloneChangesSomething) {
  Rules rules;
  rules.keep_last = 1;
  rules.keep_within = hours(10);
  auto all = Hourly(3);
  const Plan plan = MakePlan(With(all, rules), kNow);
  ASSERT_TRUE(plan.next);
  EXPECT_EQ(*plan.next, all[2].at + hours(10));
  EXPECT_EQ(Dropped(With(all, rules), *plan.next - minutes(1)), N());
  EXPECT_EQ(Dropped(With(all, rules), *plan.next), (N{"2"}));
}

TEST(Volume, NothingHasToGoBelowTheHighMark) {
  const VolumeMarks marks{.high_percent = 80, .low_percent = 60};
  EXPECT_EQ(Excess({.live = 80, .packs = 90, .room = 10}, marks, false), 0);
  EXPECT_EQ(Excess({.live = 81, .packs = 90, .room = 10}, marks, false), 21);
  EXPECT_EQ(Excess({.live = 70, .packs = 90, .room = 10}, marks, true), 10) << "half way down";
  EXPECT_EQ(Excess({.live = 60, .packs = 90, .room = 10}, marks, true), 0);
  EXPECT_EQ(Excess({.live = 10, .packs = 100, .room = 0}, marks, false), 0) << "what is dead is collected anyway";
  EXPECT_EQ(Excess({.live = 99, .packs = 100, .room = 0}, {.high_percent = 0, .low_percent = 0}, false), 0) << "switched off";
  EXPECT_EQ(Excess({}, marks, false), 0);
}

}  // namespace
}  // namespace holdfast::reconcilers::restorepolicy
