// From one phase of a connection to the next, as far as what has come allows.
#include <sys/epoll.h>

#include "kube/http_server_loop.h"

namespace holdfast::kube {
namespace {

using Progress = ServerConnection::Progress;

constexpr size_t kMaxHeadBytes = 32 << 10;
constexpr Duration kLinger = std::chrono::seconds(2);

}  // namespace

void HttpServerLoop::Enter(ServerConnection& connection, Phase phase) {
  connection.standing.phase = phase;
  connection.standing.since = clock_.Mono();
}

void HttpServerLoop::Want(uint64_t id, ServerConnection& connection, Progress what) {
  if (what == Progress::kEnded) return Remove(id);
  Watch(EPOLL_CTL_MOD, connection.fd, id, what == Progress::kWrite ? EPOLLOUT : EPOLLIN);
}

void HttpServerLoop::Advance(uint64_t id) {
  auto found = connections_.find(id);
  if (found == connections_.end()) return;  // pushed out a moment ago
  ServerConnection& connection = *found->second;
  switch (connection.standing.phase) {
    case Phase::kHandshake: {
      const Progress progress = connection.Handshake();
      if (progress != Progress::kDone) return Want(id, connection, progress);
      Enter(connection, Phase::kIdle);
      return AdvanceHead(id, connection);
    }
    case Phase::kIdle:
    case Phase::kHead:
      return AdvanceHead(id, connection);
    case Phase::kBody:
      return AdvanceBody(id, connection);
    case Phase::kFlushing:
      return AdvanceFlush(id, connection);
    case Phase::kLingering: {
      const Progress progress = connection.DropInput();
      return Want(id, connection, progress);
    }
    case Phase::kReady:
    case Phase::kServing:
      return;
  }
}

void HttpServerLoop::AdvanceHead(uint64_t id, ServerConnection& connection) {
  const Progress progress = connection.Fill(kMaxHeadBytes);
  if (connection.standing.phase == Phase::kIdle && !connection.input.empty()) Enter(connection, Phase::kHead);
  Result<std::optional<RequestHead>> head = ReadRequestHead(connection.input);
  if (!head.ok()) return Refuse(id, connection, "400 Bad Request");
  if (!*head && progress == Progress::kDone) return Refuse(id, connection, "431 Request Header Fields Too Large");
  if (!*head) return Want(id, connection, progress);
  connection.request = **head;
  if (!options_.body_first) return GetReady(id, connection);
  if (connection.request.body_bytes > *options_.body_first) return Refuse(id, connection, "413 Payload Too Large");
  Enter(connection, Phase::kBody);
  AdvanceBody(id, connection);
}

void HttpServerLoop::AdvanceBody(uint64_t id, ServerConnection& connection) {
  const size_t all = connection.request.bytes + connection.request.body_bytes;
  const Progress progress = connection.Fill(all);
  if (connection.input.size() >= all) return GetReady(id, connection);
  Want(id, connection, progress);
}

void HttpServerLoop::Refuse(uint64_t id, ServerConnection& connection, const char* status) {
  connection.Begin({}, {.silence = options_.silence, .body = options_.body, .answer = options_.answer});
  const std::string answer = std::string("HTTP/1.1 ") + status + "\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
  connection.write(answer.data(), answer.size());
  connection.keep = false;
  Enter(connection, Phase::kFlushing);
  AdvanceFlush(id, connection);
}

void HttpServerLoop::AdvanceFlush(uint64_t id, ServerConnection& connection) {
  const Progress progress = connection.Flush();
  if (progress != Progress::kDone) return Want(id, connection, progress);
  if (!connection.keep || stopping_) {
    connection.EndOutput();
    Enter(connection, Phase::kLingering);
    return Want(id, connection, Progress::kRead);
  }
  connection.standing.proven = true;
  Enter(connection, Phase::kIdle);
  AdvanceHead(id, connection);
}

void HttpServerLoop::GetReady(uint64_t id, ServerConnection& connection) {
  Enter(connection, Phase::kReady);
  Watch(EPOLL_CTL_DEL, connection.fd, id, 0);
  ready_.push_back(id);
}

Duration HttpServerLoop::LimitOf(Phase phase) const {
  switch (phase) {
    case Phase::kHandshake:
      return options_.handshake;
    case Phase::kIdle:
      return options_.idle;
    case Phase::kHead:
      return options_.head;
    case Phase::kBody:
      return options_.body;
    case Phase::kFlushing:
      return options_.answer;
    case Phase::kLingering:
      return kLinger;
    case Phase::kReady:
    case Phase::kServing:
      break;
  }
  return Duration::max();
}

}  // namespace holdfast::kube
