#include "kube/lane.h"

#include <algorithm>

#include "base/log.h"

namespace holdfast::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr long kIdleConnections = 25;  // HTTP/1.1 only
constexpr Duration kLongestWatchdog = seconds(10);

MonoTime Now() { return Clock::Real().Mono(); }

}  // namespace

Lane::Lane(EventLoop& loop, LaneKey key, const TransportOptions& options, std::function<void()> on_empty)
    : loop_(loop),
      key_(std::move(key)),
      options_(options),
      on_empty_(std::move(on_empty)),
      curl_timer_(loop, [this] { Act(CURL_SOCKET_TIMEOUT, 0); }),
      watchdog_(loop, [this] { Watchdog(); }),
      last_heard_(Now()),
      last_used_(last_heard_) {
  curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, OnSocket);
  curl_multi_setopt(multi_, CURLMOPT_SOCKETDATA, this);
  curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, OnTimer);
  curl_multi_setopt(multi_, CURLMOPT_TIMERDATA, this);
  curl_multi_setopt(multi_, CURLMOPT_PIPELINING, CURLPIPE_MULTIPLEX);
  curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, kIdleConnections);
}

Lane::~Lane() {
  Kill(Status(Code::kCancelled, "the transport is closing"));
  curl_multi_cleanup(multi_);  // closes the connections, and tells OnSocket
}

void Lane::Start(std::shared_ptr<Exchange> exchange) {
  loop_.AssertOnLoop();
  Status opened = exchange->Open(this);
  if (!opened.ok()) {
    exchange->Finish(opened);
    return;
  }
  last_used_ = Now();
  // Silence counts from here: until now nothing was owed.
  if (running_.empty()) last_heard_ = last_used_;
  Exchange* started = exchange.get();
  running_.emplace(started, std::move(exchange));
  curl_multi_add_handle(multi_, started->easy());
  Watchdog();
}

std::shared_ptr<Exchange> Lane::Take(Exchange* exchange) {
  std::shared_ptr<Exchange> taken;
  if (exchange == probe_.get()) {
    taken = std::move(probe_);
    probe_ = nullptr;
  } else if (auto found = running_.find(exchange); found != running_.end()) {
    taken = std::move(found->second);
    running_.erase(found);
  }
  if (taken) {
    curl_multi_remove_handle(multi_, taken->easy());
    last_used_ = Now();
  }
  return taken;
}

void Lane::Cancel(Exchange* exchange, const Status& why) {
  loop_.AssertOnLoop();
  std::shared_ptr<Exchange> taken = Take(exchange);
  if (!taken) return;
  taken->Finish(why);
  if (running_.empty()) on_empty_();
}

void Lane::Kill(const Status& why) {
  loop_.AssertOnLoop();
  retired_ = true;
  if (probe_) Take(probe_.get())->Finish(why);
  while (!running_.empty()) Take(running_.begin()->first)->Finish(why);
  on_empty_();
}

void Lane::Heard(bool http2) {
  last_heard_ = Now();
  http2_ = http2_ || http2;
}

int Lane::OnSocket(CURL*, curl_socket_t fd, int what, void* user, void*) {
  auto* self = static_cast<Lane*>(user);
  if (what == CURL_POLL_REMOVE) {
    self->sockets_.erase(fd);
    return 0;
  }
  auto& socket = self->sockets_[fd];
  if (!socket) socket = std::make_unique<EventLoop::Socket>(self->loop_, fd, [self, fd](int events) { self->Act(fd, events); });
  socket->Watch(((what & CURL_POLL_IN) != 0 ? EventLoop::Socket::kRead : 0) |
                ((what & CURL_POLL_OUT) != 0 ? EventLoop::Socket::kWrite : 0));
  return 0;
}

int Lane::OnTimer(CURLM*, long timeout_ms, void* user) {
  auto* self = static_cast<Lane*>(user);
  if (timeout_ms < 0) {
    self->curl_timer_.Stop();
  } else {
    self->curl_timer_.Start(milliseconds(timeout_ms));
  }
  return 0;
}

void Lane::Act(int fd, int events) {
  int flags = 0;
  if ((events & EventLoop::Socket::kRead) != 0) flags |= CURL_CSELECT_IN;
  if ((events & EventLoop::Socket::kWrite) != 0) flags |= CURL_CSELECT_OUT;
  if ((events & EventLoop::Socket::kError) != 0) flags |= CURL_CSELECT_ERR;
  int running = 0;
  curl_multi_socket_action(multi_, fd, flags, &running);
  CollectDone();
}

void Lane::CollectDone() {
  int left = 0;
  bool any = false;
  while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    const CURLcode code = message->data.result;
    Exchange* done = nullptr;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &done);
    if (std::shared_ptr<Exchange> taken = Take(done)) {
      any = true;
      taken->Complete(code);
    }
  }
  if (any && running_.empty()) on_empty_();
}

// options_ with the silence and answer that suit one request.
TransportOptions Lane::Patience(const Exchange& exchange) const {
  TransportOptions patience = options_;
  if (key_.streams) return patience;
  const Duration timeout = exchange.order().request.timeout;
  patience.silence = std::min(patience.silence, std::max<Duration>(timeout / 5, seconds(1)));
  patience.answer = std::min(patience.answer, std::max<Duration>(timeout * 3 / 10, seconds(1)));
  return patience;
}

TransportOptions Lane::LeastPatience() const {
  TransportOptions least = options_;
  for (const auto& [exchange, owned] : running_) {
    const TransportOptions patience = Patience(*exchange);
    least.silence = std::min(least.silence, patience.silence);
    least.answer = std::min(least.answer, patience.answer);
  }
  return least;
}

// The connection is silent and the probe was not answered. Nobody else comes to it; what has waited for as long as it can fails; what can
// wait longer may still be answered, when it was the server that stood still.
void Lane::GiveUp(MonoTime now) {
  const Duration quiet = now - last_heard_;
  std::vector<Exchange*> over;
  for (const auto& [exchange, owned] : running_) {
    const TransportOptions patience = Patience(*exchange);
    if (patience.silence + patience.answer <= quiet) over.push_back(exchange);
  }
  const auto quiet_ms = std::chrono::duration_cast<milliseconds>(quiet).count();
  LogWarning("a connection is silent, opening another",
             {{"server", key_.origin}, {"silent_ms", quiet_ms}, {"requests", running_.size()}, {"given_up", over.size()}});
  const Status why(Code::kUnavailable, key_.origin + ": the connection is dead: no byte for " + std::to_string(quiet_ms) + " ms");
  if (over.size() == running_.size()) return Kill(why);
  Retire();
  for (Exchange* exchange : over) Cancel(exchange, why);
}

// A request of our own beside the others, on their connection: HTTP/2's PING, as far as libcurl lets us.
void Lane::Probe() {
  const Order& other = running_.begin()->second->order();
  Order order{.request = {.timeout = options_.answer, .max_body_bytes = 1 << 20},
              .url = key_.origin + options_.liveness_path,
              .origin = key_.origin,
              .authorization = other.authorization,
              .user_agent = other.user_agent,
              .tls = other.tls,
              .insecure = other.insecure,
              .connect_timeout = other.connect_timeout};
  order.what = "GET " + order.url;
  auto probe = std::make_shared<Exchange>(std::move(order));
  if (!probe->Open(this).ok()) return;
  probe_ = std::move(probe);
  curl_multi_add_handle(multi_, probe_->easy());
}

// Ends what is out of time, and finds out whether a silent connection is dead.
void Lane::Watchdog() {
  const MonoTime now = Now();
  MonoTime next = now + kLongestWatchdog;
  std::vector<Exchange*> late;
  for (const auto& [exchange, owned] : running_) {
    const MonoTime deadline = exchange->Deadline();
    if (deadline <= now) {
      late.push_back(exchange);
    } else {
      next = std::min(next, deadline);
    }
  }
  for (Exchange* exchange : late) {
    // Nothing came since it began: the connection may be dead, and nobody else should wait to find out.
    if (last_heard_ <= exchange->started()) Retire();
    Cancel(exchange, exchange->OutOfTime());
  }
  TransportOptions patience = LeastPatience();
  if (probe_ && probe_->started() + patience.answer <= now) {
    std::shared_ptr<Exchange> unanswered = Take(probe_.get());
    unanswered->Finish(unanswered->OutOfTime());
    if (last_heard_ <= unanswered->started()) {
      GiveUp(now);
      patience = LeastPatience();
    }
  }
  if (running_.empty()) return;
  if (!probe_ && http2_ && !options_.liveness_path.empty() && last_heard_ + patience.silence <= now) Probe();
  if (probe_) {
    next = std::min(next, probe_->started() + patience.answer);
  } else if (http2_) {
    next = std::min(next, last_heard_ + patience.silence);
  }
  watchdog_.Start(std::max<Duration>(next - now, milliseconds(1)));
}

}  // namespace holdfast::kube
