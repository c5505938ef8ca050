#include "base/time_format.h"

#include <gtest/gtest.h>

namespace holdfast {
namespace {

using namespace std::chrono_literals;

TEST(TimeFormat, WritesAndReadsWhatTheApiServerWrites) {
  WallTime time = WallTime(1767323045s) + 6us;
  EXPECT_EQ(FormatTime(time), "2026-01-02T03:04:05Z");
  EXPECT_EQ(FormatMicroTime(time), "2026-01-02T03:04:05.000006Z");
  EXPECT_EQ(ParseTime("2026-01-02T03:04:05.000006Z"), time);
  EXPECT_EQ(ParseTime("2026-01-02T03:04:05Z"), WallTime(1767323045s));
}

TEST(TimeFormat, RefusesWhatIsNotATime) {
  for (const char* text : {"", "yesterday", "2026-01-02", "2026-01-02T03:04:05", "2026-01-02T03:04:05Zjunk", "2026-01-02T03:04:05+02:00"}) {
    EXPECT_FALSE(ParseTime(text).has_value()) << text;
  }
}

TEST(Duration, ReadsGoSyntax) {
  EXPECT_EQ(ParseDuration("100s"), Duration(100s));
  EXPECT_EQ(ParseDuration("1h30m"), Duration(90min));
  EXPECT_EQ(ParseDuration("1.5s"), Duration(1500ms));
  EXPECT_EQ(ParseDuration("250ms"), Duration(250ms));
  EXPECT_EQ(ParseDuration("0"), Duration(0));
}

TEST(Duration, RefusesNegativeMalformedAndAbsurd) {
  for (const char* text : {"", "-5s", "5", "s", "5 s", "1e400h", "99999999h", "5d", "5s!", "+5s", "nan"}) {
    EXPECT_FALSE(ParseDuration(text).has_value()) << text;
  }
}

TEST(Duration, WritesWhatPeopleWrite) {
  EXPECT_EQ(FormatDuration(100s), "1m40s");
  EXPECT_EQ(FormatDuration(1h), "1h");
  EXPECT_EQ(FormatDuration(250ms), "250ms");
}

TEST(TimeFormat, FractionsBefore1970AreReadAsTheyWereWritten) {
  const auto time = ParseTime("1884-01-02T05:04:00.000406Z");
  ASSERT_TRUE(time);
  EXPECT_EQ(FormatMicroTime(*time), "1884-01-02T05:04:00.000406Z");
}

TEST(TimeFormat, YearsThatNanosecondsCannotCountReadAsNothing) {
  EXPECT_FALSE(ParseTime("0002-01-02T03:04:05Z"));
  EXPECT_FALSE(ParseTime("1600-01-02T03:04:05Z"));
  EXPECT_FALSE(ParseTime("9999-12-31T23:59:59Z"));
  EXPECT_TRUE(ParseTime("2261-12-31T23:59:59Z"));
}

}  // namespace
}  // namespace holdfast
