// The witness on the network: counters on one port, people and tests (HTTP) on the other. One thread; every peer may hang or lie.
//   GET /report   what History::Report says      POST /reset   forget everything      GET /healthz
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "witness/history.h"

namespace witness {

class Server {
 public:
  // Port 0: any free one. error() is empty when both listen.
  Server(uint16_t counter_port, uint16_t http_port);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::string& error() const { return error_; }
  uint16_t counter_port() const { return counter_port_; }
  uint16_t http_port() const { return http_port_; }
  // Handles what is there, waiting at most `wait_ms` for something to come.
  void RunOnce(int wait_ms);

 private:
  struct Peer {
    bool http = false;
    uint64_t nonce = 0;  // of a counter that has said HELLO
    std::string in, out;
    int64_t since_ms = 0;  // when it connected, or last said something
    bool broken = false;   // closed at the end of the round
    bool done = false;     // closed once `out` is sent
  };
  int Listen(uint16_t port, uint16_t* chosen);
  void Accept(int listener, bool http);
  void Read(int fd, Peer& peer);
  void OnLine(int fd, Peer& peer, const std::string& line);
  void OnRequest(Peer& peer);
  void Flush(int fd, Peer& peer);

  History history_;
  std::map<int, Peer> peers_;
  int counters_ = -1, http_ = -1;
  uint16_t counter_port_ = 0, http_port_ = 0;
  std::string error_;
};

}  // namespace witness
