// Requests that may share connections: one libcurl multi handle on the loop. With HTTP/2 a lane is one connection, so what is heard from
// any of its requests is heard from all; when the connection is dead the lane is, and the transport opens another. With HTTP/1.1 it is a
// pool of connections. Everything here belongs to the loop's thread.
#pragma once

#include <curl/curl.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kube/exchange.h"
#include "kube/loop.h"

namespace holdfast::kube {

// What requests must agree in to share a lane.
struct LaneKey {
  std::string origin;
  bool streams = false;
  uint64_t tls_version = 0, tls_identity = 0;
};

class Lane {
 public:
  // `on_empty` is called when the last request has ended; it must not destroy the lane itself.
  Lane(EventLoop& loop, LaneKey key, const TransportOptions& options, std::function<void()> on_empty);
  ~Lane();  // whatever still runs is cancelled

  const LaneKey& key() const { return key_; }
  // Whether one more request may come: fewer than 90 run (servers allow 100 on a connection), and the lane is not retired.
  bool Open() const { return !retired_ && running_.size() < kCapacity; }
  bool retired() const { return retired_; }
  bool empty() const { return running_.empty(); }
  MonoTime last_used() const { return last_used_; }

  void Start(std::shared_ptr<Exchange> exchange);
  // Ends one request early; its stream is reset, the connection stays. No-op when it has ended or runs elsewhere.
  void Cancel(Exchange* exchange, const Status& why);
  // No new requests from now on; those that run may end.
  void Retire() { retired_ = true; }
  // Everything fails with `why`, and the connection is given up.
  void Kill(const Status& why);

  // A byte came. `http2`: in an answer's first line.
  void Heard(bool http2 = false);
  // A deadline may have moved closer. Also from libcurl's callbacks.
  void LookAgain() { watchdog_.Start(Duration(0)); }

 private:
  static constexpr size_t kCapacity = 90;

  static int OnSocket(CURL* easy, curl_socket_t fd, int what, void* self, void* per_socket);
  static int OnTimer(CURLM* multi, long timeout_ms, void* self);
  void Act(int fd, int events);
  void CollectDone();
  std::shared_ptr<Exchange> Take(Exchange* exchange);
  void Watchdog();
  void Probe();
  TransportOptions Patience(const Exchange& exchange) const;
  TransportOptions LeastPatience() const;
  void GiveUp(MonoTime now);

  EventLoop& loop_;
  const LaneKey key_;
  const TransportOptions options_;
  const std::function<void()> on_empty_;
  CURLM* multi_ = curl_multi_init();
  std::map<int, std::unique_ptr<EventLoop::Socket>> sockets_;
  EventLoop::Timer curl_timer_, watchdog_;
  std::map<Exchange*, std::shared_ptr<Exchange>> running_;  // without the probe
  std::shared_ptr<Exchange> probe_;                         // asks whether the connection lives; null: nobody asks
  bool retired_ = false, http2_ = false;
  MonoTime last_heard_, last_used_;
};

}  // namespace holdfast::kube
