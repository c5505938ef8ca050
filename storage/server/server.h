// The store over HTTPS (PROTOCOL.md). Owns the listener and its threads; LocalStore and Fence are the caller's and outlive it.
#pragma once

#include <string>

#include "base/fence.h"
#include "kube/http_server.h"
#include "storage/local_store.h"
#include "storage/server/auth.h"
#include "storage/server/authorizer.h"
#include "storage/server/metrics.h"

namespace holdfast::storage {

struct ServerOptions {
  std::string address = "0.0.0.0";
  int port = 0;                                    // 0: any free one
  std::string tls_cert_file, tls_key_file;         // both empty: plain HTTP, only without authentication
  Duration drain = std::chrono::seconds(10);       // how long Stop waits for requests that run
  Duration tighten_after = Duration::max();        // see CollectOptions
  ScrubOptions scrub{};                            // its stop_token is not used; `every` 0: never
  std::optional<kube::HttpServerOptions> shell{};  // other limits than its own, for tests
};

class StoreServer {
 public:
  // No `authenticator`: everyone may do everything; Start refuses that for any address but a loopback one.
  // No `authorizer`: whoever may write may write and read all checkpoints. `fence`: of the leaders that delete.
  StoreServer(LocalStore& store, Fence& fence, std::unique_ptr<Authenticator> authenticator, std::unique_ptr<Authorizer> authorizer,
              AllowList allowed, ServerOptions options, Clock& clock = Clock::Real());
  ~StoreServer();

  // Waits for the certificate's files to appear, until `stop`. kInvalidArgument for options that would let strangers in.
  Status Start(std::stop_token stop);
  int port() const;
  bool serving() const;
  Metrics& metrics();
  // No new connections; running requests end or time out; then every connection is closed.
  void Stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "127.0.0.1:8443", "[::1]:8443", ":8443".
Result<std::pair<std::string, int>> ParseAddress(const std::string& text);
bool IsLoopback(const std::string& address);

}  // namespace holdfast::storage
