#include "reconcilers/suspendedworkload/cron.h"

#include <algorithm>
#include <charconv>
#include <vector>

namespace holdfast::reconcilers::suspendedworkload {
namespace {

using std::chrono::seconds;

constexpr int64_t kDay = 86'400;
constexpr int64_t kHorizon = int64_t{9} * 366;  // days
constexpr size_t kMaxText = 256;
constexpr std::string_view kMonths[] = {"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"};
constexpr std::string_view kWeekdays[] = {"sun", "mon", "tue", "wed", "thu", "fri", "sat"};

struct Field {
  const char* name;
  int least, most;
  const std::string_view* names = nullptr;
  size_t count = 0;
};
constexpr Field kFields[] = {{"minute", 0, 59},
                             {"hour", 0, 23},
                             {"day of the month", 1, 31},
                             {"month", 1, 12, kMonths, std::size(kMonths)},
                             {"day of the week", 0, 7, kWeekdays, std::size(kWeekdays)}};

std::vector<std::string> Split(std::string_view text, char by) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (c == by) {
      parts.emplace_back();
    } else {
      parts.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return parts;
}

std::optional<int> ReadNumber(const Field& field, const std::string& text) {
  for (size_t i = 0; i < field.count; ++i) {
    if (field.names[i] == text) return static_cast<int>(i) + field.least;
  }
  int number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < field.least || number > field.most) return std::nullopt;
  return number;
}

// One of a field's parts between commas: the numbers that it means, by `set`.
template <class Set>
bool ReadPart(const Field& field, const std::string& part, Set set) {
  const std::vector<std::string> stepped = Split(part, '/');
  if (stepped.size() > 2) return false;
  int from = field.least, to = field.most, step = 1;
  if (stepped[0] != "*") {
    const std::vector<std::string> ends = Split(stepped[0], '-');
    const auto first = ReadNumber(field, ends[0]);
    if (ends.size() > 2 || !first) return false;
    from = *first;
    // 5/10 is 5-59/10.
    if (ends.size() == 2) {
      const auto last = ReadNumber(field, ends[1]);
      if (!last || *last < from) return false;
      to = *last;
    } else if (stepped.size() == 1) {
      to = from;
    }
  }
  if (stepped.size() == 2) {
    auto [end, error] = std::from_chars(stepped[1].data(), stepped[1].data() + stepped[1].size(), step);
    if (error != std::errc() || end != stepped[1].data() + stepped[1].size() || step < 1 || step > field.most) return false;
  }
  for (int number = from; number <= to; number += step) set(number);
  return true;
}

int64_t DayOf(int64_t local) { return local >= 0 ? local / kDay : (local - kDay + 1) / kDay; }
int64_t SecondsOf(WallTime time) { return std::chrono::floor<seconds>(time).time_since_epoch().count(); }

}  // namespace

Result<Cron> Cron::Parse(std::string_view text) {
  auto wrong = [&](const std::string& what) {
    return Status(Code::kInvalidArgument,
                  "\"" + std::string(text.substr(0, 64)) + "\" is no schedule: " + what + "; write five fields as in \"0 20 * * mon-fri\"");
  };
  if (text.size() > kMaxText) return wrong("it is too long");
  std::vector<std::string> fields;
  for (const std::string& field : Split(text, ' ')) {
    if (!field.empty()) fields.push_back(field);
  }
  if (fields.size() != std::size(kFields)) return wrong("it has " + std::to_string(fields.size()) + " fields");
  Cron cron;
  auto set = [&](size_t field, int number) {
    switch (field) {
      case 0:
        return void(cron.minutes_.set(number));
      case 1:
        return void(cron.hours_.set(number));
      case 2:
        return void(cron.days_.set(number));
      case 3:
        return void(cron.months_.set(number));
      default:
        return void(cron.weekdays_.set(number % 7));
    }
  };
  for (size_t i = 0; i < fields.size(); ++i) {
    for (const std::string& part : Split(fields[i], ',')) {
      if (!ReadPart(kFields[i], part, [&](int number) { set(i, number); }))
        return wrong("its " + std::string(kFields[i].name) + " is \"" + fields[i].substr(0, 64) + "\"");
    }
  }
  cron.any_day_ = fields[2].starts_with('*');
  cron.any_weekday_ = fields[4].starts_with('*');
  return cron;
}

bool Cron::On(int64_t day) const {
  const std::chrono::sys_days date{std::chrono::days(day)};
  const std::chrono::year_month_day calendar(date);
  if (!months_.test(static_cast<unsigned>(calendar.month()))) return false;
  const bool of_month = days_.test(static_cast<unsigned>(calendar.day()));
  const bool of_week = weekdays_.test(std::chrono::weekday(date).c_encoding());
  return any_day_ || any_weekday_ ? of_month && of_week : of_month || of_week;
}

std::optional<WallTime> Cron::Next(WallTime now, const TimeZone& zone) const {
  const int64_t utc = SecondsOf(now), today = DayOf(utc + zone.OffsetAt(utc));
  for (int64_t day = today - 1; day <= today + kHorizon; ++day) {
    if (!On(day)) continue;
    for (int hour = 0; hour < 24; ++hour) {
      for (int minute = 0; hours_.test(hour) && minute < 60; ++minute) {
        if (!minutes_.test(minute)) continue;
        const int64_t due = zone.FromLocal(day * kDay + int64_t{60} * (60 * hour + minute));
        if (due > utc) return WallTime(seconds(due));
      }
    }
  }
  return std::nullopt;
}

std::optional<WallTime> Cron::Last(WallTime now, const TimeZone& zone) const {
  const int64_t utc = SecondsOf(now), today = DayOf(utc + zone.OffsetAt(utc));
  for (int64_t day = today + 1; day >= today - kHorizon; --day) {
    if (!On(day)) continue;
    for (int hour = 23; hour >= 0; --hour) {
      for (int minute = 59; hours_.test(hour) && minute >= 0; --minute) {
        if (!minutes_.test(minute)) continue;
        const int64_t due = zone.FromLocal(day * kDay + int64_t{60} * (60 * hour + minute));
        if (due <= utc) return WallTime(seconds(due));
      }
    }
  }
  return std::nullopt;
}

}  // namespace holdfast::reconcilers::suspendedworkload
