// The seam to the network: one HTTP request, whole or streamed. Everything above it (client, informers, lease) takes a Transport, so tests
// run on a fake one. Implementations are thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "kube/config.h"

namespace holdfast::kube {

struct HttpRequest {
  std::string method = "GET";
  std::string path{};                            // "/api/v1/pods?limit=500", below ClientConfig::server; or a whole https:// URL
  std::map<std::string, std::string> headers{};  // names in lower case
  std::string body{};
  Duration timeout = std::chrono::seconds(30);       // of the whole request; for Stream: until the response's headers
  Duration idle_timeout = std::chrono::seconds(60);  // Stream: longest silence before the stream counts as dead
  size_t max_body_bytes = 64 << 20;                  // Send: a longer answer is kResourceExhausted
};

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string> headers{};  // names in lower case
  std::string body{};                            // Stream: only of answers that are not 2xx
};

class Transport {
 public:
  virtual ~Transport() = default;
  // Any HTTP answer is a Result with its status; a Status means that none came: kUnavailable (not connected; GET may be retried),
  // kDeadlineExceeded, kCancelled, kResourceExhausted (body too long).
  virtual Result<HttpResponse> Send(const HttpRequest& request, std::stop_token stop) = 0;
  // Calls `on_chunk` with the bytes of a 2xx answer as they come, on the calling thread; returning false ends the stream (OK).
  // Returns when the server ended it (OK), or kDeadlineExceeded when it was silent for idle_timeout.
  virtual Result<HttpResponse> Stream(const HttpRequest& request, const std::function<bool(std::string_view)>& on_chunk,
                                      std::stop_token stop) = 0;
};

// libcurl: HTTP/2 where offered, TLS and credentials from `config`, also for whole URLs; the token and CA files are read again at most
// once a second. Each running call has a connection of its own; idle ones are kept.
std::unique_ptr<Transport> MakeCurlTransport(ClientConfig config);

}  // namespace holdfast::kube
