// The simulation holds still for a seed, its rules see what they are for, and no rule is broken.
#include <gtest/gtest.h>

#include "tests/sim/judge.h"
#include "tests/sim/world.h"
#include "tests/this_commit.h"

namespace holdfast::sim {
namespace {

using std::chrono::seconds;

Verdict PlaySeed(uint64_t seed) {
  const Place place;
  return Play({.seed = seed, .folder = place.folder()});
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

TEST(Simulation, MovesEveryPodWhereNothingFails) {
  const Place place;
  const Verdict verdict = Play({.seed = 7, .pods = 6, .drains = 6, .faults = 0, .folder = place.folder()});
  EXPECT_EQ(Broken(verdict), "");
  EXPECT_GT(verdict.moved, 0);
  EXPECT_EQ(verdict.cold, 0);
}

TEST(Simulation, BreaksNoRuleWithTheSeedsOfThisCommit) {
  const uint64_t first = testing::SeedOfThisCommit() % 1000000;
  for (uint64_t seed = first; seed < first + 6; ++seed) {
    const Verdict verdict = PlaySeed(seed);
    EXPECT_EQ(Broken(verdict), "") << "make sim SEED=" << seed;
  }
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

TEST_F(Rules, SeeAColdStartThatNobodyTells) {
  judge_.Ended("n1", First(), false);
  Container b = Of("b", 0, 0);
  b.memory.lineage = judge_.NewLineage(b);
  judge_.Started("n2", b, false);
  EXPECT_EQ(Broken(), Names({"SilentColdStart"}));
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
