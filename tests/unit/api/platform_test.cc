#include "api/platform.h"

#include <gtest/gtest.h>

namespace holdfast::api {
namespace {

TEST(Platform, WhatIsMissingIsNamedAndNothingElse) {
  EXPECT_EQ(MissingFeatures("avx avx2", "avx avx2 avx512f"), "");
  EXPECT_EQ(MissingFeatures("avx avx2 sha_ni", "avx"), "avx2 sha_ni");
  EXPECT_EQ(MissingFeatures("avx", "avx2"), "avx") << "a name that begins alike is another one";
  EXPECT_EQ(MissingFeatures("", ""), "");
  EXPECT_EQ(MissingFeatures("  a  b ", "b"), "a");
}

TEST(Platform, ASetIsALabelsValueAndTheSameForTheSameFeatures) {
  EXPECT_EQ(FeatureSet("a"), "af63dc4c8601ec8c") << "FNV-1a: its published value";
  EXPECT_EQ(FeatureSet("avx avx2").size(), 16u);
  EXPECT_NE(FeatureSet("avx avx2"), FeatureSet("avx"));
  EXPECT_EQ(FeatureSet(""), "");
}

}  // namespace
}  // namespace holdfast::api
