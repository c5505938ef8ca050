// The agent's unix socket: one JSON line in, one JSON line out, closed. Only root may connect. A peer may be slow, silent or hostile: each
// connection has a deadline and a size limit, and their number is bounded; what does not fit is told to come again.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/json.h"
#include "base/status.h"

namespace holdfast::agent {

struct SocketServerOptions {
  std::string path;
  int threads = 32;  // a stop is answered after seconds (stopper.h), and others must not wait for it
  int backlog = 64;  // connections waiting for a thread
  size_t max_line_bytes = 64 << 10;
  Duration io_timeout = std::chrono::seconds(10);  // for the whole question, and again for the whole answer
  bool root_only = true;
};

class SocketServer {
 public:
  using Handler = std::function<Json(const Json& question, std::stop_token stop)>;
  SocketServer(SocketServerOptions options, Handler handler);
  ~SocketServer();
  Status Start();
  void Stop();  // waits for running answers, whose stop_token is set

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Reads one line of at most `max` bytes, without its end. For the server and its tests.
Result<std::string> ReadLine(int fd, size_t max, Duration timeout, std::stop_token stop = {});
Status WriteLine(int fd, const std::string& line, Duration timeout);

}  // namespace holdfast::agent
