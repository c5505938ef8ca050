// One connection of a client to a port that stands for a Service. Belongs to the loop's thread.
//
//   reading ─► holding ─► connecting ─► forwarding
//      │          └─◄────────┘ (refused: tried again)
//      └─► answering (page, status, 503)
//
// What was read first goes to the endpoint first; nothing is read beyond Limits::held_bytes before that, so a sender meets back-pressure. A
// side that ends its half of the connection has that passed on. A side that breaks has the other one reset.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "activator/sleeper.h"
#include "kube/loop.h"

namespace holdfast::activator {

struct Limits {
  size_t per_service = 256, total = 1024;           // connections; beyond them HTTP is answered 503, and others are closed
  size_t refusals = 64;                             // that are being told so; further ones are closed unread
  size_t held_bytes = 64 << 10;                     // of a connection
  Duration silence = std::chrono::seconds(1);       // a client that says nothing for so long waits for the server's first word
  Duration head = std::chrono::seconds(10);         // for the head of an HTTP request to be there
  Duration connect = std::chrono::seconds(3);       // to one endpoint
  Duration retry = std::chrono::milliseconds(100);  // after an endpoint that refused
  Duration idle = std::chrono::hours(1);            // a forwarded connection on which nothing moves
  Duration linger = std::chrono::seconds(2);        // for an answer to be taken
};

enum class Outcome { kForwarded, kPage, kStatus, kIgnored, kGaveUp, kRefused, kLeft };
inline constexpr Outcome kOutcomes[] = {Outcome::kForwarded, Outcome::kPage,    Outcome::kStatus, Outcome::kIgnored,
                                        Outcome::kGaveUp,    Outcome::kRefused, Outcome::kLeft};
std::string_view OutcomeName(Outcome outcome);  // "Forwarded"

// What the cluster says; called on the loop's thread, must not block.
class World {
 public:
  virtual ~World() = default;
  virtual SleeperPtr SleeperOf(const Route& route) = 0;  // null: there is none any more
  virtual std::vector<Address> ReadyAddressesOf(const Route& route) = 0;
  virtual void Wake(const Route& route) = 0;                 // once is enough
  virtual void Count(Outcome outcome, Duration waited) = 0;  // of kForwarded: until an endpoint took it
};

class Connection {
 public:
  // Whoever owns it, and what all of them share. Outlives it.
  struct Host {
    kube::EventLoop& loop;
    World& world;
    const Limits& limits;
    Clock& clock;
    std::vector<char> scratch = std::vector<char>(64 << 10);
    std::function<void(Connection*)> gone{};  // destroys it
  };

  // Takes `fd`, which does not block. `refused`: beyond the limits, to be told so.
  Connection(Host& host, Route route, int fd, bool refused);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void Consider();  // what it waits for may have changed; may destroy it
  const Route& route() const { return route_; }
  bool refused() const { return refused_; }
  bool waits() const { return state_ == State::kReading || state_ == State::kHolding || state_ == State::kConnecting; }

 private:
  enum class State { kReading, kHolding, kConnecting, kForwarding, kAnswering };
  // One direction. What `to` did not take yet is pending, and until it has, nothing more is read.
  struct Flow {
    std::string pending{};
    size_t sent = 0;  // of pending
    bool ended = false, passed_on = false;
  };
  void OnClient();
  void OnEndpoint();
  void OnTimer();
  void ReadHeld();
  void Hold(const api::SuspendedWorkload& sleeper);
  void AwaitAtMost(const api::SuspendedWorkload& sleeper);
  void Connect(const api::SuspendedWorkload& sleeper);
  void ConnectFailed();
  void Forward();
  void Pump();
  bool Move(int from, int to, Flow* flow);  // false: broken
  void GiveUp(const std::string& why);
  void Answer(Outcome outcome, std::string text);
  void WriteAnswer();
  void End(Outcome outcome);
  void Break();

  Host& host_;
  const Route route_;
  const bool refused_;
  const MonoTime begun_;
  State state_ = State::kReading;
  int client_, endpoint_ = -1;
  std::unique_ptr<kube::EventLoop::Socket> client_socket_, endpoint_socket_;
  kube::EventLoop::Timer timer_, retry_;
  Request request_;
  bool silent_ = false, waits_until_ = false, counted_ = false;
  Flow out_, back_;  // from the client, to the client
  MonoTime moved_;
};

}  // namespace holdfast::activator
