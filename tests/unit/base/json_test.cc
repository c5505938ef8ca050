#include "base/json.h"

#include <gtest/gtest.h>

namespace holdfast {
namespace {

TEST(Json, ReadsDefaultsWhereTypesAreWrong) {
  Json json = *ParseJson(R"({"a": {"b": [1, 2], "s": "text", "n": 5, "t": true}})");
  EXPECT_EQ(GetString(json, {"a", "s"}), "text");
  EXPECT_EQ(GetString(json, {"a", "n"}, "other"), "other");
  EXPECT_EQ(GetInt(json, {"a", "n"}), 5);
  EXPECT_EQ(GetInt(json, {"a", "s"}, -1), -1);
  EXPECT_TRUE(GetBool(json, {"a", "t"}));
  EXPECT_EQ(GetArray(json, {"a", "b"}).size(), 2U);
  EXPECT_TRUE(GetArray(json, {"a", "s"}).empty());
  EXPECT_TRUE(GetObject(json, {"x", "y"}).empty());
  EXPECT_EQ(Find(json, {"a", "s", "deeper"}), nullptr);
}

TEST(Json, RefusesMalformedAndBottomlessInput) {
  EXPECT_EQ(ParseJson("{\"a\":").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ParseJson("").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ParseJson(std::string(100000, '[')).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ParseJson(std::string(1000, '[') + std::string(1000, ']')).status().code(), Code::kInvalidArgument);
}

TEST(Json, DumpsInvalidUtf8WithoutThrowing) { EXPECT_EQ(DumpJson(Json("a\xff")), "\"a\xEF\xBF\xBD\""); }

}  // namespace
}  // namespace holdfast
