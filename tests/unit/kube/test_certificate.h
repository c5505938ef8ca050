// A self-signed certificate for localhost, made in memory. `valid` seconds from now; negative: it has expired so long ago.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <string>

namespace holdfast::kube {

struct TestCertificate {
  std::string certificate_pem, key_pem;

  static std::string Take(BIO* bio) {
    char* data = nullptr;
    long size = BIO_get_mem_data(bio, &data);
    std::string text(data, static_cast<size_t>(size));
    BIO_free(bio);
    return text;
  }

  static TestCertificate Make(const std::string& common_name, long serial, long valid = 3600) {
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* x = X509_new();
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), serial);
    X509_gmtime_adj(X509_getm_notBefore(x), std::min(-60L, valid - 3600));
    X509_gmtime_adj(X509_getm_notAfter(x), valid);
    X509_NAME* name = X509_get_subject_name(x);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1, 0);
    X509_set_issuer_name(x, name);
    X509_set_pubkey(x, key);
    for (auto [nid, value] : {std::pair{NID_subject_alt_name, "IP:127.0.0.1,DNS:localhost"}, std::pair{NID_basic_constraints, "CA:TRUE"}}) {
      X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, nid, value);
      X509_add_ext(x, extension, -1);
      X509_EXTENSION_free(extension);
    }
    X509_sign(x, key, EVP_sha256());
    TestCertificate made;
    BIO* bio = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(bio, x);
    made.certificate_pem = Take(bio);
    bio = BIO_new(BIO_s_mem());
    PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
    made.key_pem = Take(bio);
    X509_free(x);
    EVP_PKEY_free(key);
    return made;
  }
};

}  // namespace holdfast::kube
