#include "api/restore_policy.h"

#include <gtest/gtest.h>

namespace holdfast::api {
namespace {

TEST(RestorePolicyJson, TheBuiltInOneIsTheCrdsDefaults) {
  const RestorePolicy read = RestorePolicy::FromJson({{"metadata", {{"name", "p"}}}, {"spec", Json::object()}});
  const RestorePolicy& built_in = RestorePolicy::BuiltIn();
  EXPECT_EQ(read.spec.triggers.drain, built_in.spec.triggers.drain);
  EXPECT_EQ(read.spec.retention.keep_last, built_in.spec.retention.keep_last);
  EXPECT_EQ(built_in.spec.retention.keep_last, 3);
  EXPECT_TRUE(built_in.meta.name.empty());
}

TEST(RestorePolicyJson, ReadsWhatIsSet) {
  const RestorePolicy p =
      RestorePolicy::FromJson({{"spec",
                                {{"triggers", {{"drain", false}, {"interval", "auto"}}},
                                 {"restore", {{"onFailure", "Fail"}, {"maxAge", "24h"}, {"volumes", "IgnoreDrift"}, {"attempts", 99}}},
                                 {"network", {{"established", "CloseAll"}}},
                                 {"retention", {{"keepLast", 5}, {"maxBytes", "50Gi"}}}}}});
  EXPECT_FALSE(p.spec.triggers.drain);
  EXPECT_TRUE(p.spec.triggers.interval_auto);
  EXPECT_EQ(p.spec.restore.options.on_failure, OnFailure::kFail);
  EXPECT_EQ(p.spec.restore.options.attempts, 10);
  EXPECT_EQ(*p.spec.restore.max_age, std::chrono::hours(24));
  EXPECT_EQ(p.spec.restore.options.established, Established::kCloseAll);
  EXPECT_EQ(RestoreOptions::FromJson(p.spec.restore.options.ToJson()).established, Established::kCloseAll);
  EXPECT_EQ(p.spec.retention.max_bytes, 50LL << 30);
}

TEST(LabelSelector, MatchesAsTheApiDoes) {
  const std::map<std::string, std::string> labels = {{"app", "web"}, {"tier", "front"}};
  struct Case {
    Json selector;
    bool matches;
  };
  for (const Case& c :
       std::initializer_list<Case>{{Json(nullptr), false},
                                   {Json::object(), true},
                                   {{{"matchLabels", {{"app", "web"}}}}, true},
                                   {{{"matchLabels", {{"app", "db"}}}}, false},
                                   {{{"matchExpressions", {{{"key", "app"}, {"operator", "In"}, {"values", {"web", "db"}}}}}}, true},
                                   {{{"matchExpressions", {{{"key", "app"}, {"operator", "NotIn"}, {"values", {"web"}}}}}}, false},
                                   {{{"matchExpressions", {{{"key", "gone"}, {"operator", "NotIn"}, {"values", {"web"}}}}}}, true},
                                   {{{"matchExpressions", {{{"key", "tier"}, {"operator", "Exists"}}}}}, true},
                                   {{{"matchExpressions", {{{"key", "tier"}, {"operator", "DoesNotExist"}}}}}, false},
                                   {{{"matchExpressions", {{{"key", "tier"}, {"operator", "Nonsense"}}}}}, false}}) {
    EXPECT_EQ(LabelSelector::FromJson(c.selector.is_null() ? nullptr : &c.selector).Matches(labels), c.matches) << c.selector;
  }
}

TEST(ParseQuantity, ReadsWholeUnitsOnly) {
  EXPECT_EQ(ParseQuantity("50Gi"), 50LL << 30);
  EXPECT_EQ(ParseQuantity("1500M"), 1500000000);
  EXPECT_EQ(ParseQuantity("12"), 12);
  for (const char* bad : {"", "Gi", "-1", "1.5Gi", "1Zi", "99999999999Gi", "1 Gi"}) EXPECT_FALSE(ParseQuantity(bad)) << bad;
}

}  // namespace
}  // namespace holdfast::api
