// The seam to the network: one HTTP request, whole or streamed. Everything above it (client, informers, lease) takes a Transport, so tests
// run on a fake one. Implementations are thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "kube/config.h"

namespace holdfast::kube {

struct HttpRequest {
  std::string method = "GET";
  std::string path{};                                // "/api/v1/pods?limit=500", below ClientConfig::server; or a whole https:// URL
  std::map<std::string, std::string> headers{};      // names in lower case
  std::string body{};                                // at most 16 MiB
  Duration timeout = std::chrono::seconds(30);       // of the whole request; for Stream: until the response's headers
  Duration idle_timeout = std::chrono::seconds(60);  // Stream: longest silence before the stream counts as dead
  size_t max_body_bytes = 64 << 20;                  // Send: a longer answer is kResourceExhausted
};

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string> headers{};  // names in lower case
  std::string body{};                            // Stream: only of answers that are not 2xx
  std::string hint{};  // of a 401: what the transport knows about our credentials ("our client certificate … expired …"), or ""
};

class Transport {
 public:
  virtual ~Transport() = default;
  // Any HTTP answer is a Result with its status; a Status means that none came: kUnavailable (not connected, or the connection broke),
  // kDeadlineExceeded, kCancelled, kResourceExhausted (body too long), kInvalidArgument (no such URL, request too long).
  virtual Result<HttpResponse> Send(const HttpRequest& request, std::stop_token stop) = 0;
  // Calls `on_chunk` with the bytes of a 2xx answer as they come, on the calling thread; returning false ends the stream (OK).
  // Returns when the server ended it (OK), or kDeadlineExceeded when it was silent for idle_timeout. A slow `on_chunk` makes the server
  // wait, and nobody else.
  virtual Result<HttpResponse> Stream(const HttpRequest& request, const std::function<bool(std::string_view)>& on_chunk,
                                      std::stop_token stop) = 0;
};

struct TransportOptions {
  // A connection on which requests run and no byte came for `silence` is asked for an answer; with none after `answer` more it is dead.
  // These are for streams, as in client-go; for a call it is a fifth and three tenths of its timeout (at least 1 s each, at most these), so
  // that a call on a dead connection fails when half its time is left, and a patient one beside it is not given up for its sake.
  Duration silence = std::chrono::seconds(30), answer = std::chrono::seconds(15);
  // Any answer to GET will do. This one is exempt from the API server's priorities and does not wait for etcd; "": never ask.
  std::string liveness_path = "/livez?exclude=etcd";
  Duration connect_timeout = std::chrono::seconds(10);  // TCP and TLS
  Duration idle_connection = std::chrono::seconds(90);  // an unused one is closed then
  Duration recheck_files = std::chrono::seconds(5);     // tokens, certificates, CAs
};

// libcurl on one thread of its own (loop.h). TLS and credentials come from `config`, also for whole URLs. What holds:
// - Connections. With HTTP/2, streams share connections and so do calls (Send), up to 90 on each. The two kinds never meet, and a Send that
//   allows more than 64 MiB goes with the streams: neither a watch nor a long list can be in the way of a lease renewal. HTTP/1.1 has one
//   connection for each running request. Idle connections are kept and used again.
// - Dead peers. TCP_USER_TIMEOUT and keepalive (30 s) find those that acknowledge nothing. Where something still acknowledges (a load
//   balancer, a stopped server), an HTTP/2 connection that owes answers and says nothing is asked `liveness_path`, for libcurl 7.88 has no
//   PING on a multi handle; when that is not answered either, the next request goes to a new connection, and each one on this fails with
//   kUnavailable when its own patience is over. So a lease with a renew deadline of 10 s loses some 2 s to a dead connection and has time
//   to try again. A call whose deadline passes without a byte from its connection also makes the next one take a new connection.
// - A server that says GOAWAY (kube-apiserver's --goaway-chance, a shutdown): what runs goes on, what comes next has a new connection. A
//   write that crossed with it fails with kUnavailable, for libcurl 7.88 does not tell that the server left it alone.
// - Retries. A GET may be sent again when a kept connection turns out to be closed; a request with a body never is. A 401 makes the token
//   file be read, and when the token is a new one the request is sent once more; nothing else is retried here.
// - Rotation. Token, CA and client certificate files are looked at every `recheck_files`. After a change new requests get new connections;
//   when it is the client certificate, streams of the old one end with kUnavailable, and calls may end.
// - Memory. A stream whose reader is slow holds 1 MiB, and up to 32 MiB more that the server was allowed to send before it was stopped
//   (libcurl's HTTP/2 window). Answers are gzipped where the server likes.
std::unique_ptr<Transport> MakeCurlTransport(ClientConfig config, TransportOptions options = {});

}  // namespace holdfast::kube
