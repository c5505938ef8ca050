#include "kube/http_server_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>

#include "base/log.h"

namespace holdfast::kube {
namespace {

constexpr size_t kMaxBodiesBytes = 64 << 20;  // that are being read, of all connections
constexpr Duration kLook = std::chrono::milliseconds(100), kTellEvery = std::chrono::seconds(10);

}  // namespace

HttpServerLoop::HttpServerLoop(HttpServerOptions options, SSL_CTX* context, std::function<void(ServerConnection&)> serve, Clock& clock)
    : options_(options),
      context_(context),
      serve_(std::move(serve)),
      clock_(clock),
      max_per_peer_(std::max<size_t>(1, options.max_connections - options.max_connections / 4)),
      max_served_per_peer_(std::max<size_t>(1, options.threads - options.threads / 4)),
      workers_(options.threads, options.threads) {}

HttpServerLoop::~HttpServerLoop() {
  if (thread_.joinable()) Stop(Duration(0));
  if (!stopping_) workers_.shutdown();  // it never started
  for (int fd : {epoll_, wake_, listener_}) {
    if (fd >= 0) close(fd);
  }
}

Status HttpServerLoop::Start(int listener) {
  listener_ = listener;
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (epoll_ < 0 || wake_ < 0) return {Code::kInternal, "cannot wait for connections: " + std::generic_category().message(errno)};
  Watch(EPOLL_CTL_ADD, wake_, kWakeUp, EPOLLIN);
  Watch(EPOLL_CTL_ADD, listener_, kListener, EPOLLIN);
  listening_ = true;
  thread_ = std::thread([this] { Run(); });
  return Status::Ok();
}

void HttpServerLoop::Watch(int operation, int fd, uint64_t id, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  epoll_ctl(epoll_, operation, fd, &event);
}

void HttpServerLoop::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t wrote = write(wake_, &one, sizeof one);
}

void HttpServerLoop::StopListening() {
  closed_ = true;
  Wake();
}

void HttpServerLoop::Stop(Duration patience) {
  stop_until_ = clock_.Mono() + patience;
  closed_ = stopping_ = true;
  Wake();
  thread_.join();
  workers_.shutdown();
}

void HttpServerLoop::Run() {
  std::array<epoll_event, 64> events;
  while (!Over()) {
    const int n = epoll_wait(epoll_, events.data(), events.size(), std::chrono::duration_cast<std::chrono::milliseconds>(kLook).count());
    bool newcomers = false;
    for (int i = 0; i < n; ++i) {
      const uint64_t id = events[static_cast<size_t>(i)].data.u64;
      uint64_t count;
      if (id == kListener) {
        newcomers = true;  // after those who are here and have said something
      } else if (id == kWakeUp) {
        [[maybe_unused]] ssize_t got = read(wake_, &count, sizeof count);
      } else {
        Advance(id);
      }
    }
    if (newcomers) Accept();
    TakeBack();
    LookAtTheTime();
    Dispatch();
  }
  connections_.clear();
}

// While it stops: what is served ends, or is cut, and nothing else goes on.
bool HttpServerLoop::Over() {
  if (closed_ && listener_ >= 0) {
    close(listener_);
    listener_ = -1;
  }
  if (!stopping_) return false;
  const bool late = clock_.Mono() >= stop_until_.load();
  std::vector<uint64_t> gone;
  for (auto& [id, connection] : connections_) {
    const Phase phase = connection->standing.phase;
    if (phase == Phase::kServing) {
      if (late) connection->Shutdown();
    } else if (late || phase != Phase::kFlushing) {
      gone.push_back(id);
    }
  }
  ready_.clear();
  for (uint64_t id : gone) Remove(id);
  return connections_.empty();
}

// In the order in which requests came, but that no peer gets all threads.
void HttpServerLoop::Dispatch() {
  for (auto next = ready_.begin(); next != ready_.end() && serving_ < options_.threads;) {
    ServerConnection* connection = connections_.at(*next).get();
    Peer& peer = peers_[connection->peer];
    if (peer.serving >= max_served_per_peer_) {
      ++next;
      continue;
    }
    const uint64_t id = *next;
    next = ready_.erase(next);
    ++peer.serving;
    ++serving_;
    Enter(*connection, Phase::kServing);
    connection->Begin(connection->request, {.silence = options_.silence, .body = options_.body, .answer = options_.answer});
    workers_.enqueue([this, id, connection] {
      serve_(*connection);
      {
        std::lock_guard lock(mutex_);
        returned_.push_back(id);
      }
      Wake();
    });
  }
}

void HttpServerLoop::TakeBack() {
  std::vector<uint64_t> returned;
  {
    std::lock_guard lock(mutex_);
    returned.swap(returned_);
  }
  for (uint64_t id : returned) {
    ServerConnection& connection = *connections_.at(id);
    --peers_[connection.peer].serving;
    --serving_;
    connection.keep = connection.End() && connection.keep;
    Enter(connection, Phase::kFlushing);
    Watch(EPOLL_CTL_ADD, connection.fd, id, EPOLLIN);
    AdvanceFlush(id, connection);
  }
}

void HttpServerLoop::LookAtTheTime() {
  const MonoTime now = clock_.Mono();
  if (now - looked_ < kLook) return;
  looked_ = now;
  if (!listening_ && listener_ >= 0) {
    Watch(EPOLL_CTL_ADD, listener_, kListener, EPOLLIN);
    listening_ = true;
  }
  std::vector<uint64_t> late;
  for (const auto& [id, connection] : connections_) {
    const Standing& standing = connection->standing;
    if (now - standing.since < LimitOf(standing.phase)) continue;
    late.push_back(id);
    if (standing.phase != Phase::kIdle && standing.phase != Phase::kLingering) ++cut_;
  }
  for (uint64_t id : late) Remove(id);
  BoundBodies();
  if (cut_ + pushed_out_ == 0 || now - told_ < kTellEvery) return;
  LogWarning("connections were ended that did not get their request through in time, or for others when all places were taken",
             {{"late", cut_}, {"gave_way", pushed_out_}, {"open", connections_.size()}});
  told_ = now;
  cut_ = pushed_out_ = 0;
}

void HttpServerLoop::BoundBodies() {
  for (;;) {
    size_t bytes = 0;
    std::optional<uint64_t> oldest;
    for (const auto& [id, connection] : connections_) {
      if (connection->standing.phase != Phase::kBody) continue;
      bytes += connection->input.size();
      if (!oldest || connection->standing.since < connections_.at(*oldest)->standing.since) oldest = id;
    }
    if (bytes <= kMaxBodiesBytes || !oldest) return;
    ++cut_;
    Remove(*oldest);
  }
}

}  // namespace holdfast::kube
