#include "kube/tls_certificate.h"

#include <openssl/err.h>
#include <sys/socket.h>

#include <algorithm>

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

struct TlsServerState::Connection {
  Connection(TlsServerState* owner, int fd) : state(owner), socket(fd), began(Now()) {}

  TlsServerState* const state;
  const int socket;
  // Ticks of the real clock: when the handshake or request that is being read or answered began, 0 between two; and when the last ended.
  std::atomic<int64_t> began;
  std::atomic<int64_t> ended{0};
  bool open = false;  // the handshake is over; its own thread only

  void Done() {
    ended = Now();
    began = 0;
  }
  static int64_t Now() { return Clock::Real().Mono().time_since_epoch().count(); }
  // The one that this thread serves.
  static thread_local Connection* current;
};

thread_local TlsServerState::Connection* TlsServerState::Connection::current = nullptr;

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

namespace {
// Where a context remembers its state, and an SSL its connection. One index for the process, as OpenSSL wants it.
int StateIndex() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}
int ConnectionIndex(CRYPTO_EX_free* on_free) {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, on_free);
  return index;
}
}  // namespace

bool TlsServerState::Install(SSL_CTX* context) {
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // Resumed sessions would go on with an old certificate.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_cert_cb(context, OnHandshake, this);
  SSL_CTX_set_info_callback(context, OnInfo);
  return SSL_CTX_set_ex_data(context, StateIndex(), this) == 1;
}

// Follows a connection from the first byte of its handshake.
void TlsServerState::OnInfo(const SSL* ssl, int where, int) {
  const int index = ConnectionIndex(OnFree);
  auto* connection = static_cast<Connection*>(SSL_get_ex_data(ssl, index));
  if ((where & SSL_CB_HANDSHAKE_START) != 0 && connection == nullptr && SSL_get_fd(ssl) >= 0) {
    auto* state = static_cast<TlsServerState*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), StateIndex()));
    auto fresh = std::make_unique<Connection>(state, SSL_get_fd(ssl));
    if (SSL_set_ex_data(const_cast<SSL*>(ssl), index, fresh.get()) != 1) return;
    connection = Connection::current = fresh.release();
    std::lock_guard lock(state->mutex_);
    state->connections_.insert(connection);
  }
  // Keys may be exchanged again later: that is no end of anything.
  if ((where & SSL_CB_HANDSHAKE_DONE) != 0 && connection != nullptr && !connection->open) {
    connection->open = true;
    connection->Done();
    BIO* bio = SSL_get_rbio(ssl);
    BIO_set_callback_arg(bio, reinterpret_cast<char*>(connection));
    BIO_set_callback_ex(bio, OnBytes);
  }
}

// The first byte after an answer begins a request, be it only a part of one.
long TlsServerState::OnBytes(BIO* bio, int operation, const char*, size_t, int, long, int result, size_t*) {
  if (operation == (BIO_CB_READ | BIO_CB_RETURN) && result > 0) {
    auto* connection = reinterpret_cast<Connection*>(BIO_get_callback_arg(bio));
    if (connection->began == 0) connection->began = Connection::Now();
  }
  return result;
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

void TlsServerState::OnFree(void*, void* ptr, CRYPTO_EX_DATA*, int, long, void*) {
  const std::unique_ptr<Connection> connection(static_cast<Connection*>(ptr));
  if (!connection) return;
  if (Connection::current == connection.get()) Connection::current = nullptr;
  std::lock_guard lock(connection->state->mutex_);
  connection->state->connections_.erase(connection.get());
}

// An SSL is freed before its socket is closed, so the socket of each connection that is known here is still its own.

void TlsServerState::ShutDownConnections() {
  std::lock_guard lock(mutex_);
  for (Connection* connection : connections_) shutdown(connection->socket, SHUT_RDWR);
}

void TlsServerState::RequestDone() {
  if (Connection::current != nullptr) Connection::current->Done();
}

size_t TlsServerState::CutSlow(Duration limit) {
  std::lock_guard lock(mutex_);
  size_t cut = 0;
  for (Connection* connection : connections_) {
    const int64_t began = connection->began;
    if (began == 0 || Connection::Now() - began < limit.count()) continue;
    shutdown(connection->socket, SHUT_RDWR);
    ++cut;
  }
  return cut;
}

size_t TlsServerState::CutIdle(size_t count) {
  std::lock_guard lock(mutex_);
  std::vector<Connection*> idle;
  std::copy_if(connections_.begin(), connections_.end(), std::back_inserter(idle), [](Connection* c) { return c->began == 0; });
  std::sort(idle.begin(), idle.end(), [](Connection* a, Connection* b) { return a->ended < b->ended; });
  idle.resize(std::min(idle.size(), count));
  for (Connection* connection : idle) shutdown(connection->socket, SHUT_RDWR);
  return idle.size();
}

}  // namespace holdfast::kube
