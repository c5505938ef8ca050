// The simulation holds still for a seed, its rules see what they are for, and no rule is broken.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/places.h"
#include "tests/sim/judge.h"
#include "tests/sim/shrink.h"
#include "tests/sim/world.h"
#include "tests/this_commit.h"

namespace holdfast::sim {
namespace {

using std::chrono::seconds;

constexpr uint64_t kFirstSeeds = 6, kFirstSeedsOfTheStore = 2;
constexpr Duration kNewSeeds = seconds(60);
constexpr Duration kPatience = seconds(240);  // where other things run beside it
constexpr uint64_t kMostNewSeeds = 40;

Verdict PlayPlan(Plan plan) {
  const Place place;
  plan.folder = place.folder();
  return Play(plan);
}

Verdict PlaySeed(uint64_t seed) { return PlayPlan({.seed = seed}); }

// Of this process, so that what is beside it does not change how much is played.
Duration CpuTime() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

std::string Broken(const Verdict& verdict) {
  std::string all;
  for (const std::string& rule : verdict.broken) all += rule + "\n";
  return all.empty() ? "" : all + verdict.story.substr(verdict.story.size() - std::min<size_t>(verdict.story.size(), 20000));
}

TEST(Simulation, TellsTheSameStoryOfTheSameSeed) {
  const uint64_t seed = testing::SeedOfThisCommit() % 1000000;
  const Verdict first = PlaySeed(seed), second = PlaySeed(seed);
  EXPECT_EQ(first.story, second.story) << "seed " << seed;
  EXPECT_EQ(first.turns, second.turns);
  EXPECT_NE(first.story, PlaySeed(seed + 1).story);
}

// Keys, packs and what a crash leaves of a disk are the seed's, too.
TEST(Simulation, TellsTheSameStoryOfTheProductsOwnStore) {
  const Plan plan{.seed = testing::SeedOfThisCommit() % 1000000, .drains = 3, .real_store = true};
  const Verdict first = PlayPlan(plan), second = PlayPlan(plan);
  EXPECT_EQ(first.story, second.story) << PlanText(plan);
  EXPECT_EQ(first.turns, second.turns);
}

TEST(Simulation, MovesEveryPodWhereNothingFails) {
  for (const bool real : {false, true}) {
    const Verdict verdict = PlayPlan({.seed = 7, .pods = 6, .drains = 6, .faults = 0, .real_store = real});
    EXPECT_EQ(Broken(verdict), "");
    EXPECT_GT(verdict.moved, 0);
    EXPECT_EQ(verdict.cold, 0);
  }
}

// Hole 5: a node with more state than its store takes in a deadline (100 s) lost the rest of it: all were frozen at once, each with a part
// of the way to the store, or their time in the queue counted. Each alone takes 51 s here, and eight of them 410.
TEST(Simulation, MovesAllOfANodeWithMoreStateThanOneDeadlineStores) {
  const Verdict verdict = PlayPlan({.seed = 1, .nodes = 2, .pods = 8, .drains = 4, .mib = 2048, .pace = 40, .faults = 0});
  EXPECT_EQ(Broken(verdict), "");
  EXPECT_EQ(verdict.cold, 0);
  EXPECT_GE(verdict.moved, 8);
}

// The same ones for every commit, of processes and networks alone: what is broken here was broken by the change at hand.
TEST(Simulation, BreaksNoRuleWithTheFirstSeeds) {
  for (uint64_t seed = 1; seed <= kFirstSeeds; ++seed) {
    EXPECT_EQ(Broken(PlayPlan({.seed = seed, .kinds = kKindsOfProcesses})), "") << "seed=" << seed << " kinds=" << kKindsOfProcesses;
  }
  for (uint64_t seed = 1; seed <= kFirstSeedsOfTheStore; ++seed) {
    const Plan plan{.seed = seed, .kinds = kKindsOfProcesses, .real_store = true};
    EXPECT_EQ(Broken(PlayPlan(plan)), "") << PlanText(plan);
  }
}

// StatefulSets, Jobs, bare pods, and containers that crash.
TEST(Simulation, BreaksNoRuleWithEveryKindOfOwner) {
  for (uint64_t seed = 1; seed <= kFirstSeeds / 3; ++seed) {
    const Plan plan{.seed = seed, .kinds = kKindsOfProcesses, .world = kOwners};
    EXPECT_EQ(Broken(PlayPlan(plan)), "") << PlanText(plan);
  }
}

TEST(Simulation, MovesEveryKindOfOwnerWhereNothingFails) {
  const Verdict verdict = PlayPlan({.seed = 7, .drains = 6, .faults = 0, .world = kOwners});
  EXPECT_EQ(Broken(verdict), "");
  for (const char* who : {"db-", "job-", "lab-", "web-"})
    EXPECT_NE(verdict.story.find(std::string("Restored of Pod ") + who), std::string::npos) << who;
  EXPECT_EQ(verdict.cold, 0);
}

// Others for every commit, with every kind of fault, in make test-all: a minute of this process's own time, which is a dozen of them under
// the sanitizers.
TEST(Simulation, BreaksNoRuleWithTheSeedsOfThisCommit) {
  if (testing::InGate()) GTEST_SKIP() << "what new seeds find is for make test-all: a commit shall not be red by luck";
  const Duration began = CpuTime();
  const MonoTime until = Clock::Real().Mono() + kPatience;
  const uint64_t first = testing::SeedOfThisCommit() % 1000000;
  for (uint64_t seed = first; seed < first + kMostNewSeeds; ++seed) {
    if (CpuTime() - began >= kNewSeeds || Clock::Real().Mono() >= until) break;
    const Plan plan{.seed = seed, .real_store = seed % 2 == 0};
    ASSERT_EQ(Broken(PlayPlan(plan)), "") << PlanText(plan) << " is one of this commit's own; perhaps no change of it broke it. The "
                                          << "shortest story that still does: holdfast-sim PLAN --shrink";
  }
}

TEST(Simulation, BreaksNoRuleWithThePlansThatOnceDid) {
  std::ifstream kept(places::kSources + std::string("/tests/sim/seeds.txt"));
  int played = 0;
  for (std::string line; std::getline(kept, line);) {
    const std::string words = line.substr(0, line.find('#'));
    if (words.empty()) continue;
    const std::optional<Plan> plan = ParsePlan(words);
    ASSERT_TRUE(plan.has_value()) << line;
    const Verdict verdict = PlayPlan(*plan);
    EXPECT_EQ(Broken(verdict), "") << "holdfast-sim " << line;
    EXPECT_EQ(verdict.missed, std::vector<std::string>()) << "holdfast-sim " << line;
    ++played;
  }
  EXPECT_GT(played, 5);
}

// What each of the patches in tests/gate/sim takes back: the tree as it is keeps the rules there, and the plan still tells what it was made
// for. That it sees its patch: make broken-sim.
TEST(Simulation, BreaksNoRuleWithThePlansOfThePatches) {
  int played = 0;
  for (const auto& file : std::filesystem::directory_iterator(places::kSources + std::string("/tests/gate/sim"))) {
    std::ifstream patch(file.path());
    for (std::string line; std::getline(patch, line);) {
      const size_t words = line.find("holdfast-sim --seeds 10 ");
      if (words == std::string::npos) continue;
      const std::optional<Plan> plan = ParsePlan(line.substr(words + sizeof "holdfast-sim --seeds 10"));
      ASSERT_TRUE(plan.has_value()) << line;
      const Verdict verdict = PlayPlan(*plan);
      EXPECT_EQ(Broken(verdict), "") << file.path();
      EXPECT_EQ(verdict.missed, std::vector<std::string>()) << file.path();
      ++played;
    }
  }
  EXPECT_GE(played, 12);
}

TEST(Steps, ComeToBeAtTheirPlaces) {
  const Plan plan = *ParsePlan("pods=1 at=pod.runs:1:drain,checkpoint.Ready:1:leader,pod.placed@web-0:2+40ms:agent,main.frozen:7:power");
  const Verdict verdict = PlayPlan(plan);
  EXPECT_EQ(Broken(verdict), "");
  EXPECT_EQ(verdict.missed, std::vector<std::string>{"main.frozen:7:power"});
  EXPECT_TRUE(verdict.faults.empty()) << "nothing is left to the seed";
  size_t at = 0;
  for (const char* next :
       {"as planned: pod.runs:1:drain", "is Ready", "as planned: checkpoint.Ready:1:leader", "as planned: pod.placed@web-0:2+40ms:agent"}) {
    at = verdict.story.find(next, at);
    ASSERT_NE(at, std::string::npos) << next << "\n" << verdict.story;
  }
  EXPECT_EQ(verdict.story, PlayPlan(plan).story);
}

TEST(Plans, OfStepsComeBackFromTheirText) {
  for (const char* text :
       {"seed=1 pods=1 at=begin:1:clock:-600,main.restored@web-1:2+40ms:power:60", "seed=1 store=real at=checkpoint.Ready:1+5:force"})
    EXPECT_EQ(PlanText(ParsePlan(text).value_or(Plan{.seed = 0})), text);
  for (const char* none : {"at=", "at=begin", "at=begin:1:flood", "at=begin:x:drain", "at=begin:1:drain:1m", "at=Begin run:1:drain"})
    EXPECT_FALSE(ParsePlan(none).has_value()) << none;
}

TEST(Plans, OfStepsShrinkToThoseThatCount) {
  auto play = [](const Plan& plan) {
    Verdict verdict;
    for (const Step& step : plan.at) {
      if (step.fault == "power") verdict.broken = {"AllQuiet: no"};
    }
    return verdict;
  };
  const Plan plan = *ParsePlan("pods=4 at=begin:1:store,pod.runs:1:power,pod.runs:1:drain");
  EXPECT_EQ(PlanText(Shrink(plan, play(plan), 100, play, [](const std::string&) {})), "seed=1 pods=1 at=pod.runs:1:power");
}

TEST(Plans, ComeBackFromTheirText) {
  const Plan plan{.seed = 42, .nodes = 4, .pods = 2, .drains = 0, .faults = 7, .world = kOwners, .only = std::set<int>{3, 100017}};
  const std::string text = "seed=42 nodes=4 pods=2 drains=0 faults=7 world=1 only=3,100017";
  EXPECT_EQ(PlanText(plan), text);
  const std::optional<Plan> read = ParsePlan(text);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(PlanText(*read), text);
  EXPECT_EQ(PlanText(*ParsePlan("seed=1 only=")), "seed=1 only=");
  EXPECT_EQ(PlanText(*ParsePlan("seed=1 store=real only=2")), "seed=1 store=real only=2");
  for (const char* none : {"seed", "pods=0", "nodes=1", "seeds=4", "store=no"}) EXPECT_FALSE(ParsePlan(none).has_value()) << none;
}

TEST(Plans, ShrinkToWhatBreaksTheSameRule) {
  int played = 0;
  // Broken by faults 3 and 17 together, with two drains at least; another rule by 5 alone.
  auto play = [&](const Plan& plan) {
    ++played;
    Verdict verdict;
    for (int fault = 1; fault <= 20; ++fault) {
      if (!plan.only || plan.only->contains(fault)) verdict.faults.push_back(fault);
    }
    auto has = [&](int fault) { return std::find(verdict.faults.begin(), verdict.faults.end(), fault) != verdict.faults.end(); };
    verdict.drains = plan.drains;
    if (has(3) && has(17) && plan.drains >= 2)
      verdict.broken.push_back("TwoCopies: of a counter");
    else if (has(5))
      verdict.broken.push_back("AllQuiet: no");
    return verdict;
  };
  const Plan plan{.seed = 9};
  const Plan small = Shrink(plan, play(plan), 200, play, [](const std::string&) {});
  EXPECT_EQ(PlanText(small), "seed=9 pods=1 drains=2 only=3,17");
  EXPECT_LT(played, 60);
}

class Rules : public ::testing::Test {
 protected:
  Container Of(const std::string& id, int64_t lineage, int64_t count) {
    Container c;
    c.id = id;
    c.pod_uid = "uid-" + id;
    c.pod = "pod-" + id;
    c.owner = "web";
    c.memory = {lineage, count};
    judge_.PodMade(c.owner, c.pod_uid);
    return c;
  }
  Container First() {
    Container c = Of("a", 0, 0);
    c.memory.lineage = judge_.NewLineage(c);
    judge_.Started("n1", c, false);
    return c;
  }
  // The rules that were broken, without what was seen.
  std::vector<std::string> Broken() {
    judge_.AtTheEnd();
    std::vector<std::string> rules;
    for (const std::string& one : judge_.broken()) rules.push_back(one.substr(0, one.find(':')));
    return rules;
  }
  using Names = std::vector<std::string>;
  std::string stored_;
  Judge judge_{[](const std::string&) {}, [this](const std::string&, const Memory&) { return stored_; }};
};

TEST_F(Rules, AreKeptByAMove) {
  Container a = First();
  a.memory.count = 5;
  judge_.Froze("n1", a);
  judge_.Ended("n1", a, false);
  judge_.Started("n2", Of("b", a.memory.lineage, 5), true);
  EXPECT_EQ(Broken(), Names());
}

TEST_F(Rules, SeeTwoCopies) {
  Container a = First();
  judge_.Started("n2", Of("b", a.memory.lineage, 5), true);
  EXPECT_EQ(Broken(), Names({"TwoCopies"}));
}

TEST_F(Rules, SeeTheOldOneThawedBesideItsSuccessor) {
  Container a = First();
  a.memory.count = 5;
  judge_.Froze("n1", a);
  judge_.Started("n2", Of("b", a.memory.lineage, 5), true);
  judge_.Thawed("n1", a);
  EXPECT_EQ(Broken(), Names({"TwoCopies"}));
}

TEST_F(Rules, SeeAStateThatGoesBack) {
  Container a = First();
  a.memory.count = 9;
  judge_.Ended("n1", a, false);
  judge_.Started("n2", Of("b", a.memory.lineage, 5), true);
  EXPECT_EQ(Broken(), Names({"CountRepeated"}));
}

TEST_F(Rules, SeeWhatWasReplacedComeBack) {
  Container a = First();
  judge_.Froze("n1", a);
  judge_.Ended("n1", a, true);
  Container b = Of("b", 0, 0);
  b.memory.lineage = judge_.NewLineage(b);
  judge_.Started("n1", b, false);
  judge_.Ended("n1", b, false);
  judge_.Started("n2", Of("c", a.memory.lineage, 0), true);
  EXPECT_EQ(Broken(), Names({"PastReturned"}));
}

TEST_F(Rules, SeeWhatAPodThatNoWebhookSawDidUndone) {
  Container a = First();
  judge_.Froze("n1", a);
  judge_.Ended("n1", a, false);
  Container b = Of("b", 0, 0);
  judge_.Unadmitted("uid-b");
  b.memory.lineage = judge_.NewLineage(b);
  judge_.Started("n1", b, false);
  judge_.Ended("n1", b, false);
  judge_.Started("n2", Of("c", a.memory.lineage, 0), true);
  EXPECT_EQ(Broken(), Names({"PastReturned"}));
}

TEST_F(Rules, SeeStoredStateThatIsNotUsed) {
  Container a = First();
  judge_.Froze("n1", a);
  judge_.Ended("n1", a, false);
  stored_ = "ck";
  Container b = Of("b", 0, 0);
  b.memory.lineage = judge_.NewLineage(b);
  judge_.Started("n2", b, false);
  judge_.Event({{"reason", "ColdStart"}, {"regarding", {{"kind", "Pod"}, {"name", "pod-b"}, {"uid", "uid-b"}}}});
  EXPECT_EQ(Broken(), Names({"StoredStateUnused"})) << "though an event tells";
}

// Hole 17.
TEST_F(Rules, SeeVolumesThatAreEmptiedUnderAContainer) {
  judge_.Emptied("n1", First());
  EXPECT_EQ(Broken(), Names({"VolumesEmptied"}));
}

TEST_F(Rules, KnowWhatALineageDidLast) {
  Container a = First();
  a.memory.count = 5;
  judge_.Froze("n1", a);
  EXPECT_TRUE(judge_.IsItsLast(a.memory));
  EXPECT_FALSE(judge_.IsItsLast({a.memory.lineage, 4}));
  judge_.Tries(a.memory);
  EXPECT_FALSE(judge_.IsItsLast(a.memory)) << "a restore of it may have run for a moment";
  judge_.DidNotRun(a.memory);
  EXPECT_TRUE(judge_.IsItsLast(a.memory));
}

TEST_F(Rules, SeeAColdStartThatNobodyTells) {
  judge_.Ended("n1", First(), false);
  Container b = Of("b", 0, 0);
  b.memory.lineage = judge_.NewLineage(b);
  judge_.Started("n2", b, false);
  EXPECT_EQ(Broken(), Names({"SilentColdStart"}));
}

TEST_F(Rules, TakeAColdStartWhoseUserDeletedWhatWasBetween) {
  judge_.Ended("n1", First(), false);
  (void)Of("b", 0, 0);  // was given the state, and deleted before it ran
  judge_.Discarded("uid-b");
  Container c = Of("c", 0, 0);
  c.memory.lineage = judge_.NewLineage(c);
  judge_.Started("n2", c, false);
  EXPECT_EQ(Broken(), Names());
}

TEST_F(Rules, TakeAColdStartThatAnEventTells) {
  judge_.Ended("n1", First(), false);
  Container b = Of("b", 0, 0);
  b.memory.lineage = judge_.NewLineage(b);
  judge_.Started("n2", b, false);
  judge_.Event({{"reason", "ColdStart"}, {"regarding", {{"kind", "Pod"}, {"name", "pod-b"}, {"uid", "uid-b"}}}});
  EXPECT_EQ(Broken(), Names());
}

// --- what it stands on ---------------------------------------------------------------------------------------------------------------

TEST(Turns, MoveTimeOnlyWhenNobodyCanGoOn) {
  Turns turns(1);
  std::vector<std::string> said;
  auto say = [&](const std::string& what) { said.push_back(std::to_string(turns.Mono().time_since_epoch() / seconds(1)) + " " + what); };
  Threads::Use(&turns);
  ASSERT_TRUE(turns.Run([&] {
    Thread late([&] {
      turns.Pause(seconds(5));
      say("late");
    });
    Thread soon([&] {
      turns.Pause(seconds(2));
      say("soon");
    });
    late.join();
    soon.join();
    say("both");
  }));
  Threads::Use(nullptr);
  EXPECT_EQ(said, (std::vector<std::string>{"2 soon", "5 late", "5 both"}));
}

TEST(Turns, EndAWaitWhenItIsToldToStop) {
  Turns turns(1);
  Threads::Use(&turns);
  bool stopped = false;
  ASSERT_TRUE(turns.Run([&] { Thread waiting([&](std::stop_token stop) { stopped = !turns.Sleep(std::chrono::hours(1), stop); }); }));
  Threads::Use(nullptr);
  EXPECT_TRUE(stopped);
  EXPECT_EQ(turns.Mono(), MonoTime());
}

class Api : public ::testing::Test {
 protected:
  int Do(const std::string& method, const std::string& path, const Json& body = nullptr, const std::string& type = "application/json") {
    kube::HttpRequest request{.method = method, .path = path, .headers = {{"content-type", type}}};
    if (!body.is_null()) request.body = DumpJson(body);
    const kube::HttpResponse response = server_.Handle(request, "somebody");
    answer_ = ParseJson(response.body).value_or(Json());
    return response.status;
  }
  int Patch(const Json& status) {
    return Do("PATCH", kCheckpoint + std::string("/status"), {{"status", status}}, "application/merge-patch+json");
  }
  static constexpr char kCheckpoints[] = "/apis/holdfast.dev/v1alpha1/namespaces/ns/checkpoints";
  static constexpr char kCheckpoint[] = "/apis/holdfast.dev/v1alpha1/namespaces/ns/checkpoints/c";
  Turns turns_{1};
  ApiServer server_{turns_};
  Json answer_;
};

TEST_F(Api, TakesAWriteOnlyOfTheNewestVersion) {
  ASSERT_EQ(Do("POST", kCheckpoints, {{"metadata", {{"name", "c"}}}}), 201);
  const std::string version = GetString(answer_, {"metadata", "resourceVersion"});
  EXPECT_EQ(Patch({{"phase", "Pending"}}), 200);
  Json old = {{"metadata", {{"resourceVersion", version}}}, {"status", {{"phase", "Assigned"}}}};
  EXPECT_EQ(Do("PATCH", std::string(kCheckpoint) + "/status", old, "application/merge-patch+json"), 409);
  EXPECT_EQ(Do("POST", kCheckpoints, {{"metadata", {{"name", "c"}}}}), 409);
}

TEST_F(Api, KeepsTheRulesThatFence) {
  ASSERT_EQ(Do("POST", kCheckpoints, {{"metadata", {{"name", "c"}}}}), 201);
  EXPECT_EQ(Patch({{"phase", "Assigned"}, {"term", 5}}), 200);
  EXPECT_EQ(Patch({{"term", 4}}), 422);
  EXPECT_EQ(Patch({{"phase", "Pending"}}), 422);
  EXPECT_EQ(Patch({{"claim", {{"podUID", "a"}}}}), 200);
  EXPECT_EQ(Patch({{"claim", {{"podUID", "b"}}}}), 422);
  EXPECT_EQ(Patch({{"claim", nullptr}}), 200);
  EXPECT_EQ(Patch({{"phase", "Failed"}}), 200);
  EXPECT_EQ(Patch({{"phase", "Ready"}}), 422);
}

TEST_F(Api, DeletesWhatHasFinalizersOnlyWhenTheyAreGone) {
  ASSERT_EQ(Do("POST", kCheckpoints, {{"metadata", {{"name", "c"}, {"finalizers", {"x/y"}}}}}), 201);
  EXPECT_EQ(Do("DELETE", kCheckpoint), 200);
  ASSERT_EQ(Do("GET", kCheckpoint), 200);
  EXPECT_FALSE(GetString(answer_, {"metadata", "deletionTimestamp"}).empty());
  EXPECT_EQ(Do("PATCH", kCheckpoint, {{"metadata", {{"finalizers", Json::array()}}}}, "application/merge-patch+json"), 200);
  EXPECT_EQ(Do("GET", kCheckpoint), 404);
}

TEST_F(Api, KeepsAPodThatHasEndedForItsFinalizer) {
  const std::string pod = "/api/v1/namespaces/ns/pods/p";
  server_.Put("pods", {{"metadata", {{"namespace", "ns"}, {"name", "p"}, {"finalizers", {"x/y"}}}}, {"spec", {{"nodeName", "n"}}}});
  EXPECT_EQ(Do("DELETE", pod), 200);
  EXPECT_EQ(Do("DELETE", pod, {{"gracePeriodSeconds", 0}}), 200) << "its kubelet is done with it";
  ASSERT_EQ(Do("GET", pod), 200);
  EXPECT_EQ(GetInt(answer_, {"metadata", "deletionGracePeriodSeconds"}, 30), 0);
  EXPECT_EQ(Do("PATCH", pod, {{"metadata", {{"finalizers", nullptr}}}}, "application/merge-patch+json"), 200);
  EXPECT_EQ(Do("GET", pod), 404);
}

TEST_F(Api, RefusesAnEvictionThatABudgetDoesNotAllow) {
  server_.Put("pods", {{"metadata", {{"namespace", "ns"}, {"name", "p"}, {"labels", {{"app", "web"}}}}}, {"spec", {{"nodeName", "n"}}}});
  server_.Put("policy/poddisruptionbudgets", {{"metadata", {{"namespace", "ns"}, {"name", "b"}}},
                                              {"spec", {{"selector", {{"matchLabels", {{"app", "web"}}}}}}},
                                              {"status", {{"disruptionsAllowed", 0}}}});
  EXPECT_EQ(Do("POST", "/api/v1/namespaces/ns/pods/p/eviction", {{"metadata", {{"name", "p"}}}}), 429);
  server_.Update("policy/poddisruptionbudgets", "ns/b", [](Json& budget) { budget["status"]["disruptionsAllowed"] = 1; });
  EXPECT_EQ(Do("POST", "/api/v1/namespaces/ns/pods/p/eviction", {{"metadata", {{"name", "p"}}}}), 201);
  ASSERT_EQ(Do("GET", "/api/v1/namespaces/ns/pods/p"), 200);
  EXPECT_FALSE(GetString(answer_, {"metadata", "deletionTimestamp"}).empty()) << "with grace: its kubelet ends it";
}

}  // namespace
}  // namespace holdfast::sim
