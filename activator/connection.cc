#include "activator/connection.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

#include "activator/answers.h"

namespace holdfast::activator {
namespace {

using Socket = kube::EventLoop::Socket;

constexpr int kRounds = 16;                // of one direction before others have their turn
constexpr size_t kMaxDiscarded = 1 << 20;  // of what a client still sends after its answer

void Prepare(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

void ResetOnClose(int fd) {
  const linger reset{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
}

bool Again() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

// -1: not an address, or no socket.
int StartToConnect(const Address& address) {
  sockaddr_in six4{};
  sockaddr_in6 six6{};
  const bool v6 = address.host.find(':') != std::string::npos;
  if ((v6 ? inet_pton(AF_INET6, address.host.c_str(), &six6.sin6_addr) : inet_pton(AF_INET, address.host.c_str(), &six4.sin_addr)) != 1)
    return -1;
  six4.sin_family = AF_INET;
  six6.sin6_family = AF_INET6;
  six4.sin_port = six6.sin6_port = htons(static_cast<uint16_t>(address.port));
  const int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  Prepare(fd);
  const auto* to = v6 ? reinterpret_cast<const sockaddr*>(&six6) : reinterpret_cast<const sockaddr*>(&six4);
  if (connect(fd, to, v6 ? sizeof six6 : sizeof six4) == 0 || errno == EINPROGRESS) return fd;
  close(fd);
  return -1;
}

}  // namespace

std::string_view OutcomeName(Outcome outcome) {
  constexpr std::string_view kNames[] = {"Forwarded", "Page", "Status", "Ignored", "GaveUp", "Refused", "Left"};
  return kNames[static_cast<size_t>(outcome)];
}

Connection::Connection(Host& host, Route route, int fd, bool refused)
    : host_(host),
      route_(std::move(route)),
      refused_(refused),
      begun_(host.clock.Mono()),
      client_(fd),
      client_socket_(std::make_unique<Socket>(host.loop, fd, [this](int) { OnClient(); })),
      timer_(host.loop, [this] { OnTimer(); }),
      retry_(host.loop,
             [this] {
               if (state_ == State::kConnecting) return ConnectFailed();
               Consider();
             }),
      moved_(begun_) {
  Prepare(client_);
  client_socket_->Watch(Socket::kRead);
  timer_.Start(host_.limits.silence);
}

Connection::~Connection() {
  client_socket_.reset();
  endpoint_socket_.reset();
  close(client_);
  if (endpoint_ >= 0) close(endpoint_);
}

void Connection::OnClient() {
  switch (state_) {
    case State::kReading:
    case State::kHolding:
    case State::kConnecting:
      return ReadHeld();
    case State::kForwarding:
      return Pump();
    case State::kAnswering:
      return WriteAnswer();
  }
}

void Connection::ReadHeld() {
  std::string& held = out_.pending;
  while (!out_.ended && held.size() < host_.limits.held_bytes) {
    const size_t room = std::min(host_.scratch.size(), host_.limits.held_bytes - held.size());
    const ssize_t got = recv(client_, host_.scratch.data(), room, 0);
    if (got < 0 && Again()) break;
    if (got < 0) return End(Outcome::kLeft);
    if (got == 0) out_.ended = true;
    held.append(host_.scratch.data(), static_cast<size_t>(got));
  }
  if (out_.ended && held.empty()) return End(Outcome::kLeft);  // who only looked whether somebody listens
  if (out_.ended || held.size() >= host_.limits.held_bytes) client_socket_->Watch(0);
  if (state_ == State::kReading) Consider();
}

void Connection::OnTimer() {
  const MonoTime now = host_.clock.Mono();
  switch (state_) {
    case State::kReading:
      if (request_.protocol == Protocol::kHttp) {
        if (now - begun_ >= host_.limits.head) return Answer(Outcome::kGaveUp, TooSlowAnswer());
        return timer_.Start(host_.limits.head - (now - begun_));
      }
      silent_ = true;
      return Consider();
    case State::kHolding:
    case State::kConnecting: {
      const SleeperPtr sleeper = host_.world.SleeperOf(route_);
      if (!sleeper) return GiveUp("nobody waits for requests to Service " + route_.service + " any more");
      return GiveUp(Answers(*sleeper) && state_ == State::kConnecting
                        ? "no endpoint of Service " + route_.service + " took the connection in time"
                        : "not awake in time: " + Why(*sleeper));
    }
    case State::kForwarding:
      if (now - moved_ >= host_.limits.idle) return End(Outcome::kForwarded);
      return timer_.Start(host_.limits.idle - (now - moved_));
    case State::kAnswering:
      return End(Outcome::kLeft);
  }
}

void Connection::Consider() {
  if (state_ != State::kReading && state_ != State::kHolding) return;
  const SleeperPtr sleeper = host_.world.SleeperOf(route_);
  if (state_ == State::kReading) request_ = ReadRequest(std::string_view(out_.pending).substr(0, kMaxHead));
  if (!sleeper) return GiveUp("nobody waits for requests to Service " + route_.service + " any more");
  const bool reachable = !host_.world.ReadyAddressesOf(route_).empty();
  switch (Judge(*sleeper, request_, silent_ || out_.ended, reachable)) {
    case Verdict::kWait:
      return;
    case Verdict::kStatus:
      return Answer(Outcome::kStatus, StatusAnswer(*sleeper, reachable));
    case Verdict::kIgnored:
      return Answer(Outcome::kIgnored, IgnoredAnswer());
    case Verdict::kPage:
      host_.world.Wake(route_);
      return Answer(Outcome::kPage, PageAnswer(*sleeper));
    case Verdict::kHold:
      return refused_ ? GiveUp("too many requests wait for it already") : Hold(*sleeper);
    case Verdict::kForward:
      return refused_ ? GiveUp("too many requests wait for it already") : Connect(*sleeper);
  }
}

void Connection::AwaitAtMost(const api::SuspendedWorkload& sleeper) {
  if (waits_until_) return;
  waits_until_ = true;
  timer_.Start(sleeper.spec.on_request ? sleeper.spec.on_request->hold_for : api::OnRequest().hold_for);
}

void Connection::Hold(const api::SuspendedWorkload& sleeper) {
  if (state_ == State::kHolding) return;
  state_ = State::kHolding;
  AwaitAtMost(sleeper);
  host_.world.Wake(route_);
}

void Connection::Connect(const api::SuspendedWorkload& sleeper) {
  AwaitAtMost(sleeper);
  const std::vector<Address> addresses = host_.world.ReadyAddressesOf(route_);
  thread_local std::minstd_rand random{std::random_device()()};
  state_ = State::kConnecting;
  endpoint_ = StartToConnect(addresses[random() % addresses.size()]);
  if (endpoint_ < 0) return ConnectFailed();
  endpoint_socket_ = std::make_unique<Socket>(host_.loop, endpoint_, [this](int) { OnEndpoint(); });
  endpoint_socket_->Watch(Socket::kWrite);
  retry_.Start(host_.limits.connect);
}

void Connection::ConnectFailed() {
  endpoint_socket_.reset();
  if (endpoint_ >= 0) close(endpoint_);
  endpoint_ = -1;
  state_ = State::kHolding;
  retry_.Start(host_.limits.retry);
}

void Connection::OnEndpoint() {
  if (state_ == State::kForwarding) return Pump();
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(endpoint_, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) return ConnectFailed();
  Forward();
}

void Connection::Forward() {
  state_ = State::kForwarding;
  retry_.Stop();
  host_.world.Count(Outcome::kForwarded, host_.clock.Mono() - begun_);
  counted_ = true;
  timer_.Start(host_.limits.idle);
  Pump();
}

bool Connection::Move(int from, int to, Flow* flow) {
  for (int round = 0; round < kRounds; ++round) {
    if (flow->sent < flow->pending.size()) {
      const ssize_t sent = send(to, flow->pending.data() + flow->sent, flow->pending.size() - flow->sent, MSG_NOSIGNAL);
      if (sent < 0) return Again();
      flow->sent += static_cast<size_t>(sent);
      if (flow->sent < flow->pending.size()) return true;
      flow->pending = {};
      flow->sent = 0;
    }
    if (flow->ended) {
      if (!flow->passed_on) shutdown(to, SHUT_WR);
      flow->passed_on = true;
      return true;
    }
    const ssize_t got = recv(from, host_.scratch.data(), host_.scratch.size(), 0);
    if (got < 0) return Again();
    if (got == 0) flow->ended = true;
    flow->pending.assign(host_.scratch.data(), static_cast<size_t>(got));
  }
  return true;
}

void Connection::Pump() {
  moved_ = host_.clock.Mono();
  if (!Move(client_, endpoint_, &out_) || !Move(endpoint_, client_, &back_)) return Break();
  if (out_.passed_on && back_.passed_on) return End(Outcome::kForwarded);
  auto wanted = [](const Flow& from, const Flow& to) {
    return (!from.ended && from.pending.empty() ? Socket::kRead : 0) | (to.pending.empty() ? 0 : Socket::kWrite);
  };
  client_socket_->Watch(wanted(out_, back_));
  endpoint_socket_->Watch(wanted(back_, out_));
}

void Connection::Break() {
  ResetOnClose(client_);
  ResetOnClose(endpoint_);
  End(Outcome::kForwarded);
}

void Connection::GiveUp(const std::string& why) {
  const Outcome outcome = refused_ ? Outcome::kRefused : Outcome::kGaveUp;
  if (request_.protocol == Protocol::kHttp) return Answer(outcome, UnavailableAnswer("holdfast: " + route_.service + ": " + why));
  End(outcome);
}

void Connection::Answer(Outcome outcome, std::string text) {
  endpoint_socket_.reset();
  if (endpoint_ >= 0) close(endpoint_);
  endpoint_ = -1;
  retry_.Stop();
  host_.world.Count(outcome, host_.clock.Mono() - begun_);
  counted_ = true;
  state_ = State::kAnswering;
  out_ = {};
  back_ = {.pending = std::move(text), .ended = true};
  timer_.Start(host_.limits.linger);
  WriteAnswer();
}

// To the end, and until the client has closed: closed with something unread, the connection would be reset, and the answer lost.
void Connection::WriteAnswer() {
  if (!Move(-1, client_, &back_)) return End(Outcome::kLeft);
  if (!back_.passed_on) return client_socket_->Watch(Socket::kWrite);
  while (out_.sent < kMaxDiscarded) {
    const ssize_t got = recv(client_, host_.scratch.data(), host_.scratch.size(), 0);
    if (got < 0 && Again()) return client_socket_->Watch(Socket::kRead);
    if (got <= 0) break;
    out_.sent += static_cast<size_t>(got);
  }
  End(Outcome::kLeft);
}

void Connection::End(Outcome outcome) {
  if (!counted_) host_.world.Count(outcome, host_.clock.Mono() - begun_);
  host_.gone(this);
}

}  // namespace holdfast::activator
