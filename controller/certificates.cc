#include "controller/certificates.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <memory>

namespace holdfast::controller {
namespace {

template <auto Free>
struct Freer {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using Cert = std::unique_ptr<X509, Freer<X509_free>>;
using Bio = std::unique_ptr<BIO, Freer<BIO_free_all>>;
using Extension = std::unique_ptr<X509_EXTENSION, Freer<X509_EXTENSION_free>>;

// Clocks of other machines may be behind ours.
constexpr Duration kBackdate = std::chrono::minutes(5);

Status Failed(const char* what) {
  char text[160];
  ERR_error_string_n(ERR_get_error(), text, sizeof text);
  ERR_clear_error();
  return {Code::kInternal, std::string("OpenSSL: ") + what + ": " + text};
}

Bio Reader(const std::string& pem) { return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()))); }
Cert ReadCert(const std::string& pem) { return Cert(PEM_read_bio_X509(Reader(pem).get(), nullptr, nullptr, nullptr)); }

std::string Contents(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return size > 0 ? std::string(data, static_cast<size_t>(size)) : "";
}

bool IsIp(const std::string& host) {
  unsigned char buffer[16];
  return inet_pton(AF_INET, host.c_str(), buffer) == 1 || inet_pton(AF_INET6, host.c_str(), buffer) == 1;
}

std::string AltNames(const std::vector<std::string>& hosts) {
  std::string text;
  for (const std::string& host : hosts) text += (text.empty() ? "" : ",") + std::string(IsIp(host) ? "IP:" : "DNS:") + host;
  return text;
}

bool AddExtension(X509* cert, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, cert, nullptr, nullptr, 0);
  Extension extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  return extension && X509_add_ext(cert, extension.get(), -1) == 1;
}

bool SetSerial(X509* cert) {
  unsigned char bytes[16];
  if (RAND_bytes(bytes, sizeof bytes) != 1) return false;
  bytes[0] &= 0x7f;  // positive
  std::unique_ptr<BIGNUM, Freer<BN_free>> number(BN_bin2bn(bytes, sizeof bytes, nullptr));
  return number && BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(cert)) != nullptr;
}

bool SetTime(ASN1_TIME* field, WallTime time) {
  return ASN1_TIME_set(field, std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count()) != nullptr;
}

// `issuer` null: signs itself.
Result<KeyPair> Make(const CertificateRequest& request, X509* issuer, EVP_PKEY* issuer_key, WallTime now) {
  Key key(EVP_EC_gen("P-256"));
  Cert cert(X509_new());
  if (!key || !cert) return Failed("making a key");
  const bool ca = issuer == nullptr;
  X509_NAME* subject = X509_get_subject_name(cert.get());
  bool ok = X509_set_version(cert.get(), X509_VERSION_3) == 1 && SetSerial(cert.get()) &&
            SetTime(X509_getm_notBefore(cert.get()), now - kBackdate) && SetTime(X509_getm_notAfter(cert.get()), now + request.validity) &&
            X509_set_pubkey(cert.get(), key.get()) == 1 &&
            X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(request.common_name.c_str()),
                                       -1, -1, 0) == 1 &&
            X509_set_issuer_name(cert.get(), ca ? subject : X509_get_subject_name(issuer)) == 1;
  X509* parent = ca ? cert.get() : issuer;
  ok = ok && AddExtension(cert.get(), parent, NID_basic_constraints, ca ? "critical,CA:TRUE,pathlen:0" : "critical,CA:FALSE") &&
       AddExtension(cert.get(), parent, NID_key_usage, ca ? "critical,keyCertSign,cRLSign" : "critical,digitalSignature") &&
       AddExtension(cert.get(), parent, NID_subject_key_identifier, "hash") &&
       AddExtension(cert.get(), parent, NID_authority_key_identifier, "keyid");
  if (!ca) {
    ok = ok && AddExtension(cert.get(), parent, NID_ext_key_usage, "serverAuth") &&
         AddExtension(cert.get(), parent, NID_subject_alt_name, AltNames(request.hosts));
  }
  ok = ok && X509_sign(cert.get(), ca ? key.get() : issuer_key, EVP_sha256()) > 0;
  if (!ok) return Failed("making a certificate");

  Bio cert_out(BIO_new(BIO_s_mem())), key_out(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(cert_out.get(), cert.get()) != 1 ||
      PEM_write_bio_PKCS8PrivateKey(key_out.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return Failed("writing a certificate");
  }
  return KeyPair{Contents(cert_out.get()), Contents(key_out.get())};
}

WallTime ReadTime(const ASN1_TIME* time) {
  tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return WallTime();
  return WallTime(std::chrono::seconds(timegm(&parts)));
}

}  // namespace

Result<KeyPair> MakeCa(const CertificateRequest& request, WallTime now) { return Make(request, nullptr, nullptr, now); }

Result<KeyPair> IssueServer(const KeyPair& ca, const CertificateRequest& request, WallTime now) {
  Cert issuer = ReadCert(ca.cert_pem);
  Key key(PEM_read_bio_PrivateKey(Reader(ca.key_pem).get(), nullptr, nullptr, nullptr));
  if (!issuer || !key) return Failed("reading the CA");
  if (X509_check_private_key(issuer.get(), key.get()) != 1) return Failed("the CA's key is not its certificate's");
  return Make(request, issuer.get(), key.get(), now);
}

Result<CertificateFacts> ReadCertificate(const std::string& cert_pem) {
  Cert cert = ReadCert(cert_pem);
  if (!cert) return Failed("reading a certificate");
  CertificateFacts facts{ReadTime(X509_get0_notBefore(cert.get())), ReadTime(X509_get0_notAfter(cert.get())), {}};
  std::unique_ptr<GENERAL_NAMES, Freer<GENERAL_NAMES_free>> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(cert.get(), NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    const ASN1_STRING* value = name->type == GEN_DNS ? name->d.dNSName : name->type == GEN_IPADD ? name->d.iPAddress : nullptr;
    if (value == nullptr) continue;
    const unsigned char* bytes = ASN1_STRING_get0_data(value);
    const int size = ASN1_STRING_length(value);
    if (name->type == GEN_DNS) {
      facts.hosts.emplace_back(reinterpret_cast<const char*>(bytes), size);
    } else {
      char text[INET6_ADDRSTRLEN] = "";
      inet_ntop(size == 4 ? AF_INET : AF_INET6, bytes, text, sizeof text);
      facts.hosts.emplace_back(text);
    }
  }
  return facts;
}

bool SignedBy(const std::string& cert_pem, const std::string& ca_pem) {
  Cert cert = ReadCert(cert_pem), ca = ReadCert(ca_pem);
  if (!cert || !ca) {
    ERR_clear_error();
    return false;
  }
  Key key(X509_get_pubkey(ca.get()));
  const bool good = X509_verify(cert.get(), key.get()) == 1;
  ERR_clear_error();
  return good;
}

}  // namespace holdfast::controller
