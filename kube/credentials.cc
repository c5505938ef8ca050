#include "kube/credentials.h"

#include "base/file.h"
#include "base/log.h"
#include "base/time_format.h"
#include "kube/base64.h"
#include "kube/pem.h"

namespace holdfast::kube {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

std::string Or(const std::string& given, const std::string& otherwise) { return given.empty() ? otherwise : given; }

}  // namespace

Status ExpiredForGood(const ClientConfig& config, WallTime now) {
  std::optional<WallTime> expiry = CertificateExpiry(config.client_certificate_pem);
  if (config.client_certificate_pem.empty() || !expiry || *expiry > now) return Status::Ok();
  return {Code::kUnauthenticated, "the client certificate in it expired at " + FormatTime(*expiry) +
                                      ": renew it, or name a file (client-certificate) that somebody renews, and start again"};
}

bool Credentials::File::Refresh() {
  if (path_.empty()) return false;
  Result<std::string> text = ReadFile(path_, kMaxFileBytes);
  if (text.ok()) {
    while (!text->empty() && isspace(static_cast<unsigned char>(text->back()))) text->pop_back();
  }
  if (!text.ok() || text->empty()) {
    if (!failed_)
      LogWarning("cannot read credentials, going on with the last ones", {{"file", path_}, {"error", text.status().ToString()}});
    failed_ = true;
    return false;
  }
  failed_ = false;
  if (*text == content_) return false;
  content_ = std::move(*text);
  return true;
}

Credentials::Credentials(const ClientConfig& config, Clock& clock, Duration recheck)
    : config_(config),
      clock_(clock),
      recheck_(recheck),
      token_(config.token_file),
      ca_(config.ca_pem.empty() ? config.ca_file : ""),
      certificate_(config.client_certificate_pem.empty() ? config.client_certificate_file : ""),
      key_(config.client_key_pem.empty() ? config.client_key_file : "") {}

bool Credentials::Due(std::optional<MonoTime>* last) const {
  const MonoTime now = clock_.Mono();
  if (*last && now - **last < recheck_) return false;
  *last = now;
  return true;
}

std::string Credentials::Authorization() {
  std::lock_guard lock(mutex_);
  if (Due(&token_read_)) token_.Refresh();
  const std::string& token = Or(token_.content(), config_.token);
  if (!token.empty()) return "Bearer " + token;
  if (!config_.username.empty()) return "Basic " + EncodeBase64(config_.username + ":" + config_.password);
  return "";
}

bool Credentials::RenewAfterRefusal(const std::string& used) {
  std::lock_guard lock(mutex_);
  if (token_.path().empty()) return false;
  token_.Refresh();
  token_read_ = clock_.Mono();
  return !token_.content().empty() && "Bearer " + token_.content() != used;
}

Result<std::shared_ptr<const TlsMaterial>> Credentials::Tls() {
  std::lock_guard lock(mutex_);
  if (tls_ == nullptr || Due(&tls_read_)) RefreshTls();
  if (tls_ == nullptr) return tls_problem_;
  return tls_;
}

// Takes over what the files hold now if it is whole; the certificate and its key are two files and change one after the other.
void Credentials::RefreshTls() {
  tls_read_ = clock_.Mono();
  ca_.Refresh();
  certificate_.Refresh();
  key_.Refresh();
  TlsMaterial now = tls_ != nullptr ? *tls_ : TlsMaterial();
  Status problem;
  const std::string ca = Or(config_.ca_pem, ca_.content());
  if (Status valid = ca.empty() && ca_.path().empty() ? Status::Ok() : CheckCertificates(ca); valid.ok()) {
    now.ca_pem = ca;
  } else {
    problem = valid.With("CA " + ca_.path());
  }
  const std::string certificate = Or(config_.client_certificate_pem, certificate_.content());
  const std::string key = Or(config_.client_key_pem, key_.content());
  const bool wanted = !certificate.empty() || !key.empty() || !certificate_.path().empty();
  if (Status valid = wanted ? CheckKeyPair(certificate, key) : Status::Ok(); valid.ok()) {
    now.certificate_pem = certificate;
    now.key_pem = key;
  } else {
    problem = valid.With("client certificate " + certificate_.path() + " and key " + key_.path());
  }
  if (tls_ == nullptr && !problem.ok()) {
    tls_problem_ = Status(Code::kUnavailable, problem.message());
    return;
  }
  const bool same_identity = tls_ != nullptr && now.certificate_pem == tls_->certificate_pem && now.key_pem == tls_->key_pem;
  if (same_identity && now.ca_pem == tls_->ca_pem) return;
  if (tls_ != nullptr) LogInfo("credentials changed", {{"what", same_identity ? "CA" : "client certificate"}, {"server", config_.server}});
  ++now.version;
  if (!same_identity) ++now.identity;
  tls_ = std::make_shared<const TlsMaterial>(std::move(now));
}

std::string Credentials::Doubt() {
  std::lock_guard lock(mutex_);
  if (tls_ == nullptr || tls_->certificate_pem.empty()) return "";
  std::optional<WallTime> expiry = CertificateExpiry(tls_->certificate_pem);
  if (!expiry || *expiry > clock_.Wall()) return "";
  return "our client certificate" + (certificate_.path().empty() ? "" : " " + certificate_.path()) + " expired at " + FormatTime(*expiry) +
         ": renew it";
}

}  // namespace holdfast::kube
