#include "api/suspended_workload.h"

#include <gtest/gtest.h>

#include "api/restore_policy.h"

namespace holdfast::api {
namespace {

TEST(SuspendedWorkloadJson, ReadsWhatIsSet) {
  const SuspendedWorkload s =
      SuspendedWorkload::FromJson({{"metadata", {{"name", "nb"}, {"namespace", "default"}, {"generation", 3}}},
                                   {"spec",
                                    {{"targetRef", {{"apiVersion", "apps/v1"}, {"kind", "StatefulSet"}, {"name", "db"}}},
                                     {"state", "Suspended"},
                                     {"onDelete", "Keep"}}},
                                   {"status",
                                    {{"phase", "Suspended"},
                                     {"overriddenGeneration", 2},
                                     {"replicas", 3},
                                     {"durable", true},
                                     {"checkpoints", {{{"pod", "db-0"}, {"podUID", "u"}, {"ordinal", "0"}, {"checkpoint", "c"}}}},
                                     {"attempt", {{"startedAt", "2026-01-02T03:04:05Z"}, {"failures", 2}, {"reason", "DumpFailed"}}}}}});
  EXPECT_EQ(s.spec.target_kind, "StatefulSet");
  EXPECT_TRUE(s.spec.suspended);
  EXPECT_TRUE(s.spec.keep_on_delete);
  EXPECT_EQ(s.status.phase, SuspendPhase::kSuspended);
  EXPECT_TRUE(s.status.seen);
  EXPECT_EQ(s.status.overridden_generation, 2);
  EXPECT_EQ(s.status.attempt.failures, 2);
  ASSERT_EQ(s.status.checkpoints.size(), 1u);
  EXPECT_EQ(ToJson(s.status.checkpoints[0]), Json({{"pod", "db-0"}, {"podUID", "u"}, {"ordinal", "0"}, {"checkpoint", "c"}}));
}

TEST(SuspendedWorkloadJson, WhatIsMissingOrMalformedReadsAsTheDefault) {
  for (const Json& object :
       {Json::object(), Json({{"spec", 5}, {"status", {{"phase", "Odd"}, {"replicas", -3}, {"checkpoints", {7}}, {"attempt", "x"}}}})}) {
    const SuspendedWorkload s = SuspendedWorkload::FromJson(object);
    EXPECT_FALSE(s.spec.suspended);
    EXPECT_FALSE(s.spec.keep_on_delete);
    EXPECT_EQ(s.status.phase, SuspendPhase::kRunning);
    EXPECT_EQ(s.status.replicas, 0);
    EXPECT_EQ(s.status.attempt.failures, 0);
  }
}

TEST(AsleepMark, GoesThereAndBack) {
  kube::ObjectMeta meta;
  EXPECT_FALSE(AsleepMark(meta));
  meta.annotations = {{kAsleep, Asleep{"nb", 3, "2026-01-02T03:04:05Z"}.ToAnnotation()}};
  ASSERT_TRUE(AsleepMark(meta));
  EXPECT_EQ(AsleepMark(meta)->replicas, 3);
  EXPECT_EQ(AsleepMark(meta)->by, "nb");
  meta.annotations = {{kAsleep, "yes"}};
  ASSERT_TRUE(AsleepMark(meta)) << "a hand in it wakes nobody";
  EXPECT_EQ(AsleepMark(meta)->replicas, 0);
}

std::optional<IdleWatch> IdleOf(const Json& idle) { return SuspendedWorkload::FromJson({{"spec", {{"idle", idle}}}}).spec.idle; }

TEST(Idle, IsReadWithItsSignals) {
  EXPECT_FALSE(SuspendedWorkload::FromJson(Json::object()).spec.idle);
  EXPECT_EQ(IdleOf({{"after", "30m"}}), (IdleWatch{std::chrono::minutes(30), 20, false}));
  const Json signals = {{"jupyter", Json::object()}, {"cpu", {{"below", "0.5"}}}};
  EXPECT_EQ(IdleOf({{"after", "1h30m"}, {"signals", signals}}), (IdleWatch{std::chrono::minutes(90), 500, true}));
  EXPECT_EQ(IdleOf({{"after", "30m"}, {"signals", {{"gpu", {{"utilBelow", 7}}}}}}), (IdleWatch{std::chrono::minutes(30), 20, false, 7}));
}

TEST(Idle, WhatTheApiServerRefusesIsNone) {
  for (const Json& bad : {Json("30m"), Json({{"after", "1s"}}), Json({{"after", "soon"}}), Json({{"after", "9000h"}})}) {
    EXPECT_FALSE(IdleOf(bad)) << bad;
  }
}

TEST(IdleWatch, GoesToAPodAndBack) {
  kube::ObjectMeta pod;
  EXPECT_FALSE(IdleWatchOf(pod));
  const IdleWatch watch{std::chrono::seconds(90), 350, true, 12};
  pod.annotations = {{kIdleWatch, watch.ToAnnotation()}};
  EXPECT_EQ(IdleWatchOf(pod), watch);
  for (const char* bad : {"yes", "{}", "[]", R"({"after": "1ms"})", R"({"after": 5})"}) {
    pod.annotations = {{kIdleWatch, bad}};
    EXPECT_FALSE(IdleWatchOf(pod)) << bad;
  }
  pod.annotations = {{kIdleWatch, R"({"after": "1h", "cpuBelowMillis": -5, "gpuBelowPercent": 500})"}};
  EXPECT_EQ(IdleWatchOf(pod)->cpu_below_millis, 1);
  EXPECT_EQ(IdleWatchOf(pod)->gpu_below_percent, 100);
}

TEST(IdledMark, HoldsForTheGenerationThatItMade) {
  kube::ObjectMeta object;
  const WallTime at = *ParseTime("2026-01-02T03:04:05Z");
  object.annotations = {{kIdled, Idled{7, at - std::chrono::hours(1), at}.ToAnnotation()}};
  object.generation = 7;
  ASSERT_TRUE(IdledMark(object));
  EXPECT_EQ(IdledMark(object)->since, at - std::chrono::hours(1));
  object.generation = 8;
  EXPECT_FALSE(IdledMark(object)) << "somebody has changed its spec";
  object.annotations = {{kIdled, "yes"}};
  EXPECT_FALSE(IdledMark(object));
}

TEST(ParseAmount, TakesEveryQuantity) {
  EXPECT_DOUBLE_EQ(*ParseAmount("50m"), 0.05);
  EXPECT_DOUBLE_EQ(*ParseAmount("2"), 2);
  EXPECT_DOUBLE_EQ(*ParseAmount("0.5"), 0.5);
  EXPECT_DOUBLE_EQ(*ParseAmount("1.5Gi"), 1.5 * (1 << 30));
  EXPECT_DOUBLE_EQ(*ParseAmount("300Mi"), 300.0 * (1 << 20));
  EXPECT_DOUBLE_EQ(*ParseAmount("2e3"), 2000);
  EXPECT_DOUBLE_EQ(*ParseAmount("1E"), 1e18);
  for (const char* bad : {"", "-1", "x", "1 Gi", "1Gi2", "nan", "inf", "1e99", "m"}) EXPECT_FALSE(ParseAmount(bad)) << bad;
}

TEST(SuspendedWorkloadJson, WhatWakesOnRequestIsReadWithinItsBounds) {
  auto read = [](const Json& on_request, const Json& status = Json::object()) {
    return SuspendedWorkload::FromJson({{"spec", {{"resume", {{"onRequest", on_request}}}}}, {"status", {{"onRequest", status}}}});
  };
  const auto asked =
      read({{"service", "nb"}, {"holdFor", "90s"}, {"ignore", {{"userAgents", {"GoogleHC/", 7, ""}}, {"paths", {"/healthz"}}}}},
           {{"service", "nb"}, {"ports", {{{"name", "http"}, {"number", 20001}}, {{"name", "x"}, {"number", 70000}}, 5}}});
  ASSERT_TRUE(asked.spec.on_request);
  EXPECT_EQ(asked.spec.on_request->service, "nb");
  EXPECT_EQ(asked.spec.on_request->hold_for, std::chrono::seconds(90));
  EXPECT_EQ(asked.spec.on_request->ignored_user_agents, std::vector<std::string>{"GoogleHC/"});
  EXPECT_EQ(asked.spec.on_request->ignored_paths, std::vector<std::string>{"/healthz"});
  EXPECT_EQ(asked.status.on_request.ports, (std::vector<ActivatorPort>{{"http", 20001}}));
  EXPECT_EQ(ToJson(asked.status.on_request.ports[0]), Json({{"name", "http"}, {"number", 20001}}));
  EXPECT_EQ(read({{"service", "nb"}}).spec.on_request->hold_for, std::chrono::seconds(60));
  EXPECT_EQ(read({{"service", "nb"}, {"holdFor", "500h"}}).spec.on_request->hold_for, std::chrono::minutes(30));
  for (const Json& none : {Json(), Json(7), Json::object(), Json({{"holdFor", "1s"}})}) EXPECT_FALSE(read(none).spec.on_request) << none;
}

}  // namespace
}  // namespace holdfast::api
