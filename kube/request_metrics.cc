#include "kube/request_metrics.h"

namespace holdfast::kube {
namespace {

class CountingTransport final : public Transport {
 public:
  CountingTransport(std::shared_ptr<Transport> inner, RuntimeMetrics& metrics, std::string host)
      : inner_(std::move(inner)), metrics_(metrics), host_(std::move(host)) {}

  Result<HttpResponse> Send(const HttpRequest& request, std::stop_token stop) override {
    Result<HttpResponse> response = inner_->Send(request, std::move(stop));
    Count(request, response);
    return response;
  }

  Result<HttpResponse> Stream(const HttpRequest& request, const std::function<bool(std::string_view)>& on_chunk,
                              std::stop_token stop) override {
    // A watch may run for an hour: it counts when it begins to answer.
    bool counted = false;
    auto counting = [&](std::string_view chunk) {
      if (!counted) metrics_.Request("200", request.method, host_);
      counted = true;
      return on_chunk(chunk);
    };
    Result<HttpResponse> response = inner_->Stream(request, counting, std::move(stop));
    if (!counted) Count(request, response);
    return response;
  }

 private:
  void Count(const HttpRequest& request, const Result<HttpResponse>& response) {
    metrics_.Request(response.ok() ? std::to_string(response->status) : "<error>", request.method, host_);
  }

  const std::shared_ptr<Transport> inner_;
  RuntimeMetrics& metrics_;
  const std::string host_;
};

}  // namespace

std::shared_ptr<Transport> CountRequests(std::shared_ptr<Transport> transport, RuntimeMetrics& metrics, const std::string& server) {
  const size_t scheme = server.find("://");
  std::string host = scheme == std::string::npos ? server : server.substr(scheme + 3);
  return std::make_shared<CountingTransport>(std::move(transport), metrics, host.substr(0, host.find('/')));
}

}  // namespace holdfast::kube
