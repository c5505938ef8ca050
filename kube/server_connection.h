// One connection of an HttpServer: its socket, its TLS if it has any, and what has come and not been read, or been written and not been
// sent. Nothing waits here but the Stream's read and write, and those by an absolute deadline. One thread at a time: the server's loop, or
// the worker that serves its request.
#pragma once

#define CPPHTTPLIB_OPENSSL_SUPPORT  // as the library was built
#include <httplib.h>

#include <memory>
#include <string>

#include "base/clock.h"
#include "kube/request_head.h"

namespace holdfast::kube {

enum class Phase {
  kHandshake,
  kIdle,       // between two requests, or before the first
  kHead,       // from a request's first byte to the end of its head
  kBody,       // of servers that read it before a worker is asked
  kReady,      // waits for a worker
  kServing,    // is a worker's
  kFlushing,   // the rest of the answer is sent
  kLingering,  // answered and closed by us; what the peer still sends is dropped, so that it gets to read the answer
};

// What the choice of who gives way depends on.
struct Standing {
  Phase phase = Phase::kHandshake;
  MonoTime since;       // when the phase began
  bool proven = false;  // a request of it was answered
};
// Whether `a` gives way to a newcomer rather than `b`: those that have begun something and do not end it, and newcomers, oldest first; then
// those between two requests, idlest first. False where `a` must not be ended at all.
bool YieldsBefore(const Standing& a, const Standing& b);
bool MayYield(const Standing& a);

struct WorkerLimits {
  Duration silence, body, answer;  // no byte of the body or of the answer; all of it
};

class ServerConnection final : public httplib::Stream {
 public:
  enum class Progress { kDone, kRead, kWrite, kEnded };  // kRead, kWrite: when the socket can be read from, written to

  // `context`: null for plain HTTP. Takes the socket.
  ServerConnection(int socket, SSL_CTX* context, std::string peer, int peer_port, Clock& clock);
  ~ServerConnection() override;
  ServerConnection(const ServerConnection&) = delete;
  ServerConnection& operator=(const ServerConnection&) = delete;

  Progress Handshake();
  // Takes what there is, until `input` has `limit` bytes (kDone).
  Progress Fill(size_t limit);
  Progress Flush();
  Progress DropInput();  // kRead: there may be more
  void EndOutput();      // the peer reads to the end of the answer, and no further
  void Shutdown();       // from any thread, while the connection exists

  // For a worker: the request's bytes end with it, and so does what can be read.
  void Begin(const RequestHead& request, const WorkerLimits& limits);
  // What was not read of the request is dropped as far as it has come. False: more of it is to come, and the connection is of no more use.
  bool End();

  bool is_readable() const override { return true; }
  bool is_writable() const override { return !broken_; }
  ssize_t read(char* out, size_t size) override;
  ssize_t write(const char* bytes, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return -1; }  // httplib would select() on it

  const int fd;
  const std::string peer;
  Standing standing;
  std::string input;
  RequestHead request{};
  bool keep = false;  // the worker's word: further requests may come

 private:
  Progress Receive(char* out, size_t size, size_t* got);
  Progress Send(const char* bytes, size_t size, size_t* sent);
  Progress SendKept();
  bool Wait(Progress what, MonoTime deadline) const;

  SSL* ssl_ = nullptr;
  const int peer_port_;
  Clock& clock_;
  std::string output_;
  size_t sent_ = 0;        // of output_
  size_t read_ = 0;        // of the request
  size_t from_input_ = 0;  // of it, out of `input`
  bool broken_ = false;
  WorkerLimits limits_{};
  MonoTime body_until_{}, answer_until_{};
};

}  // namespace holdfast::kube
