#include "base/time_zone.h"

#include <algorithm>
#include <chrono>

#include "base/file.h"

namespace holdfast {
namespace {

constexpr int64_t kDay = 86'400;
constexpr size_t kHeader = 44;
constexpr uint32_t kMaxCount = 100'000;
constexpr int64_t kMaxOffset = int64_t{26} * 3600;
// What a rule is asked for; further away its arithmetic would have to be watched.
constexpr int64_t kFar = 400LL * 366 * kDay * 10;

// Big-endian, signed.
int64_t ReadInt(std::string_view data, size_t at, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value = value << 8 | static_cast<unsigned char>(data[at + i]);
  return bytes == 4 ? static_cast<int32_t>(value) : static_cast<int64_t>(value);
}

struct Counts {
  uint32_t isut, isstd, leap, time, type, chars;
  bool sound() const { return std::max({isut, isstd, leap, time, type, chars}) <= kMaxCount && type > 0; }
  size_t size(size_t time_bytes) const {
    return time * (time_bytes + 1ULL) + type * 6ULL + chars + leap * (time_bytes + 4ULL) + isstd + isut;
  }
};

std::optional<Counts> ReadHeader(std::string_view data, size_t at) {
  if (data.size() < at + kHeader || data.substr(at, 4) != "TZif") return std::nullopt;
  auto count = [&](size_t i) { return static_cast<uint32_t>(ReadInt(data, at + 20 + 4 * i, 4)); };
  Counts counts{count(0), count(1), count(2), count(3), count(4), count(5)};
  if (!counts.sound()) return std::nullopt;
  return counts;
}

bool Take(std::string_view* text, char c) {
  if (text->empty() || text->front() != c) return false;
  text->remove_prefix(1);
  return true;
}

bool TakeNumber(std::string_view* text, int64_t* number, int64_t most) {
  size_t digits = 0;
  *number = 0;
  while (digits < text->size() && digits < 4 && (*text)[digits] >= '0' && (*text)[digits] <= '9')
    *number = *number * 10 + ((*text)[digits++] - '0');
  text->remove_prefix(digits);
  return digits > 0 && *number <= most;
}

// [+-]hh[:mm[:ss]] in seconds.
bool TakeClock(std::string_view* text, int64_t* seconds) {
  const bool minus = Take(text, '-');
  if (!minus) Take(text, '+');
  int64_t hours = 0, minutes = 0, rest = 0;
  if (!TakeNumber(text, &hours, 167)) return false;
  if (Take(text, ':') && !TakeNumber(text, &minutes, 59)) return false;
  if (Take(text, ':') && !TakeNumber(text, &rest, 59)) return false;
  *seconds = (hours * 3600 + minutes * 60 + rest) * (minus ? -1 : 1);
  return true;
}

bool TakeName(std::string_view* text) {
  if (Take(text, '<')) {
    const size_t end = text->find('>');
    if (end == std::string_view::npos) return false;
    text->remove_prefix(end + 1);
    return true;
  }
  size_t letters = 0;
  while (letters < text->size() && ((*text)[letters] | 32) >= 'a' && ((*text)[letters] | 32) <= 'z') ++letters;
  text->remove_prefix(letters);
  return letters >= 3;
}

int64_t DaysOf(std::chrono::sys_days day) { return day.time_since_epoch().count(); }

int YearOf(int64_t seconds) {
  const std::chrono::sys_days day{std::chrono::days(seconds >= 0 ? seconds / kDay : (seconds - kDay + 1) / kDay)};
  return static_cast<int>(std::chrono::year_month_day(day).year());
}

}  // namespace

int64_t TimeZone::Change::In(int year) const {
  using namespace std::chrono;  // NOLINT(google-build-using-namespace): calendar words
  const auto y = std::chrono::year(year);
  sys_days on{y / January / 1};
  switch (kind) {
    case Kind::kMonthWeekDay: {
      const auto m = y / std::chrono::month(static_cast<unsigned>(month));
      const weekday wanted(static_cast<unsigned>(day));
      on = week == 5 ? sys_days(m / wanted[last]) : sys_days(m / wanted[static_cast<unsigned>(week)]);
      break;
    }
    case Kind::kJulian:  // 1 to 365, February 29 is never counted
      on += days(day - 1 + (y.is_leap() && day >= 60 ? 1 : 0));
      break;
    case Kind::kDayOfYear:
      on += days(day);
      break;
  }
  return DaysOf(on) * kDay + at;
}

int64_t TimeZone::Rule::OffsetAt(int64_t utc) const {
  if (!has_summer) return standard;
  const int year = YearOf(utc + standard);
  const int64_t from = begin.In(year) - standard, to = end.In(year) - summer;
  // In the south summer ends before it begins.
  const bool is_summer = from < to ? utc >= from && utc < to : utc >= from || utc < to;
  return is_summer ? summer : standard;
}

bool TimeZone::ParseChange(std::string_view* text, Change* change) {
  int64_t month = 0, week = 0, day = 0;
  if (Take(text, 'M')) {
    change->kind = Change::Kind::kMonthWeekDay;
    if (!TakeNumber(text, &month, 12) || !Take(text, '.') || !TakeNumber(text, &week, 5) || !Take(text, '.') || !TakeNumber(text, &day, 6))
      return false;
    if (month < 1 || week < 1) return false;
  } else if (Take(text, 'J')) {
    change->kind = Change::Kind::kJulian;
    if (!TakeNumber(text, &day, 365) || day < 1) return false;
  } else {
    change->kind = Change::Kind::kDayOfYear;
    if (!TakeNumber(text, &day, 365)) return false;
  }
  change->month = static_cast<int>(month);
  change->week = static_cast<int>(week);
  change->day = static_cast<int>(day);
  return !Take(text, '/') || TakeClock(text, &change->at);
}

// std offset [dst [offset] , begin[/time] , end[/time]], where offsets are west of Greenwich.
std::optional<TimeZone::Rule> TimeZone::ParseRule(std::string_view text) {
  Rule rule;
  int64_t west = 0;
  if (!TakeName(&text) || !TakeClock(&text, &west)) return std::nullopt;
  rule.standard = -west;
  if (text.empty()) return rule;
  if (!TakeName(&text)) return std::nullopt;
  rule.has_summer = true;
  rule.summer = rule.standard + 3600;
  if (!text.empty() && text.front() != ',') {
    if (!TakeClock(&text, &west)) return std::nullopt;
    rule.summer = -west;
  }
  if (!Take(&text, ',') || !ParseChange(&text, &rule.begin) || !Take(&text, ',') || !ParseChange(&text, &rule.end) || !text.empty())
    return std::nullopt;
  return rule;
}

Result<TimeZone> TimeZone::Parse(std::string_view data) {
  const Status malformed(Code::kInvalidArgument, "not a TZif file of version 2 or later");
  const auto old = ReadHeader(data, 0);
  if (!old || data[4] < '2') return malformed;
  const size_t second = kHeader + old->size(4);
  const auto counts = ReadHeader(data, second);
  const size_t body = second + kHeader;
  if (!counts || data.size() < body + counts->size(8)) return malformed;

  TimeZone zone;
  const size_t indexes = body + counts->time * 8ULL, types = indexes + counts->time;
  auto offset_of = [&](size_t type) { return ReadInt(data, types + type * 6, 4); };
  for (size_t i = 0; i < counts->type; ++i) {
    if (std::abs(offset_of(i)) > kMaxOffset) return malformed;
  }
  zone.first_offset_ = offset_of(0);
  zone.transitions_.reserve(counts->time);
  for (size_t i = 0; i < counts->time; ++i) {
    const auto type = static_cast<unsigned char>(data[indexes + i]);
    const int64_t at = ReadInt(data, body + i * 8, 8);
    if (type >= counts->type || (i > 0 && at <= zone.transitions_.back().at)) return malformed;
    zone.transitions_.push_back({at, offset_of(type)});
  }
  std::string_view footer = data.substr(body + counts->size(8));
  if (!Take(&footer, '\n')) return malformed;
  const size_t end = footer.find('\n');
  if (end == std::string_view::npos) return malformed;
  footer = footer.substr(0, end);
  if (!footer.empty()) {
    zone.rule_ = ParseRule(footer);
    if (!zone.rule_) return malformed;
  }
  return zone;
}

Result<TimeZone> TimeZone::Load(const std::string& name, const std::string& folder) {
  if (name == "UTC" || name == "Etc/UTC") return Utc();
  const Status no_name(Code::kInvalidArgument, "\"" + name.substr(0, 64) + "\" is no name of a time zone: write one as Europe/Prague");
  if (name.empty() || name.size() > 64) return no_name;
  size_t from = 0;
  while (from <= name.size()) {
    const size_t to = std::min(name.find('/', from), name.size());
    const std::string part = name.substr(from, to - from);
    const bool word = !part.empty() && std::all_of(part.begin(), part.end(),
                                                   [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c == '+'; });
    if (!word) return no_name;
    from = to + 1;
  }
  auto file = ReadFile(folder + "/" + name, 1 << 20);
  if (!file.ok()) return Status(Code::kNotFound, "there is no time zone " + name + " (" + file.status().message() + ")");
  auto zone = Parse(*file);
  return zone.ok() ? zone : Result<TimeZone>(zone.status().With("time zone " + name));
}

int64_t TimeZone::OffsetAt(int64_t utc) const {
  auto after = std::upper_bound(transitions_.begin(), transitions_.end(), utc, [](int64_t at, const Transition& t) { return at < t.at; });
  if (after == transitions_.end() && rule_) return rule_->OffsetAt(std::clamp(utc, -kFar, kFar));
  return after == transitions_.begin() ? first_offset_ : std::prev(after)->offset;
}

int64_t TimeZone::FromLocal(int64_t local) const {
  // Clocks change by less than a day, and not twice within two.
  const int64_t before = local - OffsetAt(local - 2 * kDay), after = local - OffsetAt(local + 2 * kDay);
  const int64_t first = std::min(before, after), last = std::max(before, after);
  for (int64_t utc : {first, last}) {
    if (utc + OffsetAt(utc) == local) return utc;
  }
  // Skipped: the change lies between the two.
  int64_t old = first, changed = last;
  while (changed - old > 1) {
    const int64_t middle = old + (changed - old) / 2;
    (OffsetAt(middle) == OffsetAt(first) ? old : changed) = middle;
  }
  return changed;
}

}  // namespace holdfast
