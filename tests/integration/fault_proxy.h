// A bad network on loopback between a client and a server, for tests: it hands bytes on until the test says otherwise.
//
//   FaultProxy proxy(ApiServer::Shared().config(), FaultProxy::Mode::kRelay);
//   kube::Client client(kube::MakeCurlTransport(proxy.config()));
//   proxy.FreezeOpen();  // what is connected now is half-open from here on: no bytes, no FIN; new connections work
//
// kRelay leaves TLS and HTTP/2 between the client and the real server alone: bytes can be withheld, slowed and cut, as a network does.
// kHttp ends the client's TLS with a certificate of its own and speaks HTTP/1.1, so that answers can be made up (429, 503, 401) and the
// certificate changed; the client's own certificate does not reach the server there. Every method is thread-safe and takes effect within
// 20 ms. Destroying it closes everything.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kube/config.h"

namespace holdfast::testing {

class FaultProxy {
 public:
  enum class Mode { kRelay, kHttp };

  // `upstream.server` is https:// or http:// with a numeric IPv4 address and a port.
  FaultProxy(const kube::ClientConfig& upstream, Mode mode);
  ~FaultProxy();

  // `upstream` with our address instead, and in kHttp mode with the certificate that we show now as its CA.
  kube::ClientConfig config() const;

  // The network. Each holds until Heal, for open connections and new ones, unless it says otherwise.
  void Freeze();                           // half-open everywhere: connections are accepted, and nothing moves on any of them
  void FreezeOpen();                       // half-open are, until they are closed, the connections of now; later ones work. Heal leaves it
  void Throttle(size_t bytes_per_second);  // of what the server sends, on each connection
  void CutAfter(size_t bytes);             // each connection is reset when the server has sent so many more bytes on it
  void Refuse();                           // new connections are reset at once
  void Heal();
  void CutAll();  // resets the open connections now, once

  // A stale or another server: where connections go that are opened from now on. CutAll moves the open ones over too.
  void SetUpstream(const kube::ClientConfig& upstream);

  // kHttp only. The next `times` requests whose "METHOD /path?query" contains `match` get this answer; the server never sees them.
  struct Answer {
    std::string match{};
    int times = 1;
    int status = 503;
    std::map<std::string, std::string> headers{};
    std::string body{};
  };
  void AddAnswer(Answer answer);
  // kHttp only: new connections see this certificate. `config()` trusts it from then on; clients made before do not.
  void SetCertificate(const std::string& certificate_pem, const std::string& key_pem);

  int accepted() const;                       // connections since the start
  int open() const;                           // connections now, half-open ones too
  std::vector<std::string> requests() const;  // kHttp: "METHOD /path?query" of each so far, those that AddAnswer answered too

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast::testing
