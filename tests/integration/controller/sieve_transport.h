// What one replica of the controller sees of the API server and does to it, disturbed on purpose, after Sieve (Sun et al., OSDI '22):
// death after the k-th write, a watch event that is never seen, a server that is behind. Only objects of one namespace count, and of all
// the tests' namespaces (test-*) the replica sees that one alone, so several disturbed replicas can run beside each other.
#pragma once

#include <algorithm>
#include <atomic>
#include <mutex>

#include "base/json.h"
#include "kube/http.h"

namespace holdfast::testing {

struct Disturbance {
  int die_after_write = 0;    // k: the k-th write is done, its answer is not heard, and nothing goes through any more; 0: never
  int lose_event = 0;         // m: the m-th watch event is not seen; half a second later its watch expires, as by a compaction; 0: none
  std::string stale_version;  // lists answer as of this version, and watches are silent, for stale_for from the first list; empty: no
  Duration stale_for = std::chrono::seconds(2);
};

class SieveTransport final : public kube::Transport {
 public:
  SieveTransport(std::shared_ptr<kube::Transport> api_server, std::string ns, Disturbance disturbance);

  Result<kube::HttpResponse> Send(const kube::HttpRequest& request, std::stop_token stop) override;
  Result<kube::HttpResponse> Stream(const kube::HttpRequest& request, const std::function<bool(std::string_view)>& on_chunk,
                                    std::stop_token stop) override;
  bool dead() const { return dead_.stop_requested(); }
  int writes() const { return writes_; }  // that the API server did: no dry runs, no events
  int events() const { return events_; }  // watch events, no bookmarks

 private:
  bool Stale();
  bool Foreign(const Json& object) const;
  std::string Filtered(const std::string& list) const;
  kube::HttpRequest AsOf(const kube::HttpRequest& request) const;
  Result<kube::HttpResponse> List(const kube::HttpRequest& request, std::stop_token stop);
  Result<kube::HttpResponse> Watch(const kube::HttpRequest& request, const std::function<bool(std::string_view)>& on_chunk,
                                   std::stop_token stop);

  const std::shared_ptr<kube::Transport> api_server_;
  const std::string ns_;
  const Disturbance disturbance_;
  std::stop_source dead_;
  std::atomic<int> writes_ = 0, events_ = 0;
  std::mutex mutex_;
  MonoTime fresh_at_{};  // from here on the server is no longer behind; zero: no list yet
};

}  // namespace holdfast::testing
