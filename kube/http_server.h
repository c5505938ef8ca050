// The shell of every HTTP server of ours: store, webhooks, pages. One loop has all connections, and gives a thread only to a request whose
// head is here (and, where it is asked for, its body): whoever trickles a handshake, a head or a body, does not read an answer, or is idle
// costs memory and a descriptor, and no thread. Each phase of a connection has an absolute limit, however little comes in it how often.
// Where the connections are used up, a newcomer takes the place of one that has begun something and not ended it, oldest first, or of the
// idlest; so too among those of one peer's address, which never gets all places nor all threads. HTTP/1.1, bodies with a Content-Length
// only.
#pragma once

#define CPPHTTPLIB_OPENSSL_SUPPORT  // as the library was built
#include <httplib.h>

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "kube/tls_certificate.h"

namespace holdfast::kube {

struct HttpServerOptions {
  size_t threads = 16;
  size_t max_connections = 256;
  std::optional<size_t> body_first;  // a body of up to so many bytes is here before a thread is given, a longer one refused; else unread
  Duration handshake = std::chrono::seconds(5);
  Duration head = std::chrono::seconds(10);
  Duration body = std::chrono::seconds(30), answer = std::chrono::seconds(30);  // each with silences of `silence` at most
  Duration silence = std::chrono::seconds(5);
  Duration idle = std::chrono::seconds(100);
};

class HttpServer {
 public:
  // `tls`: null for plain HTTP; outlives it, and has a certificate when handshakes come.
  HttpServer(HttpServerOptions options, TlsServerState* tls, Clock& clock = Clock::Real());
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  httplib::Server& routes();  // for handlers and limits, before Start; nothing else of it is used
  // Port 0: any. The port is this process' alone.
  Status Start(const std::string& address, int port);
  int port() const;
  bool running() const;
  void StopListening();
  // Requests that are being served have `patience` to end, and their answers to be sent; then connections are cut. Waits for the handlers.
  void Stop(Duration patience = Duration(0));

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast::kube
