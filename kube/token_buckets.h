// A token bucket for each of many names: `burst` at once, then one every `refill`. Names that have all their tokens back are forgotten;
// when `max_names` are still short of some, the one that was asked for longest ago is. Thread-compatible.
#pragma once

#include <algorithm>
#include <list>
#include <string>
#include <unordered_map>

#include "base/clock.h"

namespace holdfast::kube {

class TokenBuckets {
 public:
  TokenBuckets(int burst, Duration refill, size_t max_names) : burst_(burst), refill_(refill), max_names_(max_names) {}

  bool Take(const std::string& name, MonoTime now) {
    auto found = by_name_.find(name);
    if (found == by_name_.end()) {
      if (by_name_.size() >= max_names_) Forget(std::prev(order_.end()));
      order_.push_front({name, burst_, now});
      found = by_name_.emplace(name, order_.begin()).first;
    } else {
      order_.splice(order_.begin(), order_, found->second);
    }
    Bucket& bucket = *found->second;
    const int64_t back = (now - bucket.since) / refill_;
    if (back > 0) {
      bucket.tokens = static_cast<int>(std::min<int64_t>(burst_, bucket.tokens + back));
      bucket.since += refill_ * back;
    }
    if (bucket.tokens == burst_) bucket.since = now;
    const bool had = bucket.tokens > 0;
    if (had) --bucket.tokens;
    while (order_.size() > 1 && order_.back().since + refill_ * burst_ <= now) Forget(std::prev(order_.end()));
    return had;
  }
  size_t size() const { return by_name_.size(); }

 private:
  struct Bucket {
    std::string name;
    int tokens;
    MonoTime since;  // the next token comes at since + refill
  };

  void Forget(std::list<Bucket>::iterator at) {
    by_name_.erase(at->name);
    order_.erase(at);
  }

  const int burst_;
  const Duration refill_;
  const size_t max_names_;
  std::list<Bucket> order_;  // the one asked for last in front
  std::unordered_map<std::string, std::list<Bucket>::iterator> by_name_;
};

}  // namespace holdfast::kube
