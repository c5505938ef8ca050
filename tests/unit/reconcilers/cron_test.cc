#include "reconcilers/suspendedworkload/cron.h"

#include <gtest/gtest.h>

#include "base/time_format.h"

namespace holdfast::reconcilers::suspendedworkload {
namespace {

struct Case {
  const char* cron;
  const char* zone;
  const char* now;
  const char* last;
  const char* next;
};

const Case kCases[] = {
    {"0 20 * * 1-5", "UTC", "2026-06-03T12:00:00Z", "2026-06-02T20:00:00Z", "2026-06-03T20:00:00Z"},
    {"0 20 * * mon-fri", "UTC", "2026-06-05T20:00:00Z", "2026-06-05T20:00:00Z", "2026-06-08T20:00:00Z"},
    {"0 20 * * 1-5", "Europe/Prague", "2026-06-05T18:30:00Z", "2026-06-05T18:00:00Z", "2026-06-08T18:00:00Z"},
    {"0 20 * * 1-5", "Europe/Prague", "2026-12-04T18:30:00Z", "2026-12-03T19:00:00Z", "2026-12-04T19:00:00Z"},
    // Over the change of the clocks: the same time on the wall.
    {"0 7 * * *", "Europe/Prague", "2026-03-28T12:00:00Z", "2026-03-28T06:00:00Z", "2026-03-29T05:00:00Z"},
    {"0 7 * * *", "Europe/Prague", "2026-10-24T12:00:00Z", "2026-10-24T05:00:00Z", "2026-10-25T06:00:00Z"},
    // In the hour that is skipped: at once after it. In the one that comes twice: once.
    {"30 2 * * *", "Europe/Prague", "2026-03-28T12:00:00Z", "2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z"},
    {"30 2 * * *", "Europe/Prague", "2026-10-25T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
    {"*/15 * * * *", "UTC", "2026-06-03T12:07:00Z", "2026-06-03T12:00:00Z", "2026-06-03T12:15:00Z"},
    {"5,35 8-10/2 * * *", "UTC", "2026-06-03T09:00:00Z", "2026-06-03T08:35:00Z", "2026-06-03T10:05:00Z"},
    {"0 0 1 jan *", "UTC", "2026-06-03T00:00:00Z", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"},
    {"0 0 29 2 *", "UTC", "2026-06-03T00:00:00Z", "2024-02-29T00:00:00Z", "2028-02-29T00:00:00Z"},
    // Either day will do, when both are given: the 13th, and Fridays.
    {"0 0 13 * 5", "UTC", "2026-06-10T00:00:00Z", "2026-06-05T00:00:00Z", "2026-06-12T00:00:00Z"},
    {"0 0 * * 7", "UTC", "2026-06-10T00:00:00Z", "2026-06-07T00:00:00Z", "2026-06-14T00:00:00Z"},
    {"0 1 * * *", "Pacific/Kiritimati", "2026-06-09T12:00:00Z", "2026-06-09T11:00:00Z", "2026-06-10T11:00:00Z"},
};

TEST(Cron, KnowsItsLastAndItsNextTime) {
  for (const Case& c : kCases) {
    auto cron = Cron::Parse(c.cron);
    ASSERT_TRUE(cron.ok()) << cron.status().ToString();
    auto zone = TimeZone::Load(c.zone);
    ASSERT_TRUE(zone.ok()) << zone.status().ToString();
    const auto last = cron->Last(*ParseTime(c.now), *zone), next = cron->Next(*ParseTime(c.now), *zone);
    ASSERT_TRUE(last && next) << c.cron;
    EXPECT_EQ(FormatTime(*last), c.last) << c.cron << " " << c.zone << " " << c.now;
    EXPECT_EQ(FormatTime(*next), c.next) << c.cron << " " << c.zone << " " << c.now;
  }
}

TEST(Cron, GoesThroughAYearWithoutMissingOrRepeatingADay) {
  const Cron cron = *Cron::Parse("30 2 * * *");
  const TimeZone zone = *TimeZone::Load("America/New_York");
  WallTime at = *ParseTime("2026-01-01T00:00:00Z");
  int days = 0;
  for (; days < 365; ++days) {
    const auto next = cron.Next(at, zone);
    ASSERT_TRUE(next);
    EXPECT_GE(*next - at, std::chrono::hours(days == 0 ? 0 : 22));
    EXPECT_EQ(cron.Last(*next, zone), next);
    at = *next;
  }
  EXPECT_EQ(FormatTime(at), "2026-12-31T07:30:00Z");
}

TEST(Cron, ADayThatNeverComesIsNeverDue) {
  const Cron cron = *Cron::Parse("0 0 31 2 *");
  EXPECT_FALSE(cron.Next(*ParseTime("2026-06-03T00:00:00Z"), TimeZone::Utc()));
  EXPECT_FALSE(cron.Last(*ParseTime("2026-06-03T00:00:00Z"), TimeZone::Utc()));
}

TEST(Cron, SaysWhichFieldIsWrong) {
  struct Wrong {
    const char* text;
    const char* says;
  };
  for (const Wrong& w : std::initializer_list<Wrong>{{"", "it has 0 fields"},
                                                     {"0 20 * *", "it has 4 fields"},
                                                     {"@daily", "it has 1 fields"},
                                                     {"60 20 * * *", "its minute is \"60\""},
                                                     {"0 24 * * *", "its hour is \"24\""},
                                                     {"0 0 0 * *", "its day of the month is \"0\""},
                                                     {"0 0 * 13 *", "its month is \"13\""},
                                                     {"0 0 * * 8", "its day of the week is \"8\""},
                                                     {"0 0 * * fri-mon", "its day of the week"},
                                                     {"*/0 * * * *", "its minute"},
                                                     {"*/x * * * *", "its minute"},
                                                     {"1-2-3 * * * *", "its minute"},
                                                     {"1, * * * *", "its minute"},
                                                     {"-1 * * * *", "its minute"}}) {
    auto cron = Cron::Parse(w.text);
    ASSERT_FALSE(cron.ok()) << w.text;
    EXPECT_NE(cron.status().message().find(w.says), std::string::npos) << cron.status().message();
  }
  EXPECT_FALSE(Cron::Parse(std::string(300, '*')).ok());
}

}  // namespace
}  // namespace holdfast::reconcilers::suspendedworkload
