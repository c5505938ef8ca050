// Listens on the ports that stand for Services, and owns what connects there. All of it on the loop's thread, from construction to
// destruction, which cuts off whoever is connected.
#pragma once

#include <list>
#include <map>

#include "activator/connection.h"

namespace holdfast::activator {

class Server {
 public:
  // `loop`, `world` and `clock` outlive it.
  Server(kube::EventLoop& loop, World& world, Limits limits, Clock& clock = Clock::Real());
  ~Server();

  // By port: listens on these and on no others. Connections of those that are left out go on as far as they got. False: on one of them it
  // cannot be listened now (logged); tried again with the next call.
  bool SetRoutes(const std::map<int32_t, Route>& routes);
  void Consider();         // what connections wait for may have changed
  size_t waiting() const;  // connections that nobody has answered or taken yet
  size_t open() const { return connections_.size(); }
  int32_t PortOf(const Route& route) const;  // where it is listened for; 0: nowhere. (With port 0 the kernel chooses one.)

 private:
  struct Listener {
    Route route;
    int fd = -1;
    std::unique_ptr<kube::EventLoop::Socket> socket{};
  };
  bool Listen(int32_t port, const Route& route);
  void Accept(Listener* listener);
  void Admit(const Route& route, int fd);
  void Close(Listener* listener);

  const Limits limits_;
  Connection::Host host_;
  std::map<int32_t, Listener> listeners_;
  std::list<std::unique_ptr<Connection>> connections_;
  std::map<std::string, size_t> by_service_;
  size_t refused_ = 0;
  kube::EventLoop::Timer again_;  // after there was no file descriptor for a connection
};

}  // namespace holdfast::activator
