// What the witness knows of each counter, by its nonce: which counts came when, and what was wrong with them. Pure: times come in.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "counter/line.h"

namespace witness {

struct Times {
  int64_t monotonic_ms = 0;
  int64_t unix_ms = 0;
};

class History {
 public:
  // A counter introduces itself on connection `connection`. The last count known of it, 0 if none. Everything that had arrived on its
  // older connections must have been given to Count before: whatever comes there later comes from a second copy.
  uint64_t OnHello(int connection, const counter::Hello& hello);
  // One count. The last count known now.
  uint64_t OnCount(int connection, const counter::Line& line, Times now);
  void OnClose(int connection);
  void Reset();
  nlohmann::json Report() const;

 private:
  static constexpr size_t kMaxNonces = 1024, kMaxGaps = 1000;
  static constexpr int64_t kGapMs = 1000;  // from here on a gap is listed

  struct Gap {
    int64_t at_unix_ms, ms, monotonic_ms;  // monotonic_ms: what passed meanwhile by the counter's own CLOCK_MONOTONIC
    uint64_t from, to;
  };
  struct Counter {
    uint64_t mib = 0;
    bool mib_known = false;
    int connection = -1;  // the newest one
    std::set<int> connections;
    uint64_t first = 0, last = 0, lost = 0, repeated = 0, hash_mismatches = 0, monotonic_jumps = 0, peer_changes = 0, token_changes = 0;
    int64_t longest_gap_ms = 0, longest_monotonic_gap_ms = 0, arrived_ms = 0;
    std::deque<Gap> gaps;
    bool loopback_broken = false, share_broken = false, two_copies = false;
    counter::Line line;  // the last one
  };
  Counter* Find(uint64_t nonce);

  std::map<uint64_t, Counter> counters_;
  std::map<int, counter::Hello> introduced_;  // survives Reset: connections do
};

}  // namespace witness
