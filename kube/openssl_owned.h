// OpenSSL's objects with an owner, and reading PEM from memory.
#pragma once

#include <openssl/pem.h>

#include <memory>
#include <string>

namespace holdfast::kube {

struct OpensslFree {
  void operator()(X509* x) const { X509_free(x); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(BIO* bio) const { BIO_free(bio); }
};
template <class T>
using Owned = std::unique_ptr<T, OpensslFree>;

// `pem` must outlive it.
inline Owned<BIO> PemReader(const std::string& pem) { return Owned<BIO>(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()))); }

// For PEM_read_…: never ask on the terminal for the password of an encrypted key.
inline int NoPassword(char*, int, int, void*) { return -1; }

}  // namespace holdfast::kube
