// The server's side of TLS: a certificate that may change while connections run, and the connections themselves, so that Stop can end them.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"

namespace holdfast::kube {

class TlsServerState {
 public:
  TlsServerState();
  ~TlsServerState();
  // kInvalidArgument when the PEM cannot be read or the key is not the certificate's. Takes effect with the next handshake.
  Status SetCertificate(const std::string& chain_pem, const std::string& key_pem);
  bool HasCertificate() const;
  // Makes `context` take the certificate from here. It must not outlive this object.
  bool Install(SSL_CTX* context);
  // Ends every connection: whoever reads from or writes to one of them gets an end of file or an error.
  void ShutDownConnections();

 private:
  struct Certificate;
  static int OnHandshake(SSL* ssl, void* self);
  static void OnFree(void* parent, void* ptr, CRYPTO_EX_DATA* data, int index, long, void*);

  mutable std::mutex mutex_;
  std::shared_ptr<const Certificate> certificate_;
  std::set<int> sockets_;
};

}  // namespace holdfast::kube
