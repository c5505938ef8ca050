// What counter and witness say to each other: text lines over one TCP connection.
//   counter: HELLO <nonce> <MiB> <count it has reached>     on every connection, first
//   witness: ACK <last count it has of this nonce, or 0>    to HELLO and after what it received
//   counter: COUNT <fields of Line, in this order>
// The counter keeps every line until it is acknowledged and sends the unacknowledged ones again on a new connection, so that a reset
// connection loses nothing and repeats nothing.
#pragma once

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace counter {

inline constexpr size_t kMaxLineBytes = 512;

struct Line {
  uint64_t nonce = 0, count = 0, hash = 0;
  int64_t monotonic_ms = 0;  // CLOCK_MONOTONIC since the process began
  int64_t realtime_ms = 0;   // CLOCK_REALTIME
  int64_t peer_pid = 0;      // of the child at the other end of the loopback connection
  int64_t reconnects = 0;    // connections to the witness after the first
  uint64_t token_hash = 0;   // of the service-account token's content and time; never the token
  int loopback_broken = 0;   // 1 from the first failure on, for ever
  int share_broken = 0;      // 1 from the first time on that the shared volume went back or away

  std::string Text() const {
    char text[kMaxLineBytes];
    snprintf(text, sizeof text,
             "COUNT %016" PRIx64 " %" PRIu64 " %016" PRIx64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %016" PRIx64 " %d %d\n",
             nonce, count, hash, monotonic_ms, realtime_ms, peer_pid, reconnects, token_hash, loopback_broken, share_broken);
    return text;
  }
  static std::optional<Line> Parse(const std::string& text) {
    Line l;
    int end = 0;
    const int fields = sscanf(
        text.c_str(), "COUNT %" SCNx64 " %" SCNu64 " %" SCNx64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNx64 " %d %d%n",
        &l.nonce, &l.count, &l.hash, &l.monotonic_ms, &l.realtime_ms, &l.peer_pid, &l.reconnects, &l.token_hash, &l.loopback_broken,
        &l.share_broken, &end);
    if (fields != 10 || text.find_first_not_of(" \r\n", end) != std::string::npos || l.count == 0) return std::nullopt;
    return l;
  }
};

struct Hello {
  uint64_t nonce = 0, mib = 0, count = 0;

  std::string Text() const {
    char text[kMaxLineBytes];
    snprintf(text, sizeof text, "HELLO %016" PRIx64 " %" PRIu64 " %" PRIu64 "\n", nonce, mib, count);
    return text;
  }
  static std::optional<Hello> Parse(const std::string& text) {
    Hello h;
    if (sscanf(text.c_str(), "HELLO %" SCNx64 " %" SCNu64 " %" SCNu64, &h.nonce, &h.mib, &h.count) != 3 || h.mib > 1024 * 1024)
      return std::nullopt;
    return h;
  }
};

}  // namespace counter
