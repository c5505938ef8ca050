// A child process and one TCP connection to it over 127.0.0.1, as programs with helpers have. Each count goes to the child and back.
#pragma once

#include <cstdint>
#include <string>

namespace counter {

class Loopback {
 public:
  // Forks: call it before there are threads and before memory is filled. Empty error(): it works.
  Loopback();
  ~Loopback();
  Loopback(const Loopback&) = delete;
  Loopback& operator=(const Loopback&) = delete;

  // Sends the count and waits (at most 10 s) until it comes back. Once false, false for ever.
  bool RoundTrip(uint64_t count);
  int64_t peer_pid() const { return child_; }
  const std::string& error() const { return error_; }

 private:
  bool Fail(const std::string& what);
  int socket_ = -1;
  int child_ = -1;
  std::string error_;
};

}  // namespace counter
