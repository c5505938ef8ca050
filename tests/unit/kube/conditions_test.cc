#include "kube/conditions.h"

#include <gtest/gtest.h>

#include "base/time_format.h"

namespace holdfast::kube {
namespace {

const WallTime kThen{std::chrono::hours(1000)}, kLater{std::chrono::hours(1001)};

Condition Ready(const std::string& status, const std::string& message = "m") {
  return {.type = "Ready", .status = status, .reason = "Because", .message = message, .observed_generation = 3};
}

TEST(Conditions, AreAddedWithTheTime) {
  std::vector<Condition> conditions;
  EXPECT_TRUE(SetCondition(conditions, Ready("True"), kThen));
  ASSERT_EQ(conditions.size(), 1u);
  EXPECT_EQ(conditions[0].last_transition_time, FormatTime(kThen));
  EXPECT_EQ(conditions[0].observed_generation, 3);
}

TEST(Conditions, MoveTheirTimeOnlyWhenTheStatusChanges) {
  std::vector<Condition> conditions;
  SetCondition(conditions, Ready("True"), kThen);
  EXPECT_TRUE(SetCondition(conditions, Ready("True", "another message"), kLater));
  EXPECT_EQ(conditions[0].last_transition_time, FormatTime(kThen));
  EXPECT_EQ(conditions[0].message, "another message");
  EXPECT_TRUE(SetCondition(conditions, Ready("False"), kLater));
  EXPECT_EQ(conditions[0].last_transition_time, FormatTime(kLater));
  EXPECT_EQ(conditions.size(), 1u);
}

TEST(Conditions, SayWhetherThereIsSomethingToWrite) {
  std::vector<Condition> conditions;
  SetCondition(conditions, Ready("True"), kThen);
  EXPECT_FALSE(SetCondition(conditions, Ready("True"), kLater));
  Condition newer = Ready("True");
  newer.observed_generation = 4;
  EXPECT_TRUE(SetCondition(conditions, newer, kLater));
  newer.reason = "Other";
  EXPECT_TRUE(SetCondition(conditions, newer, kLater));
}

TEST(Conditions, KeepTheirPlaceAndLeaveOthersAlone) {
  std::vector<Condition> conditions;
  SetCondition(conditions, {.type = "Stored", .status = "True", .reason = "R"}, kThen);
  SetCondition(conditions, Ready("True"), kThen);
  SetCondition(conditions, {.type = "Stored", .status = "False", .reason = "R"}, kLater);
  ASSERT_EQ(conditions.size(), 2u);
  EXPECT_EQ(conditions[0].type, "Stored");
  EXPECT_EQ(FindCondition(conditions, "Ready")->last_transition_time, FormatTime(kThen));
  EXPECT_EQ(FindCondition(conditions, "Other"), nullptr);
  EXPECT_TRUE(RemoveCondition(conditions, "Stored"));
  EXPECT_FALSE(RemoveCondition(conditions, "Stored"));
}

TEST(Conditions, AreMadeFitForTheApi) {
  std::vector<Condition> conditions;
  Condition wild{
      .type = std::string(400, 't'), .status = "yes", .reason = "9 of 10: no space left!", .message = std::string(32767, 'x') + "äöü"};
  SetCondition(conditions, wild, kThen);
  EXPECT_EQ(conditions[0].type.size(), 316u);
  EXPECT_EQ(conditions[0].status, "Unknown");
  EXPECT_EQ(conditions[0].reason, "of10:nospaceleft");
  EXPECT_LE(conditions[0].message.size(), 32768u);
  EXPECT_EQ(DumpJson(ToJson(conditions)).find("\xef\xbf\xbd"), std::string::npos) << "cut within a character";
  SetCondition(conditions, {.type = "A", .status = "True", .reason = ""}, kThen);
  EXPECT_EQ(conditions[1].reason, "Unknown");
  SetCondition(conditions, {.type = "B", .status = "True", .reason = std::string(2000, 'r')}, kThen);
  EXPECT_EQ(conditions[2].reason.size(), 1024u);
}

TEST(Conditions, AreReadAsKubectlWaitReadsThem) {
  std::vector<Condition> conditions;
  SetCondition(conditions, Ready("True"), kThen);
  EXPECT_TRUE(IsCondition(conditions, "ready", "true", 3));
  EXPECT_FALSE(IsCondition(conditions, "Ready", "True", 4)) << "it speaks of an older generation";
  EXPECT_FALSE(IsCondition(conditions, "Ready", "False", 3));
  EXPECT_FALSE(IsCondition(conditions, "Stored", "True", 3));
  conditions[0].observed_generation = 0;
  EXPECT_TRUE(IsCondition(conditions, "Ready", "True", 4));
}

TEST(Conditions, SurviveTheWayThroughJson) {
  std::vector<Condition> conditions;
  SetCondition(conditions, Ready("True"), kThen);
  const Condition back = Condition::FromJson(ToJson(conditions)[0]);
  EXPECT_EQ(ToJson(back), ToJson(conditions[0]));
  EXPECT_EQ(Condition::FromJson(Json::parse(R"({"type":7,"status":null,"observedGeneration":"x"})")).type, "");
}

}  // namespace
}  // namespace holdfast::kube
