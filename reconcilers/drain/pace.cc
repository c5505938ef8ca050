#include "reconcilers/drain/pace.h"

#include <algorithm>

namespace holdfast::reconcilers::drain {
namespace {

// A shorter one is mostly what does not depend on its size: the freeze, the dump, the round trips.
constexpr Duration kTells = std::chrono::seconds(10);
constexpr int64_t kLeastPace = int64_t{64} << 10;  // what is slower stands still
constexpr double kOfItsTime = 0.75;                // what it is to be done within; the rest is for what was estimated badly

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

struct Span {
  WallTime from, until;
  int64_t bytes;
};

// Of several at a time the node was at work once.
Duration TimeAtWork(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.from < b.from; });
  Duration at_work{0};
  WallTime counted = WallTime::min();
  for (const Span& span : spans) {
    const WallTime from = std::max(span.from, counted);
    if (span.until > from) at_work += span.until - from;
    counted = std::max(counted, span.until);
  }
  return at_work;
}

}  // namespace

Pace PaceOf(const std::vector<CheckpointPtr>& on_node, WallTime now) {
  std::vector<Span> slow, quick;
  Pace pace;
  int64_t largest = 0;
  for (const CheckpointPtr& c : on_node) {
    const auto from = ParseTime(c->status.started_at);
    const bool ready = c->status.phase == api::Phase::kReady;
    if (!from || (!ready && (!UnderWay(*c) || c->status.progress_total == 0)) || (ready && now - CompletedAt(*c) > kPaceIsOf)) continue;
    largest = std::max(largest, BytesOf(*c, 0));
    const Span span{*from, ready ? CompletedAt(*c) : now, BytesOf(*c, 0) - BytesLeftOf(*c, 0)};
    if (span.until - span.from >= kTells) {
      slow.push_back(span);
    } else if (ready || span.bytes > 0) {
      quick.push_back(span);
    }
  }
  if (largest > 0) pace.usual_bytes = largest;
  int64_t bytes = 0;
  WallTime slow_until = WallTime::min();
  for (const Span& span : slow) {
    bytes += span.bytes;
    slow_until = std::max(slow_until, span.until);
  }
  if (!slow.empty()) {
    pace.bytes_per_second = std::max(kLeastPace, static_cast<int64_t>(static_cast<double>(bytes) / Seconds(TimeAtWork(std::move(slow)))));
    pace.measured = true;
  }
  // At least as fast as it was since then: what was slow may have waited for a store that was away.
  for (const Span& span : quick) {
    const double took = Seconds(std::max<Duration>(span.until - span.from, std::chrono::seconds(1)));
    if (span.from >= slow_until)
      pace.bytes_per_second = std::max(pace.bytes_per_second, static_cast<int64_t>(static_cast<double>(span.bytes) / took));
  }
  return pace;
}

int64_t BytesOf(const api::Checkpoint& c, int64_t expected) {
  if (const int64_t done = c.status.memory_bytes + c.status.files_bytes; done > 0) return done;
  if (c.status.progress_total > 0) return c.status.progress_total;
  return expected;
}

int64_t BytesLeftOf(const api::Checkpoint& c, int64_t expected) {
  if (c.done()) return 0;
  return std::max<int64_t>(0, BytesOf(c, expected) - c.status.progress_bytes);
}

bool Fits(const std::vector<Load>& load, int64_t before_it, int64_t bytes, Duration time, int64_t bytes_per_second) {
  if (load.empty() && before_it == 0) return true;
  int64_t under_way = 0;
  for (const Load& one : load) under_way += one.bytes_left;
  const int64_t all = under_way + before_it + bytes;
  const auto takes = [&](int64_t of) { return static_cast<double>(of) / static_cast<double>(bytes_per_second); };
  if (takes(all) > Seconds(time) * kOfItsTime) return false;
  // They share the way to the store. Who is late as it is, is not helped by waiting.
  const auto sharers = static_cast<int64_t>(load.size());
  return std::all_of(load.begin(), load.end(), [&](const Load& one) {
    const double time_left = Seconds(one.time_left);
    return takes(std::min(all, (sharers + 1) * one.bytes_left)) <= time_left ||
           takes(std::min(under_way, sharers * one.bytes_left)) > time_left;
  });
}

}  // namespace holdfast::reconcilers::drain
