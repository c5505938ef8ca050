// HTTP to one server over libcurl: connections are kept and reused, the bearer token and the CA file are read again when they change, and a
// call that found no answer is repeated, with back-off, until the caller's deadline. Thread-safe; every call must be safe to repeat.
#pragma once

#include <functional>
#include <mutex>
#include <random>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace holdfast::storage {

struct CallLimits {
  MonoTime deadline;
  std::stop_token stop;
};

struct HttpCall;
struct HttpAnswer;

struct HttpCallerOptions {
  std::string url;         // https://host:port
  std::string ca_file;     // empty: the system's
  std::string token_file;  // empty: no token is sent
  Duration connect_timeout = std::chrono::seconds(3);
  Duration attempt_timeout = std::chrono::seconds(30);  // of one try; a peer that hangs costs this much
  // One try where there are no sockets (tests/sim), in `limits` of its own: any answer that came, else kUnavailable. Unset: libcurl.
  std::function<Result<HttpAnswer>(const HttpCall& call, const CallLimits& limits)> exchange = {};
};

struct HttpCall {
  std::string method = "GET";
  std::string path;
  std::vector<std::span<const std::byte>> body;  // sent one after another
  size_t max_answer_bytes = 1 << 20;
  std::vector<std::pair<std::string, std::string>> headers{};  // more of them
  bool anonymous = false;                                      // without the token
};

struct HttpAnswer {
  int status = 0;
  std::string body;
  std::string hash_key;  // header Holdfast-Hash-Key
};

class HttpCaller {
 public:
  HttpCaller(HttpCallerOptions options, Clock& clock);
  ~HttpCaller();
  HttpCaller(const HttpCaller&) = delete;
  HttpCaller& operator=(const HttpCaller&) = delete;

  // 2xx answers only; the server's own errors come as DecodeError has them. kUnavailable is repeated until limits.deadline, and then
  // returned with what happened last; kCancelled on a stop request.
  Result<HttpAnswer> Call(const HttpCall& call, const CallLimits& limits);

 private:
  Result<HttpAnswer> Try(const HttpCall& call, const CallLimits& limits);
  Result<HttpAnswer> Exchange(const HttpCall& call, const std::string& token, Duration left, const CallLimits& limits);
  Duration Jittered(Duration backoff);
  Result<std::string> Token();
  void* Borrow();
  void Return(void* handle);

  const HttpCallerOptions options_;
  Clock& clock_;
  std::mutex mutex_;
  std::vector<void*> idle_;  // CURL handles, each with its connection
  std::string token_;
  MonoTime token_read_{};
  std::minstd_rand random_;
};

}  // namespace holdfast::storage
