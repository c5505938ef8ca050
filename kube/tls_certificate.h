// The server's side of TLS: a certificate that may change while connections run. Thread-safe.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <mutex>
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

 private:
  struct Certificate;
  static int OnHandshake(SSL* ssl, void* self);

  mutable std::mutex mutex_;
  std::shared_ptr<const Certificate> certificate_;
};

}  // namespace holdfast::kube
