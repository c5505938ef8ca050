#include "base/time_zone.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/time_format.h"

namespace holdfast {
namespace {

int64_t Utc(const std::string& text) { return std::chrono::floor<std::chrono::seconds>(*ParseTime(text)).time_since_epoch().count(); }

TimeZone Zone(const std::string& name) {
  auto zone = TimeZone::Load(name);
  EXPECT_TRUE(zone.ok()) << zone.status().ToString();
  return zone.value_or(TimeZone::Utc());
}

struct Moment {
  const char* zone;
  const char* utc;
  int64_t minutes;  // east
};

TEST(TimeZone, KnowsItsOffsetAtEachMoment) {
  for (const Moment& m : std::initializer_list<Moment>{{"UTC", "2026-07-01T00:00:00Z", 0},
                                                       {"Europe/Prague", "2026-01-15T12:00:00Z", 60},
                                                       {"Europe/Prague", "2026-03-29T00:59:59Z", 60},
                                                       {"Europe/Prague", "2026-03-29T01:00:00Z", 120},
                                                       {"Europe/Prague", "2026-10-25T00:59:59Z", 120},
                                                       {"Europe/Prague", "2026-10-25T01:00:00Z", 60},
                                                       {"America/New_York", "2026-07-01T00:00:00Z", -240},
                                                       {"America/New_York", "2026-12-01T00:00:00Z", -300},
                                                       {"Asia/Kolkata", "2026-12-01T00:00:00Z", 330},
                                                       {"Australia/Lord_Howe", "2026-01-01T00:00:00Z", 660},
                                                       {"Australia/Lord_Howe", "2026-07-01T00:00:00Z", 630},
                                                       {"Africa/Cairo", "1970-06-01T00:00:00Z", 180},
                                                       // After the last transition that a file lists its footer's rule holds.
                                                       {"Europe/Prague", "2060-07-01T00:00:00Z", 120},
                                                       {"Europe/Prague", "2060-12-01T00:00:00Z", 60},
                                                       {"Australia/Sydney", "2060-12-01T00:00:00Z", 660},
                                                       {"Australia/Sydney", "2060-07-01T00:00:00Z", 600},
                                                       {"Asia/Tokyo", "2060-07-01T00:00:00Z", 540}}) {
    EXPECT_EQ(Zone(m.zone).OffsetAt(Utc(m.utc)), m.minutes * 60) << m.zone << " " << m.utc;
  }
}

struct Wall {
  const char* zone;
  const char* shown;  // on the wall, written as if it were UTC
  const char* utc;
};

TEST(TimeZone, FindsTheMomentAtWhichTheClockShowsATime) {
  for (const Wall& w : std::initializer_list<Wall>{{"Europe/Prague", "2026-01-15T20:00:00Z", "2026-01-15T19:00:00Z"},
                                                   {"Europe/Prague", "2026-07-15T20:00:00Z", "2026-07-15T18:00:00Z"},
                                                   // 02:00 to 03:00 does not come: when it is skipped.
                                                   {"Europe/Prague", "2026-03-29T02:30:00Z", "2026-03-29T01:00:00Z"},
                                                   {"Europe/Prague", "2026-03-29T02:00:00Z", "2026-03-29T01:00:00Z"},
                                                   {"Europe/Prague", "2026-03-29T03:00:00Z", "2026-03-29T01:00:00Z"},
                                                   {"Europe/Prague", "2026-03-29T01:59:00Z", "2026-03-29T00:59:00Z"},
                                                   // 02:00 to 03:00 comes twice: the first time.
                                                   {"Europe/Prague", "2026-10-25T02:30:00Z", "2026-10-25T00:30:00Z"},
                                                   {"Europe/Prague", "2026-10-25T03:00:00Z", "2026-10-25T02:00:00Z"},
                                                   // A whole day was skipped.
                                                   {"Pacific/Apia", "2011-12-30T12:00:00Z", "2011-12-30T10:00:00Z"},
                                                   {"Pacific/Apia", "2011-12-31T12:00:00Z", "2011-12-30T22:00:00Z"},
                                                   {"Europe/Prague", "2060-07-15T20:00:00Z", "2060-07-15T18:00:00Z"}}) {
    EXPECT_EQ(Zone(w.zone).FromLocal(Utc(w.shown)), Utc(w.utc)) << w.zone << " " << w.shown;
  }
}

TEST(TimeZone, EveryMomentIsFoundAgainByWhatTheClockShows) {
  for (const char* name : {"Europe/Prague", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia"}) {
    const TimeZone zone = Zone(name);
    for (int64_t utc = Utc("2005-01-01T00:00:00Z"); utc < Utc("2045-01-01T00:00:00Z"); utc += 1999 * 60) {
      const int64_t local = utc + zone.OffsetAt(utc), found = zone.FromLocal(local);
      EXPECT_EQ(found + zone.OffsetAt(found), local) << name << " " << utc;
      EXPECT_LE(found, utc) << name;
    }
  }
}

TEST(TimeZone, ANameLeadsNowhereElse) {
  for (const char* name :
       {"", "..", "../../etc/passwd", "/etc/passwd", "Europe/../Europe/Prague", "Europe//Prague", "Europe/", "a b", "Europe/Prague\n"}) {
    EXPECT_EQ(TimeZone::Load(name).status().code(), Code::kInvalidArgument) << name;
  }
  EXPECT_EQ(TimeZone::Load("Europe/Atlantis").status().code(), Code::kNotFound);
  EXPECT_FALSE(TimeZone::Load("Europe").ok()) << "a folder";
}

TEST(TimeZone, ADamagedFileIsRefused) {
  const std::string whole = *ReadFile("/usr/share/zoneinfo/Europe/Prague");
  ASSERT_TRUE(TimeZone::Parse(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(TimeZone::Parse(whole.substr(0, size)).ok()) << size;
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0xff);
    auto zone = TimeZone::Parse(damaged);
    if (zone.ok()) (void)zone->FromLocal(Utc("2026-03-29T02:30:00Z"));  // whatever it says, it ends
  }
}

}  // namespace
}  // namespace holdfast
