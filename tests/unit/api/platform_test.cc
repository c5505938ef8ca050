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

TEST(Platform, AKernelOfTheSameSeriesOrALaterOneWillDo) {
  struct {
    const char *then, *now;
    bool fits;
  } const cases[] = {
      {"6.18.3", "6.18.3", true},  {"6.18.3-generic", "6.18.0-another", true},
      {"6.18.3", "6.19.0", true},  {"5.15.0-91-generic", "6.1.0-18-amd64", true},
      {"6.10.1", "6.9.12", false}, {"6.1.0", "5.15.160", false},
      {"6.18.3", "6.18", true},    {"6.18", "6.17", false},
      {"", "6.1", true},           {"6.1", "", true},
      {"6.1", "a kernel", true},   {"99999999999.1", "6.1", true},
      {"6", "5.4", true},
  };
  for (const auto& c : cases) EXPECT_EQ(KernelFits(c.then, c.now), c.fits) << c.then << " → " << c.now;
  EXPECT_EQ(KernelSeries("6.18.3-1-generic"), "6.18");
  EXPECT_EQ(KernelSeries("5.15+"), "5.15");
  for (const char* none : {"", "6", "6.", "six.1", "-6.1", "6.-1"}) EXPECT_EQ(KernelSeries(none), "") << none;
}

}  // namespace
}  // namespace holdfast::api
