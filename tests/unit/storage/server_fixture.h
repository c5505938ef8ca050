// A server on loopback with a certificate made for the test.
#pragma once

#include "base/process.h"
#include "storage/remote.h"
#include "storage/server/server.h"
#include "tests/unit/storage/fixture.h"

namespace holdfast::storage {

// Writes `name`.crt and `name`.key for 127.0.0.1; its own CA.
inline void MakeCertificate(const TempDir& dir, const std::string& name) {
  Result<ProcessResult> made =
      RunProcess({"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                  "/CN=" + name, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", dir / (name + ".key"), "-out", dir / (name + ".crt")},
                 {});
  ASSERT_OK(made);
  ASSERT_EQ(made->exit_code, 0) << made->err;
}

class TokenNames final : public Authenticator {
 public:
  explicit TokenNames(std::string where) : node(std::move(where)) {}
  const std::string node;  // everyone's
  // "agent-token" is agent's, and so on.
  Result<Caller> Authenticate(const std::string& token, std::stop_token) override {
    if (token.ends_with("-token")) return Caller{.user = token.substr(0, token.size() - 6), .node = node};
    return Status(Code::kUnauthenticated, "the bearer token is not valid");
  }
};

struct TestServer {
  explicit TestServer(const TempDir& dir, std::unique_ptr<Authorizer> authorizer = nullptr, const std::string& node = "node1",
                      std::optional<kube::HttpServerOptions> shell = std::nullopt)
      : dir(dir) {
    MakeCertificate(dir, "tls");
    store = OpenStore(dir / "store");
    AllowList allowed;
    EXPECT_OK(allowed.Add("agent=read-write"));
    EXPECT_OK(allowed.Add("controller=delete"));
    server = std::make_unique<StoreServer>(*store, *fence, std::make_unique<TokenNames>(node), std::move(authorizer), std::move(allowed),
                                           ServerOptions{.address = "127.0.0.1",
                                                         .tls_cert_file = dir / "tls.crt",
                                                         .tls_key_file = dir / "tls.key",
                                                         .scrub = {.every = Duration(0)},
                                                         .shell = shell});
    EXPECT_OK(server->Start({}));
  }
  RemoteStoreOptions Options(const std::string& user, Duration patience = std::chrono::seconds(20)) const {
    WriteText(dir / (user + ".token"), user + "-token\n");
    return {.http = {.url = "https://127.0.0.1:" + std::to_string(server->port()),
                     .ca_file = dir / "tls.crt",
                     .token_file = dir / (user + ".token")},
            .patience = patience};
  }
  const TempDir& dir;
  std::unique_ptr<LocalStore> store;
  const std::unique_ptr<Fence> fence = std::move(*Fence::Open(dir / "TERM"));
  std::unique_ptr<StoreServer> server;
};

}  // namespace holdfast::storage
