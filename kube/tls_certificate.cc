#include "kube/tls_certificate.h"

#include <openssl/err.h>

#include "kube/openssl_owned.h"

namespace holdfast::kube {
namespace {

Status Invalid(const std::string& what) {
  unsigned long error = ERR_get_error();
  char text[256] = "";
  if (error != 0) ERR_error_string_n(error, text, sizeof text);
  ERR_clear_error();
  return {Code::kInvalidArgument, what + (error != 0 ? std::string(": ") + text : "")};
}

}  // namespace

struct TlsServerState::Certificate {
  std::vector<Owned<X509>> chain;  // the server's own first
  Owned<EVP_PKEY> key;
};

TlsServerState::TlsServerState() = default;
TlsServerState::~TlsServerState() = default;

Status TlsServerState::SetCertificate(const std::string& chain_pem, const std::string& key_pem) {
  auto fresh = std::make_shared<Certificate>();
  Owned<BIO> chain = PemReader(chain_pem);
  while (X509* x = PEM_read_bio_X509(chain.get(), nullptr, NoPassword, nullptr)) fresh->chain.emplace_back(x);
  if (fresh->chain.empty()) return Invalid("the server certificate is not PEM");
  ERR_clear_error();  // the end of the chain is reported as an error
  fresh->key.reset(PEM_read_bio_PrivateKey(PemReader(key_pem).get(), nullptr, NoPassword, nullptr));
  if (!fresh->key) return Invalid("the server's private key is not PEM without a password");
  if (X509_check_private_key(fresh->chain[0].get(), fresh->key.get()) != 1)
    return Invalid("the private key is not that of the server certificate");
  std::lock_guard lock(mutex_);
  certificate_ = std::move(fresh);
  return Status::Ok();
}

bool TlsServerState::HasCertificate() const {
  std::lock_guard lock(mutex_);
  return certificate_ != nullptr;
}

bool TlsServerState::Install(SSL_CTX* context) {
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // Resumed sessions would go on with an old certificate.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_cert_cb(context, OnHandshake, this);
  return true;
}

int TlsServerState::OnHandshake(SSL* ssl, void* self) {
  auto* state = static_cast<TlsServerState*>(self);
  std::shared_ptr<const Certificate> certificate;
  {
    std::lock_guard lock(state->mutex_);
    certificate = state->certificate_;
  }
  if (!certificate || SSL_use_certificate(ssl, certificate->chain[0].get()) != 1 || SSL_use_PrivateKey(ssl, certificate->key.get()) != 1)
    return 0;
  SSL_clear_chain_certs(ssl);
  for (size_t i = 1; i < certificate->chain.size(); ++i) SSL_add1_chain_cert(ssl, certificate->chain[i].get());
  return 1;
}

}  // namespace holdfast::kube
