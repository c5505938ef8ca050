// The inside of HttpServer: its loop. All methods but Post, Stop and those that say so are the loop's thread's.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>

#include "kube/connection_queue.h"
#include "kube/http_server.h"
#include "kube/server_connection.h"

namespace holdfast::kube {

class HttpServerLoop {
 public:
  // `serve`: answers the request of a connection, on a worker's thread; sets `keep`.
  HttpServerLoop(HttpServerOptions options, SSL_CTX* context, std::function<void(ServerConnection&)> serve, Clock& clock);
  ~HttpServerLoop();
  // Takes a listening socket, that does not block.
  Status Start(int listener);
  void StopListening();          // from any thread
  void Stop(Duration patience);  // from any thread, once; returns when the loop and its workers have ended
  bool stopping() const { return stopping_; }

 private:
  struct Peer {
    size_t connections = 0, serving = 0;
  };
  static constexpr uint64_t kListener = 0, kWakeUp = 1;  // to epoll; further numbers are connections

  // http_server_loop.cc
  void Run();
  void Wake();
  void Watch(int operation, int fd, uint64_t id, uint32_t events);
  void Dispatch();
  void TakeBack();
  void LookAtTheTime();
  void BoundBodies();
  bool Over();
  // http_server_accept.cc
  void Accept();
  bool MakeRoom(const std::string& peer);
  bool EndOne(const std::string* peer);
  void Remove(uint64_t id);
  // http_server_phases.cc; the connection may be gone after each of these but the first
  void Enter(ServerConnection& connection, Phase phase);
  void Want(uint64_t id, ServerConnection& connection, ServerConnection::Progress what);
  void Advance(uint64_t id);
  void AdvanceHead(uint64_t id, ServerConnection& connection);
  void AdvanceBody(uint64_t id, ServerConnection& connection);
  void AdvanceFlush(uint64_t id, ServerConnection& connection);
  void Refuse(uint64_t id, ServerConnection& connection, const char* status);
  void GetReady(uint64_t id, ServerConnection& connection);
  Duration LimitOf(Phase phase) const;

  const HttpServerOptions options_;
  SSL_CTX* const context_;
  const std::function<void(ServerConnection&)> serve_;
  Clock& clock_;
  const size_t max_per_peer_, max_served_per_peer_;
  int epoll_ = -1, wake_ = -1, listener_ = -1;
  bool listening_ = false;  // to its events
  uint64_t next_id_ = 2;
  std::unordered_map<uint64_t, std::unique_ptr<ServerConnection>> connections_;
  std::map<std::string, Peer> peers_;
  std::deque<uint64_t> ready_;
  size_t serving_ = 0, cut_ = 0, pushed_out_ = 0;
  MonoTime looked_{}, told_{};

  std::atomic<bool> stopping_{false}, closed_{false};
  std::atomic<MonoTime> stop_until_{MonoTime::max()};
  std::mutex mutex_;
  std::vector<uint64_t> returned_;  // by workers
  ConnectionQueue workers_;
  std::thread thread_;
};

}  // namespace holdfast::kube
