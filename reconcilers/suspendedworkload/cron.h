// When a schedule in cron's words is due. Five fields: minute, hour, day of the month, month, day of the week (0 and 7 are Sunday); each *,
// a number, a name (jan, mon), a range 1-5, a step */15 or 8-18/2, or several of these with commas. When both days are given (neither is
// *), either will do. The clock is that of a time zone: what it skips is due at the moment at which it skips it, what it shows twice is due
// the first time.
#pragma once

#include <bitset>
#include <optional>

#include "base/clock.h"
#include "base/time_zone.h"

namespace holdfast::reconcilers::suspendedworkload {

class Cron {
 public:
  static Result<Cron> Parse(std::string_view text);  // kInvalidArgument: what is wrong, and with which field
  // The first time later than `now`, the last one not later; nothing: not within nine years (February 29 may be that far).
  std::optional<WallTime> Next(WallTime now, const TimeZone& zone) const;
  std::optional<WallTime> Last(WallTime now, const TimeZone& zone) const;

 private:
  bool On(int64_t day) const;  // since 1970, on the calendar of the zone
  std::bitset<60> minutes_;
  std::bitset<24> hours_;
  std::bitset<32> days_;
  std::bitset<13> months_;
  std::bitset<7> weekdays_;
  bool any_day_ = false, any_weekday_ = false;
};

}  // namespace holdfast::reconcilers::suspendedworkload
