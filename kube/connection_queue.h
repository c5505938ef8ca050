// What httplib's own defaults do not give a server: a bounded pool of threads, one a connection (its own queues without bound), and a port
// that no other process shares (its own is SO_REUSEPORT: two servers would each get some of the requests).
#pragma once

#define CPPHTTPLIB_OPENSSL_SUPPORT  // as the library was built
#include <httplib.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace holdfast::kube {

class ConnectionQueue final : public httplib::TaskQueue {
 public:
  ConnectionQueue(size_t threads, size_t max_waiting);
  // Waits while max_waiting connections wait for a thread: the rest stays in the kernel's backlog.
  void enqueue(std::function<void()> serve) override;
  void shutdown() override;
  size_t waiting() const;  // connections that no thread serves yet

 private:
  void Run();

  const size_t max_waiting_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

// For set_socket_options.
void OwnPort(socket_t socket);

}  // namespace holdfast::kube
