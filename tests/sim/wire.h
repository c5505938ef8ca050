// The network between one process and the API server: a Transport that can lose requests and answers, be cut, and bring news late.
#pragma once

#include <string>

#include "kube/http.h"
#include "tests/sim/api_server.h"

namespace holdfast::sim {

struct Weather {
  double lost_requests = 0, lost_answers = 0;                                                   // of calls
  double broken_watches = 0;                                                                    // at each batch of events
  Duration least_lag = std::chrono::milliseconds(1), most_lag = std::chrono::milliseconds(20);  // of events
};

class Wire final : public kube::Transport {
 public:
  Wire(Turns& turns, ApiServer& server, const Weather& weather, std::string user)
      : turns_(turns), server_(server), weather_(weather), user_(std::move(user)) {}
  Result<kube::HttpResponse> Send(const kube::HttpRequest& request, std::stop_token stop) override;
  Result<kube::HttpResponse> Stream(const kube::HttpRequest& request, const std::function<bool(std::string_view)>& on_chunk,
                                    std::stop_token stop) override;
  // From now on nothing goes through; for a process that died, for good.
  void Cut(bool cut) { cut_ = cut; }
  void Kill() { dead_ = true; }
  // No news comes until then; all of it comes after that.
  void HearsNothingUntil(MonoTime until) { deaf_until_ = until; }
  // Called before each call, which may Kill the process that makes it.
  std::function<void()> before_send;

 private:
  bool Open() const { return !cut_ && !dead_; }
  Result<kube::HttpResponse> Watch(const ApiServer::Target& target, const std::function<bool(std::string_view)>& on_chunk,
                                   const std::stop_token& stop);
  Turns& turns_;
  ApiServer& server_;
  const Weather& weather_;
  const std::string user_;
  bool cut_ = false, dead_ = false;
  MonoTime deaf_until_{};
};

}  // namespace holdfast::sim
