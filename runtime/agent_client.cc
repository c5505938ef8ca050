#include "runtime/agent_client.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace holdfast::runtime {
namespace {

constexpr size_t kMaxAnswer = 1 << 20;

class Socket {
 public:
  Socket() : fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {}
  ~Socket() {
    if (fd >= 0) close(fd);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  const int fd;
};

Status Failed(const std::string& path, const std::string& why) {
  return Status(Code::kUnavailable, "holdfast-agent at " + path + ": " + why);
}

// False when the deadline passes first.
bool Wait(int fd, short events, MonoTime deadline) {
  while (true) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::Real().Mono()).count();
    if (left <= 0) return false;
    pollfd poll_fd{fd, events, 0};
    int n = poll(&poll_fd, 1, static_cast<int>(std::min<int64_t>(left + 1, 1000)));
    if (n > 0) return true;
  }
}

}  // namespace

Result<Json> AskAgent(const std::string& socket_path, const Json& question, Duration timeout) {
  const MonoTime deadline = Clock::Real().Mono() + timeout;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof address.sun_path) return Status(Code::kInvalidArgument, "socket path too long: " + socket_path);
  memcpy(address.sun_path, socket_path.data(), socket_path.size());
  Socket connection;
  if (connection.fd < 0) return Failed(socket_path, "out of file descriptors");
  // EAGAIN: its queue of connections is full, and poll does not tell when that ends.
  while (connect(connection.fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    if (errno != EAGAIN && errno != EINTR) return Failed(socket_path, std::generic_category().message(errno));
    if (Clock::Real().Mono() >= deadline) return Status(Code::kDeadlineExceeded, "holdfast-agent does not accept connections");
    poll(nullptr, 0, 10);
  }
  const std::string line = DumpJson(question) + "\n";
  for (size_t sent = 0; sent < line.size();) {
    ssize_t n = send(connection.fd, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n > 0) {
      sent += static_cast<size_t>(n);
    } else if (errno != EAGAIN && errno != EINTR) {
      return Failed(socket_path, std::generic_category().message(errno));
    } else if (!Wait(connection.fd, POLLOUT, deadline)) {
      return Status(Code::kDeadlineExceeded, "holdfast-agent does not read the question");
    }
  }
  std::string answer;
  while (answer.find('\n') == std::string::npos) {
    if (!Wait(connection.fd, POLLIN, deadline)) return Status(Code::kDeadlineExceeded, "holdfast-agent does not answer");
    char buffer[8192];
    ssize_t n = recv(connection.fd, buffer, sizeof buffer, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) return Failed(socket_path, "it hung up without an answer");
    answer.append(buffer, static_cast<size_t>(n));
    if (answer.size() > kMaxAnswer) return Failed(socket_path, "its answer is longer than 1 MiB");
  }
  Result<Json> json = ParseJson(std::string_view(answer).substr(0, answer.find('\n')));
  if (!json.ok()) return Failed(socket_path, json.status().message());
  return json;
}

}  // namespace holdfast::runtime
