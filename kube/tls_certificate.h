// The server's side of TLS: a certificate that may change while connections run, and the connections themselves, so that Stop can end all
// of them, and others those that keep a thread busy for nothing. Each connection is served by one thread. Thread-safe.
#pragma once

#include <openssl/ssl.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
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

  // On the thread of a connection: its request was answered. Servers that use the two below call it after each answer.
  static void RequestDone();
  // Ends connections whose peer has not finished its handshake, or a request from the first byte to the answer, within `limit`.
  size_t CutSlow(Duration limit);
  // Ends up to `count` connections between two requests, those first that have been silent longest.
  size_t CutIdle(size_t count);

 private:
  struct Certificate;
  struct Connection;
  static int OnHandshake(SSL* ssl, void* self);
  static void OnInfo(const SSL* ssl, int where, int value);
  static long OnBytes(BIO* bio, int operation, const char* data, size_t size, int argi, long argl, int result, size_t* processed);
  static void OnFree(void* parent, void* ptr, CRYPTO_EX_DATA* data, int index, long, void*);

  mutable std::mutex mutex_;
  std::shared_ptr<const Certificate> certificate_;
  std::set<Connection*> connections_;  // each belongs to its SSL
};

}  // namespace holdfast::kube
