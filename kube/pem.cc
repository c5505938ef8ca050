#include "kube/pem.h"

#include <openssl/err.h>

#include <ctime>

#include "kube/openssl_owned.h"

namespace holdfast::kube {
namespace {

Owned<X509> FirstCertificate(const std::string& pem) {
  Owned<X509> certificate(PEM_read_bio_X509(PemReader(pem).get(), nullptr, NoPassword, nullptr));
  ERR_clear_error();
  return certificate;
}

}  // namespace

Status CheckCertificates(const std::string& pem) {
  if (FirstCertificate(pem) == nullptr) return {Code::kInvalidArgument, "no PEM certificate in it"};
  return Status::Ok();
}

Status CheckKeyPair(const std::string& certificate_pem, const std::string& key_pem) {
  Owned<X509> certificate = FirstCertificate(certificate_pem);
  if (certificate == nullptr) return {Code::kInvalidArgument, "the client certificate is not PEM"};
  Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(PemReader(key_pem).get(), nullptr, NoPassword, nullptr));
  const bool match = key != nullptr && X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (key == nullptr) return {Code::kInvalidArgument, "the client key is not PEM without a password"};
  if (!match) return {Code::kInvalidArgument, "the client key is not that of the client certificate"};
  return Status::Ok();
}

std::optional<WallTime> CertificateExpiry(const std::string& certificate_pem) {
  Owned<X509> certificate = FirstCertificate(certificate_pem);
  std::tm utc{};
  if (certificate == nullptr || ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &utc) != 1) return std::nullopt;
  return WallTime(std::chrono::seconds(timegm(&utc)));
}

}  // namespace holdfast::kube
