#include "kube/pem.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include <ctime>
#include <memory>

namespace holdfast::kube {
namespace {

struct Free {
  void operator()(X509* x) const { X509_free(x); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(BIO* bio) const { BIO_free(bio); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

int NoPassword(char*, int, int, void*) { return -1; }

Owned<BIO> Reader(const std::string& pem) { return Owned<BIO>(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()))); }

Owned<X509> FirstCertificate(const std::string& pem) {
  Owned<X509> certificate(PEM_read_bio_X509(Reader(pem).get(), nullptr, NoPassword, nullptr));
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
  Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(Reader(key_pem).get(), nullptr, NoPassword, nullptr));
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
