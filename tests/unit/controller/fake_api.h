// An API server that keeps what it is given: enough of GET, POST, PUT, PATCH and apply for Secrets, ConfigMaps, webhook configurations and
// Checkpoints.
#pragma once

#include <mutex>

#include "kube/client.h"

namespace holdfast::controller::testing {

class FakeApi final : public kube::Transport {
 public:
  std::map<std::string, Json> objects;                   // by path
  std::vector<std::string> calls;                        // "POST /api/…"
  std::function<void(const kube::HttpRequest&)> before;  // e.g. somebody else's write

  Result<kube::HttpResponse> Send(const kube::HttpRequest& request, std::stop_token) override;
  Result<kube::HttpResponse> Stream(const kube::HttpRequest&, const std::function<bool(std::string_view)>&, std::stop_token) override {
    return Status(Code::kUnavailable, "nothing to watch");
  }
  void Put(const std::string& path, Json object);
  size_t Count(const std::string& method) const;

 private:
  kube::HttpResponse Answer(int status, const Json& body) const;
  mutable std::mutex mutex_;
  int version_ = 0;
};

}  // namespace holdfast::controller::testing
