// Carries lines to the witness over one outside connection, from a thread of its own, so that counting never waits for the network.
// Lines stay here until the witness has acknowledged them; a new connection sends the rest again.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "counter/line.h"

namespace counter {

class Sender {
 public:
  // `address`: host:port. Empty: lines go nowhere.
  Sender(const std::string& address, uint64_t nonce, uint64_t mib);
  ~Sender();
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  // Takes a line. When half an hour of lines waits unacknowledged this blocks: better to stop counting than to lose a count.
  void Add(const Line& line);
  int64_t reconnects();

 private:
  struct Entry {
    uint64_t count;
    std::string text;
  };
  void Run();
  int Connect();
  bool Serve(int fd);  // until the connection breaks
  bool SendAll(int fd, const std::string& text);

  const std::string address_;
  const uint64_t nonce_, mib_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> waiting_;
  uint64_t reached_ = 0, acknowledged_ = 0;
  int64_t connections_ = 0;
  bool stop_ = false;
  int wake_[2] = {-1, -1};  // a byte here: there are new lines
  std::thread thread_;
};

}  // namespace counter
