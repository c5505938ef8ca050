#include "agent/socket_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "base/log.h"

namespace holdfast::agent {
namespace {

// False when time is over.
bool PollUntil(int fd, short events, MonoTime deadline, const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::Real().Mono()).count();
    if (left <= 0) return false;
    pollfd waiting{fd, events, 0};
    if (poll(&waiting, 1, static_cast<int>(std::min<int64_t>(left, 100))) > 0) return true;
  }
  return false;
}

bool PeerIsRoot(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == 0;
}

Json Refusal(const std::string& reason) { return {{"action", "refuse"}, {"reason", reason}}; }

}  // namespace

Result<std::string> ReadLine(int fd, size_t max, Duration timeout, std::stop_token stop) {
  const MonoTime deadline = Clock::Real().Mono() + timeout;
  std::string line;
  char buffer[4096];
  while (true) {
    if (!PollUntil(fd, POLLIN, deadline, stop)) return Status(Code::kDeadlineExceeded, "no whole line came in time");
    ssize_t n = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return Status(Code::kUnavailable, "the peer hung up in the middle of a line");
    line.append(buffer, static_cast<size_t>(n));
    if (size_t end = line.find('\n'); end != std::string::npos && end <= max) return line.substr(0, end);
    if (line.size() > max) return Status(Code::kResourceExhausted, "the line is longer than " + std::to_string(max) + " bytes");
  }
}

Status WriteLine(int fd, const std::string& line, Duration timeout) {
  const MonoTime deadline = Clock::Real().Mono() + timeout;
  const std::string text = line + "\n";
  for (size_t sent = 0; sent < text.size();) {
    ssize_t n = send(fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      sent += static_cast<size_t>(n);
    } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (!PollUntil(fd, POLLOUT, deadline, {})) return Status(Code::kDeadlineExceeded, "the peer does not read");
    } else {
      return Status(Code::kUnavailable, "the peer hung up");
    }
  }
  return Status::Ok();
}

struct SocketServer::Impl {
  Impl(SocketServerOptions o, Handler h) : options(std::move(o)), handler(std::move(h)) {}

  void Accept(std::stop_token stop) {
    while (!stop.stop_requested()) {
      pollfd waiting{listener, POLLIN, 0};
      if (poll(&waiting, 1, 100) <= 0) continue;
      int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(std::chrono::milliseconds(50));  // poll would spin
        continue;
      }
      std::unique_lock lock(mutex);
      if (queue.size() >= static_cast<size_t>(options.backlog)) {
        lock.unlock();
        Status told = WriteLine(fd, DumpJson(Refusal("holdfast-agent is busy; ask again")), std::chrono::milliseconds(10));
        if (!told.ok()) Log(LogLevel::kDebug, "a connection was turned away unheard");
        close(fd);
        continue;
      }
      queue.push_back(fd);
      changed.notify_one();
    }
  }

  void Work(std::stop_token stop) {
    while (true) {
      int fd = -1;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, stop, [this] { return !queue.empty(); });
        if (stop.stop_requested()) return;
        fd = queue.front();
        queue.pop_front();
      }
      Serve(fd, stop);
      close(fd);
    }
  }

  void Serve(int fd, const std::stop_token& stop) {
    if (options.root_only && !PeerIsRoot(fd)) {
      LogWarning("a connection of another user was refused", {{"socket", options.path}});
      return;
    }
    Result<std::string> line = ReadLine(fd, options.max_line_bytes, options.io_timeout, stop);
    Json answer;
    if (!line.ok()) {
      answer = Refusal(line.status().message());
    } else if (Result<Json> question = ParseJson(*line); !question.ok() || !question->is_object()) {
      answer = Refusal("the question is no JSON object");
    } else {
      try {
        answer = handler(*question, stop);
      } catch (const std::exception& e) {
        LogError("a question could not be answered", {{"error", e.what()}});
        answer = Refusal("internal error");
      }
    }
    Status written = WriteLine(fd, DumpJson(answer), options.io_timeout);
    if (!written.ok()) LogWarning("an answer was not read", {{"error", written.message()}});
  }

  const SocketServerOptions options;
  const Handler handler;
  int listener = -1;
  std::mutex mutex;
  std::condition_variable_any changed;
  std::deque<int> queue;
  std::vector<std::jthread> threads;
};

SocketServer::SocketServer(SocketServerOptions options, Handler handler)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(handler))) {}

SocketServer::~SocketServer() { Stop(); }

Status SocketServer::Start() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& path = impl_->options.path;
  if (path.size() >= sizeof address.sun_path) return Status(Code::kInvalidArgument, "the socket's path is too long: " + path);
  std::memcpy(address.sun_path, path.data(), path.size());
  unlink(path.c_str());  // a former process's; only one agent runs on a node
  impl_->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (impl_->listener < 0) return Status(Code::kResourceExhausted, "cannot make a socket");
  if (bind(impl_->listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || chmod(path.c_str(), 0600) != 0 ||
      listen(impl_->listener, impl_->options.backlog) != 0) {
    return Status(Code::kInternal, "cannot listen on " + path + ": " + std::strerror(errno));  // NOLINT(concurrency-mt-unsafe)
  }
  impl_->threads.emplace_back([impl = impl_.get()](std::stop_token stop) { impl->Accept(stop); });
  for (int i = 0; i < impl_->options.threads; ++i) {
    impl_->threads.emplace_back([impl = impl_.get()](std::stop_token stop) { impl->Work(stop); });
  }
  return Status::Ok();
}

void SocketServer::Stop() {
  for (std::jthread& thread : impl_->threads) thread.request_stop();
  impl_->threads.clear();
  for (int fd : impl_->queue) close(fd);
  impl_->queue.clear();
  if (impl_->listener >= 0) {
    close(impl_->listener);
    unlink(impl_->options.path.c_str());
  }
  impl_->listener = -1;
}

}  // namespace holdfast::agent
