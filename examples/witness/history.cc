#include "witness/history.h"

#include <algorithm>

#include "counter/memory.h"

namespace witness {
namespace {

std::string Hex(uint64_t value) {
  char text[17];
  snprintf(text, sizeof text, "%016" PRIx64, value);
  return text;
}

}  // namespace

History::Counter* History::Find(uint64_t nonce) {
  const auto found = counters_.find(nonce);
  if (found != counters_.end()) return &found->second;
  return counters_.size() < kMaxNonces ? &counters_[nonce] : nullptr;
}

uint64_t History::OnHello(int connection, const counter::Hello& hello) {
  introduced_[connection] = hello;
  Counter* c = Find(hello.nonce);
  if (!c) return 0;
  c->mib = hello.mib;
  c->mib_known = true;
  c->connection = connection;
  c->connections.insert(connection);
  // A process that has reached less than it once told us was restored from an older state: it counts the difference a second time.
  if (hello.count < c->last) c->repeated += c->last - hello.count;
  return c->last;
}

uint64_t History::OnCount(int connection, const counter::Line& line, Times now) {
  Counter* c = Find(line.nonce);
  if (!c) return 0;
  const bool first = c->first == 0;
  if (first) {
    // After a reset of the witness the connection goes on without a new HELLO.
    const auto hello = introduced_.find(connection);
    if (hello != introduced_.end() && hello->second.nonce == line.nonce) {
      c->mib = hello->second.mib;
      c->mib_known = true;
    }
    c->connection = connection;
    c->connections.insert(connection);
    c->first = line.count;
  }
  if (connection != c->connection) c->two_copies = true;
  if (!first && line.count <= c->last) {
    ++c->repeated;
    return c->last;
  }
  if (c->mib_known && line.hash != counter::ExpectedHash(line.nonce, c->mib, line.count)) ++c->hash_mismatches;
  if (!first) {
    c->lost += line.count - c->last - 1;
    const int64_t gap = now.monotonic_ms - c->arrived_ms, own = line.monotonic_ms - c->line.monotonic_ms;
    c->longest_gap_ms = std::max(c->longest_gap_ms, gap);
    c->longest_monotonic_gap_ms = std::max(c->longest_monotonic_gap_ms, own);
    // A line may be held up on its way, by a freeze or a cut network: what passed for the counter tells its own wall clock, too.
    const int64_t passed = std::max(gap, line.realtime_ms - c->line.realtime_ms);
    if (own < 0 || own > passed + 1000) ++c->monotonic_jumps;
    if (gap >= kGapMs) c->gaps.push_back({now.unix_ms, gap, own, c->last, line.count});
    if (c->gaps.size() > kMaxGaps) c->gaps.pop_front();
    if (line.peer_pid != c->line.peer_pid) ++c->peer_changes;
    if (line.token_hash != c->line.token_hash) ++c->token_changes;
  }
  c->loopback_broken |= line.loopback_broken != 0;
  c->share_broken |= line.share_broken != 0;
  c->last = line.count;
  c->arrived_ms = now.monotonic_ms;
  c->line = line;
  return c->last;
}

void History::OnClose(int connection) {
  introduced_.erase(connection);
  for (auto& [nonce, c] : counters_) c.connections.erase(connection);
}

void History::Reset() { counters_.clear(); }

nlohmann::json History::Report() const {
  nlohmann::json nonces = nlohmann::json::object();
  for (const auto& [nonce, c] : counters_) {
    if (c.first == 0) continue;  // said HELLO, has not counted yet
    nlohmann::json gaps = nlohmann::json::array();
    for (const Gap& g : c.gaps)
      gaps.push_back({{"at", g.at_unix_ms}, {"ms", g.ms}, {"monotonic_ms", g.monotonic_ms}, {"from", g.from}, {"to", g.to}});
    nonces[Hex(nonce)] = {{"first", c.first},
                          {"last", c.last},
                          {"lost", c.lost},
                          {"repeated", c.repeated},
                          {"hash_mismatches", c.hash_mismatches},
                          {"longest_gap_ms", c.longest_gap_ms},
                          {"gaps", gaps},
                          {"monotonic_jumps", c.monotonic_jumps},
                          {"longest_monotonic_gap_ms", c.longest_monotonic_gap_ms},
                          {"monotonic_ms", c.line.monotonic_ms},
                          {"loopback_broken", c.loopback_broken},
                          {"share_broken", c.share_broken},
                          {"peer_changes", c.peer_changes},
                          {"reconnects", c.line.reconnects},
                          {"two_copies", c.two_copies},
                          {"connections_now", c.connections.size()},
                          {"token", Hex(c.line.token_hash)},
                          {"token_changes", c.token_changes},
                          {"mib", c.mib}};
  }
  return {{"nonces", nonces}};
}

}  // namespace witness
