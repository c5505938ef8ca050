// The network of a leader that is cut off in the middle of its work: what it writes from then on is neither answered nor lost, but arrives
// when the test says so.
#pragma once

#include <mutex>
#include <vector>

#include "kube/http.h"

namespace holdfast::testing {

class LateTransport final : public kube::Transport {
 public:
  explicit LateTransport(std::shared_ptr<kube::Transport> api_server) : api_server_(std::move(api_server)) {}

  void CutOff() { cut_off_ = true; }  // writes; what it watches goes on, so that it has reasons to write
  // The first write of those that are on their way whose "METHOD /path" contains both; its method is empty while there is none.
  kube::HttpRequest OnTheWay(const std::string& method, const std::string& path) const {
    std::lock_guard lock(mutex_);
    for (const kube::HttpRequest& request : late_) {
      if (request.method == method && request.path.find(path) != std::string::npos) return request;
    }
    return {.method = ""};
  }
  // It arrives, though nobody waits for its answer any more.
  Result<kube::HttpResponse> Deliver(kube::HttpRequest request) {
    request.timeout = std::chrono::seconds(10);
    return api_server_->Send(request, {});
  }

  Result<kube::HttpResponse> Send(const kube::HttpRequest& request, std::stop_token stop) override {
    const bool dry = request.path.find("dryRun=") != std::string::npos || request.body.find("\"dryRun\"") != std::string::npos;
    if (!cut_off_ || request.method == "GET" || dry) return api_server_->Send(request, stop);
    {
      std::lock_guard lock(mutex_);
      late_.push_back(request);
    }
    Clock::Real().Sleep(request.timeout, stop);
    return Status(Code::kUnavailable, "cut off");
  }
  Result<kube::HttpResponse> Stream(const kube::HttpRequest& request, const std::function<bool(std::string_view)>& on_chunk,
                                    std::stop_token stop) override {
    return api_server_->Stream(request, on_chunk, stop);
  }

 private:
  const std::shared_ptr<kube::Transport> api_server_;
  std::atomic<bool> cut_off_ = false;
  mutable std::mutex mutex_;
  std::vector<kube::HttpRequest> late_;
};

}  // namespace holdfast::testing
