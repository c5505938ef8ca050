#include "api/checkpoint.h"

#include <gtest/gtest.h>

#include <limits>

namespace holdfast::api {
namespace {

TEST(CheckpointJson, FillsTheCrdsDefaults) {
  const Checkpoint c = Checkpoint::FromJson({{"metadata", {{"name", "a"}}}, {"spec", {{"podRef", {{"name", "web-0"}}}}}});
  EXPECT_EQ(c.spec.pod_name, "web-0");
  EXPECT_FALSE(c.spec.final);
  EXPECT_EQ(c.spec.trigger, Trigger::kManual);
  EXPECT_EQ(c.spec.deadline, std::chrono::seconds(100));
  EXPECT_EQ(c.status.phase, Phase::kPending);
  EXPECT_FALSE(c.done());
}

TEST(CheckpointJson, ReadsAnythingWithoutThrowing) {
  for (const Json& hostile :
       {Json(nullptr), Json(1), Json::array(), Json{{"metadata", 1}, {"spec", "x"}, {"status", Json::array({1})}},
        Json{{"spec", {{"podRef", 7}, {"containers", {1, nullptr, "a"}}, {"deadline", -1}, {"ttl", {{"a", 1}}}}},
             {"status", {{"phase", "Nonsense"}, {"claim", "x"}, {"restores", {1, 2}}, {"size", {{"memory", "many"}}}}}}}) {
    const Checkpoint c = Checkpoint::FromJson(hostile);
    EXPECT_EQ(c.status.phase, Phase::kPending);
    EXPECT_FALSE(c.status.claim);
  }
}

// Holes 5 and 10: what a node says of its checkpoints decides when others are frozen and fetched.
TEST(CheckpointJson, SizesAreThoseThatACheckpointCanHave) {
  struct Case {
    int64_t told, read;
  };
  for (const Case& c : {Case{-1, 0}, Case{std::numeric_limits<int64_t>::min(), 0}, Case{5, 5}, Case{int64_t{1} << 48, int64_t{1} << 48},
                        Case{std::numeric_limits<int64_t>::max(), int64_t{1} << 48}}) {
    const Json size = {{"memory", c.told}, {"files", c.told}, {"stored", c.told}}, progress = {{"bytes", c.told}, {"total", c.told}};
    const auto s = Checkpoint::FromJson({{"status", {{"size", size}, {"progress", progress}}}}).status;
    for (const int64_t read : {s.memory_bytes, s.files_bytes, s.stored_bytes, s.progress_bytes, s.progress_total}) EXPECT_EQ(read, c.read);
  }
}

TEST(CheckpointJson, AClaimWithoutAUidIsNone) {
  EXPECT_FALSE(Checkpoint::FromJson({{"status", {{"claim", {{"podName", "web-0"}}}}}}).status.claim);
}

TEST(CheckpointJson, ReadsWhatItsFragmentsWrite) {
  Json status = {{"size", SizeJson(3, 2, 1)},
                 {"timings", TimingsJson(850, 300, 2310)},
                 {"progress", ProgressJson(1, 4)},
                 {"claim", ToJson(Claim{"web-0", "u1", "2026-01-01T00:00:00Z"})},
                 {"owner", ToJson(Owner{"Deployment", "web", "d1", "h", ""})}};
  status["restores"] = {ToJson(Restore{"web-1", "node-b", "2026-01-01T00:00:00Z", "Restored", "", 0.4})};
  status["containers"] = {ToJson(CheckpointContainer{"main", "i", "sha256:0", 12, true, ""})};
  const Checkpoint c = Checkpoint::FromJson({{"status", status}});
  EXPECT_EQ(c.status.memory_bytes, 3);
  EXPECT_EQ(c.status.frozen_ms, 850);
  EXPECT_EQ(c.status.store_ms, 2310);
  EXPECT_EQ(c.status.progress_total, 4);
  EXPECT_EQ(c.status.claim->pod_uid, "u1");
  EXPECT_EQ(c.status.owner.template_hash, "h");
  EXPECT_EQ(c.status.restores.at(0).outcome, "Restored");
  EXPECT_EQ(c.status.containers.at(0).pages, 12);
  EXPECT_EQ(SummaryJson(312 << 20, 900)["size"], "312Mi");
}

TEST(PhasePatch, KeepsTheTransitionTimeWhileTheStatusStays) {
  Checkpoint c;
  c.status.conditions = {{"Ready", "False", "Waiting", "m", "2026-01-01T00:00:00Z", 1},
                         {"ColdStart", "True", "r", "m", "2026-01-01T00:00:00Z", 1}};
  const WallTime now = *ParseTime("2026-01-02T00:00:00Z");
  const Checkpoint failed = Checkpoint::FromJson(PhasePatch(c, Phase::kFailed, reason::kDumpFailed, "why", now));
  EXPECT_EQ(failed.Ready()->last_transition_time, "2026-01-01T00:00:00Z");
  EXPECT_EQ(failed.Ready()->reason, "DumpFailed");
  const Checkpoint ready = Checkpoint::FromJson(PhasePatch(c, Phase::kReady, reason::kCompleted, "", now));
  EXPECT_EQ(ready.Ready()->last_transition_time, "2026-01-02T00:00:00Z");
  EXPECT_EQ(ready.status.conditions.size(), 2u) << "a merge patch replaces the list, so the other condition has to be in it";
}

TEST(CheckpointName, IsTheSameForTheSameRequestAndAnotherForAnother) {
  EXPECT_EQ(CheckpointName(Trigger::kDrain, "web-0", "1f2e3d4c-5b6a"), "drain-web-0-1f2e3d4c");
  EXPECT_EQ(CheckpointName(Trigger::kDrain, "web-0", "1f2e3d4c-5b6a", 2), "drain-web-0-1f2e3d4c-2");
  EXPECT_NE(CheckpointName(Trigger::kDrain, "web-0", "1f2e3d4c"), CheckpointName(Trigger::kDrain, "web-0", "1f2e3d4d"));
}

TEST(CheckpointName, IsCutToALabelAndStaysDifferent) {
  const std::string a(80, 'a'), b = std::string(79, 'a') + "b";
  const std::string name = CheckpointName(Trigger::kDrain, a, "1f2e3d4c");
  EXPECT_LE(name.size(), 63u);
  EXPECT_NE(name, CheckpointName(Trigger::kDrain, b, "1f2e3d4c"));
  const std::string dashes = CheckpointName(Trigger::kDrain, std::string(30, 'a') + std::string(60, '-') + "z", "1f2e3d4c");
  EXPECT_EQ(dashes.find("--"), std::string::npos);
}

}  // namespace
}  // namespace holdfast::api
