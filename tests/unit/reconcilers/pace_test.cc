// Holes 5 and 11: what a node can store by its deadlines, and whose turn it is. A drain that waits is told so.
#include <gtest/gtest.h>

#include "reconcilers/drain/admission.h"
#include "reconcilers/drain/pace.h"
#include "tests/unit/reconcilers/world.h"

namespace holdfast::reconcilers::drain {
namespace {

using api::Phase;
using std::chrono::seconds;
using namespace reconcilers::testing;  // NOLINT(google-build-using-namespace)

constexpr int64_t kMiB = int64_t{1} << 20;

// Of a pod of so many MiB, of which so many are stored.
CheckpointPtr Storing(int from, int64_t mib, int64_t stored, const std::string& pod = "web-a") {
  api::Checkpoint c = InPhase(Phase::kStoring, pod, "uid-" + pod);
  c.status.started_at = FormatTime(At(from));
  c.status.deadline_at = FormatTime(At(from + 100));
  c.status.progress_total = mib * kMiB;
  c.status.progress_bytes = stored * kMiB;
  return Share(c);
}

CheckpointPtr Stored(int from, int until, int64_t mib) {
  api::Checkpoint c = InPhase(Phase::kReady);
  c.status.started_at = FormatTime(At(from));
  c.status.completed_at = FormatTime(At(until));
  c.status.memory_bytes = mib * kMiB;
  return Share(c);
}

TEST(Pace, IsWhatTheNodeDidOfLate) {
  struct Case {
    const char* what;
    std::vector<CheckpointPtr> done;
    int64_t mib;  // a second
    bool measured;
  };
  for (const Case& c : {
           Case{"nothing is known", {}, kUnknownPace / kMiB, false},
           {"one after the other", {Stored(0, 20, 400), Stored(20, 40, 400)}, 20, true},
           {"at a time", {Stored(0, 20, 400), Stored(0, 20, 400)}, 40, true},
           {"with a pause", {Stored(0, 20, 400), Stored(60, 80, 400)}, 20, true},
           {"one that is under way", {Storing(80, 4000, 200)}, 10, true},
           {"too short to tell how slow it is", {Stored(0, 3, 3)}, kUnknownPace / kMiB, false},
           {"at least so fast", {Stored(0, 3, 30)}, 10, false},
           {"one that has just begun, and gets on", {Storing(95, 4000, 500)}, 100, false},
           {"one that has just begun", {Storing(95, 4000, 0)}, kUnknownPace / kMiB, false},
           {"so fast that more can be told", {Stored(0, 3, 600)}, 200, false},
           {"the store was away, and is there again", {Stored(0, 60, 60), Stored(60, 63, 60)}, 20, true},
           {"it was faster before", {Stored(0, 3, 600), Stored(3, 43, 400)}, 10, true},
           {"long ago", {Stored(-1000, -900, 100)}, kUnknownPace / kMiB, false},
           {"one that is just being dumped", {Share(InPhase(Phase::kDumping))}, kUnknownPace / kMiB, false},
       }) {
    const Pace pace = PaceOf(c.done, At(100));
    EXPECT_EQ(pace.bytes_per_second / kMiB, c.mib) << c.what;
    EXPECT_EQ(pace.measured, c.measured) << c.what;
  }
  EXPECT_EQ(PaceOf({}, At(0)).usual_bytes, kUnknownBytes);
  EXPECT_EQ(PaceOf({Stored(0, 3, 30), Storing(0, 700, 0)}, At(5)).usual_bytes, 700 * kMiB);
  EXPECT_GT(PaceOf({Storing(0, 700, 0)}, At(50)).bytes_per_second, 0) << "a store that is away";
}

TEST(Pace, OneMoreFitsWhereAllAreStoredInTime) {
  const int64_t pace = 10 * kMiB;
  const auto load = [](int64_t mib, int left) { return Load{mib * kMiB, seconds(left)}; };
  const auto fits = [&](const std::vector<Load>& of, int64_t before, int64_t mib) {
    return Fits(of, before * kMiB, mib * kMiB, seconds(100), pace);
  };
  EXPECT_TRUE(fits({}, 0, 100000)) << "whatever it is, nothing is won by waiting";
  EXPECT_TRUE(fits({load(300, 100)}, 0, 450));
  EXPECT_FALSE(fits({load(300, 100)}, 0, 451)) << "it needs three quarters of its own time";
  EXPECT_FALSE(fits({load(300, 100)}, 200, 450)) << "others come before it";
  EXPECT_FALSE(fits({}, 500, 400));
  EXPECT_FALSE(fits({load(300, 50)}, 0, 450)) << "it would take half of the way of one that has no time to spare";
  EXPECT_TRUE(fits({load(0, 0), load(100, 100)}, 0, 450)) << "one that is about to be evicted";
  EXPECT_TRUE(fits({load(300, 20)}, 0, 450)) << "one that will be late whatever comes";
}

Seat SeatOf(const std::string& ns, const std::string& name, int64_t mib, Phase phase = Phase::kPending, int priority = 0) {
  kube::Pod pod = WebPod(name, "uid-" + name);
  pod.priority = priority;
  api::Checkpoint c = InPhase(phase, name, "uid-" + name);
  pod.meta.ns = c.meta.ns = ns;
  return {Share(c), Share(pod), mib * kMiB};
}

// Eight pods of 2 GiB, and a store that takes 40 MiB a second: 51 s each, 410 s in all, where each has 100 s from its turn on.
TEST(DrainAdmission, OfMoreStateThanTheNodeStoresInADeadlineOneComesAfterTheOther) {
  Traffic traffic;
  std::vector<Seat> waiting;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) waiting.push_back(SeatOf("default", name, 2048));
  int now = 0, most_at_a_time = 0;
  while (!waiting.empty() && now < 3600) {
    traffic.now = At(now);
    traffic.waiting = waiting;
    for (auto seat = waiting.begin(); seat != waiting.end();) {
      const checkpoint::Admission turn = Admit(*seat, traffic);
      EXPECT_TRUE(turn.granted || turn.queued);
      if (!turn.granted) {
        ++seat;
        continue;
      }
      traffic.granted.push_back({Storing(now, 2048, 0, seat->pod->meta.name), seat->pod, seat->bytes});
      seat = waiting.erase(seat);
      traffic.waiting = waiting;
    }
    most_at_a_time = std::max(most_at_a_time, static_cast<int>(traffic.granted.size()));
    ++now;
    const int64_t share = 40 * kMiB / std::max<int64_t>(1, static_cast<int64_t>(traffic.granted.size()));
    for (auto seat = traffic.granted.begin(); seat != traffic.granted.end();) {
      api::Checkpoint c = *seat->checkpoint;
      c.status.progress_bytes += share;
      ASSERT_LT(At(now), DeadlineOf(c)) << c.meta.name << " is lost";
      seat->checkpoint = Share(c);
      if (c.status.progress_bytes < c.status.progress_total) {
        ++seat;
        continue;
      }
      c.status.phase = Phase::kReady;
      c.status.memory_bytes = c.status.progress_total;
      c.status.completed_at = FormatTime(At(now));
      traffic.done_here.push_back(Share(c));
      seat = traffic.granted.erase(seat);
    }
  }
  EXPECT_TRUE(waiting.empty());
  EXPECT_LE(most_at_a_time, 2) << "the next one begins when little is left of the last";
}

TEST(DrainAdmission, AFastNodeHasAsManyAtATimeAsItMay) {
  Traffic traffic;
  traffic.now = At(20);
  traffic.done_here = {Stored(0, 5, 2048)};
  traffic.granted = {SeatOf("default", "x", 2048, Phase::kDumping), SeatOf("default", "y", 2048, Phase::kDumping),
                     SeatOf("default", "z", 2048, Phase::kDumping)};
  EXPECT_TRUE(Admit(SeatOf("default", "a", 2048), traffic).granted);
  traffic.done_here.clear();
  EXPECT_FALSE(Admit(SeatOf("default", "a", 2048), traffic).granted);
}

// A node of which nothing is known is taken for a slow one until the first of its pods tells better: what was frozen cannot be stored
// later.
TEST(DrainAdmission, OnANodeOfWhichNothingIsKnownTheFirstTellsHowManyMayComeBesideIt) {
  const Seat small = SeatOf("default", "a", 30), large = SeatOf("default", "b", 300);
  Traffic traffic;
  traffic.now = At(3);
  EXPECT_TRUE(Admit(large, traffic).granted);
  traffic.granted = {SeatOf("default", "x", 256, Phase::kDumping)};
  const checkpoint::Admission turn = Admit(large, traffic);
  EXPECT_TRUE(turn.queued);
  EXPECT_EQ(turn.waits_for,
            "node node-a stores no less than 4.0 MiB a second, and at that could not store it beside the 1 before it by their deadlines");
  EXPECT_TRUE(Admit(small, traffic).granted) << "both, whatever the node is";
  traffic.granted = {{Storing(0, 256, 64, "x"), small.pod, 256 * kMiB}};
  traffic.done_here = {traffic.granted[0].checkpoint};
  EXPECT_TRUE(Admit(large, traffic).granted) << "21 MiB a second by now";
}

TEST(DrainAdmission, WhoWaitsIsToldItsPlaceAndAboutHowLong) {
  Traffic traffic;
  traffic.now = At(50);
  const Seat first = {Storing(0, 2000, 1000, "x"), SeatOf("default", "x", 0).pod};
  traffic.granted = {first};
  traffic.done_here = {first.checkpoint};
  const Seat a = SeatOf("default", "a", 500), b = SeatOf("default", "b", 500, Phase::kPending, 9);
  traffic.waiting = {a, b};
  const checkpoint::Admission turn = Admit(a, traffic);
  EXPECT_TRUE(turn.queued);
  EXPECT_EQ(turn.position, 2);
  ASSERT_TRUE(turn.about);
  EXPECT_EQ(*turn.about, seconds(80)) << "1500 MiB at 20 MiB a second";
  EXPECT_EQ(turn.waits_for,
            "node node-a stores about 20 MiB a second, and could not store it beside the 2 before it by their deadlines; its turn comes in "
            "about 1m20s");
  traffic.max_per_node = 1;
  EXPECT_EQ(Admit(a, traffic).waits_for,
            "1 of at most 1 checkpoints are under way on node node-a, 1 waits before it; its turn comes in about 1m20s");
  traffic.done_here.clear();
  EXPECT_FALSE(Admit(a, traffic).about) << "nothing is known";
}

// Turns go round: one namespace's many pods, though they were first and have the higher priority, wait for the others' first ones.
TEST(DrainAdmission, TurnsGoFromNamespaceToNamespace) {
  Traffic traffic;
  traffic.max_per_node = 2;
  std::vector<Seat> all;
  for (const char* name : {"h1", "h2", "h3", "h4", "h5"}) all.push_back(SeatOf("hog", name, 30, Phase::kPending, 9));
  for (const char* name : {"o1", "o2"}) all.push_back(SeatOf("other", name, 30));
  all.push_back(SeatOf("third", "t1", 30));
  std::string order;
  for (int i = 0; i < 8; ++i) {
    traffic.waiting = all;
    const auto turn = std::find_if(all.begin(), all.end(), [&](const Seat& seat) { return Admit(seat, traffic).granted; });
    ASSERT_NE(turn, all.end()) << order;
    order += turn->pod->meta.name + " ";
    api::Checkpoint c = *turn->checkpoint;
    c.status.phase = Phase::kReady;
    c.status.started_at = c.status.completed_at = FormatTime(At(i));
    traffic.now = At(i + 1);
    traffic.granted.push_back({Share(c), turn->pod});
    traffic.done_here.push_back(Share(c));
    if (traffic.granted.size() == 2) traffic.granted.erase(traffic.granted.begin());
    all.erase(turn);
  }
  EXPECT_EQ(order, "h1 o1 t1 h2 o2 h3 h4 h5 ");
}

// One tenant has all places of a node, and wanted an hour for each: another one's drain has the next place that is free, and one is after
// the deadline that the installation has for drains.
TEST(DrainAdmission, WhoHasAllPlacesHasThemNoLongerThanADrainMay) {
  Traffic traffic;
  traffic.longest = seconds(100);
  for (const char* name : {"a", "b", "c", "d"}) {
    Seat seat = SeatOf("hog", name, 30);
    api::Checkpoint c = *seat.checkpoint;
    c.spec.deadline = std::chrono::hours(1);
    seat.checkpoint = Share(c);
    const checkpoint::Admission turn = Admit(seat, traffic);
    ASSERT_TRUE(turn.granted);
    EXPECT_EQ(turn.most, seconds(100));
    c.status.phase = Phase::kStoring;
    c.status.started_at = FormatTime(At(0));
    c.status.deadline_at = FormatTime(At(100));
    traffic.granted.push_back({Share(c), seat.pod, seat.bytes});
  }
  const Seat other = SeatOf("other", "late", 30), more = SeatOf("hog", "more", 30, Phase::kPending, 9);
  traffic.waiting = {more, other};
  traffic.now = At(99);
  EXPECT_TRUE(Admit(other, traffic).queued);
  EXPECT_EQ(Admit(other, traffic).position, 1);
  traffic.granted.pop_back();  // its agent has ended it at its deadline
  EXPECT_TRUE(Admit(other, traffic).granted);
  EXPECT_FALSE(Admit(more, traffic).granted);
}

}  // namespace
}  // namespace holdfast::reconcilers::drain
