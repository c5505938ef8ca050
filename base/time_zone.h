// Wall clocks of the world, read from the system's zoneinfo (RFC 9636, "TZif"; past its last transition, its footer's rule). Immutable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace holdfast {

class TimeZone {
 public:
  // `name` as in the tz database: Europe/Prague. kInvalidArgument: no such name can be; kNotFound: there is no such zone here.
  static Result<TimeZone> Load(const std::string& name, const std::string& folder = "/usr/share/zoneinfo");
  static Result<TimeZone> Parse(std::string_view tzif);
  static TimeZone Utc() { return {}; }

  // Seconds east of UTC at this moment (seconds since 1970, UTC).
  int64_t OffsetAt(int64_t utc) const;
  // When clocks on the wall show `local` (seconds since 1970-01-01 00:00 there). What they show twice is the first time; what they skip,
  // the moment at which they skip it.
  int64_t FromLocal(int64_t local) const;

 private:
  // The day and time of a change, as POSIX's TZ writes it.
  struct Change {
    enum class Kind { kMonthWeekDay, kJulian, kDayOfYear } kind = Kind::kDayOfYear;
    int month = 1, week = 1, day = 0;
    int64_t at = 7200;           // seconds of that day, on the clock before the change
    int64_t In(int year) const;  // local seconds since 1970
  };
  struct Rule {
    int64_t standard = 0, summer = 0;  // seconds east
    bool has_summer = false;
    Change begin, end;
    int64_t OffsetAt(int64_t utc) const;
  };
  struct Transition {
    int64_t at = 0;
    int64_t offset = 0;  // from then on
  };
  static std::optional<Rule> ParseRule(std::string_view text);
  static bool ParseChange(std::string_view* text, Change* change);

  int64_t first_offset_ = 0;  // before the first transition
  std::vector<Transition> transitions_;
  std::optional<Rule> rule_;  // after the last one
};

}  // namespace holdfast
