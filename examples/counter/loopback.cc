#include "counter/loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace counter {
namespace {

constexpr int kAnswerMs = 10000;

// The child: sends back what it gets, and ends with its parent.
[[noreturn]] void Echo(uint16_t port) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) _exit(1);
  char data[64];
  for (;;) {
    const ssize_t n = read(fd, data, sizeof data);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(0);
    for (ssize_t sent = 0; sent < n;) {
      const ssize_t m = write(fd, data + sent, n - sent);
      if (m < 0 && errno != EINTR) _exit(1);
      if (m > 0) sent += m;
    }
  }
}

}  // namespace

Loopback::Loopback() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size) != 0) {
    Fail("cannot listen on 127.0.0.1");
    if (listener >= 0) close(listener);
    return;
  }
  child_ = fork();
  if (child_ == 0) {
    close(listener);
    Echo(ntohs(at.sin_port));
  }
  pollfd ready{listener, POLLIN, 0};
  if (child_ > 0 && poll(&ready, 1, kAnswerMs) == 1) socket_ = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (socket_ < 0) Fail("the child does not connect");
  close(listener);
  const int on = 1;
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Loopback::~Loopback() {
  if (socket_ >= 0) close(socket_);
  if (child_ > 0) {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
}

bool Loopback::Fail(const std::string& what) {
  if (error_.empty()) error_ = what + (errno ? ": " + std::generic_category().message(errno) : "");
  return false;
}

bool Loopback::RoundTrip(uint64_t count) {
  if (!error_.empty()) return false;
  errno = 0;
  if (send(socket_, &count, sizeof count, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof count)) return Fail("send to the child");
  uint64_t answer = 0;
  for (size_t got = 0; got < sizeof answer;) {
    pollfd ready{socket_, POLLIN, 0};
    const int n = poll(&ready, 1, kAnswerMs);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) return Fail("the child does not answer");
    const ssize_t m = recv(socket_, reinterpret_cast<char*>(&answer) + got, sizeof answer - got, 0);
    if (m < 0 && errno == EINTR) continue;
    if (m <= 0) return Fail("the child's connection ended");
    got += m;
  }
  if (answer != count) return Fail("the child answered " + std::to_string(answer) + " to " + std::to_string(count));
  return true;
}

}  // namespace counter
