// Ten thousand pods without their text in memory: an API server inside the process that writes each pod when it is asked for.
#pragma once

#include <string>

#include "kube/http.h"

namespace holdfast::bench {

// The JSON of a running pod of two containers, 5.4 KB, or of its metadata. `version`: its resourceVersion.
std::string PodText(int index, int version, bool metadata_only);

struct PodServerOptions {
  int pods = 10000;
  bool watch_list = true;
  bool metadata_only = false;
};

// Serves pods, page by page or as a stream. A watch ends with 410 after Expire.
class PodServer final : public kube::Transport {
 public:
  explicit PodServer(PodServerOptions options) : options_(options) {}
  Result<kube::HttpResponse> Send(const kube::HttpRequest&, std::stop_token) override { return Status(Code::kUnsupported, "not used"); }
  Result<kube::HttpResponse> Stream(const kube::HttpRequest& request, const std::function<bool(std::string_view)>& on_chunk,
                                    std::stop_token stop) override;
  // The watch that is open, or the next one, ends with 410: everything is listed again. The first `changed` pods have a new version then.
  void Expire(int changed);
  // The watch sends this many MODIFIED events, prepared beforehand, round and round.
  void SendEvents(int count);
  int lists() const { return lists_; }

 private:
  Result<kube::HttpResponse> List(const kube::HttpRequest& request, const std::function<bool(std::string_view)>& on_chunk);
  Result<kube::HttpResponse> Watch(const std::function<bool(std::string_view)>& on_chunk, std::stop_token stop);
  std::string Pod(int index) const;

  const PodServerOptions options_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool expire_ = false;
  int events_ = 0;
  std::atomic<int> changed_pods_{0}, generation_{0}, lists_{0};
};

}  // namespace holdfast::bench
