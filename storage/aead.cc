#include "storage/aead.h"

#include <blake3.h>
#include <openssl/evp.h>
#include <sys/random.h>

#include <cstring>
#include <memory>

namespace holdfast::storage {
namespace {

// One of a thread for each direction: it remembers its key, since the records of a pack come one after the other.
class Context {
 public:
  explicit Context(bool sealing) : sealing_(sealing), context_(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free) {
    usable_ = context_ && EVP_CipherInit_ex(context_.get(), EVP_aes_256_gcm(), nullptr, nullptr, nullptr, sealing ? 1 : 0) == 1;
  }
  // Null when OpenSSL refuses.
  EVP_CIPHER_CTX* Begin(const Secret& key, uint64_t nonce) {
    if (!usable_) return nullptr;
    std::array<uint8_t, 12> iv{};
    for (size_t i = 0; i < 8; ++i) iv[i] = static_cast<uint8_t>(nonce >> (8 * i));
    const bool same = has_key_ && key_ == key;
    has_key_ = EVP_CipherInit_ex(context_.get(), nullptr, nullptr, same ? nullptr : key.data(), iv.data(), sealing_ ? 1 : 0) == 1;
    key_ = key;
    return has_key_ ? context_.get() : nullptr;
  }

 private:
  const bool sealing_;
  std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)> context_;
  bool usable_ = false, has_key_ = false;
  Secret key_{};
};

const unsigned char* Bytes(std::span<const std::byte> bytes) { return reinterpret_cast<const unsigned char*>(bytes.data()); }
unsigned char* Bytes(std::span<std::byte> bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); }

bool Update(EVP_CIPHER_CTX* context, std::span<const std::byte> aad, std::span<const std::byte> in, std::span<std::byte> out) {
  int n = 0;
  if (EVP_CipherUpdate(context, nullptr, &n, Bytes(aad), static_cast<int>(aad.size())) != 1) return false;
  return in.empty() ||
         (EVP_CipherUpdate(context, Bytes(out), &n, Bytes(in), static_cast<int>(in.size())) == 1 && n == static_cast<int>(in.size()));
}

std::function<void(std::span<uint8_t>)>& Source() {
  static std::function<void(std::span<uint8_t>)> source;
  return source;
}

}  // namespace

void UseRandom(std::function<void(std::span<uint8_t>)> source) { Source() = std::move(source); }

Secret Derive(const char* context, const Secret& key, std::span<const uint8_t> info) {
  blake3_hasher hasher;
  blake3_hasher_init_derive_key(&hasher, context);
  blake3_hasher_update(&hasher, key.data(), key.size());
  blake3_hasher_update(&hasher, info.data(), info.size());
  Secret derived;
  blake3_hasher_finalize(&hasher, derived.data(), derived.size());
  return derived;
}

Status FillRandom(std::span<uint8_t> bytes) {
  if (Source()) {
    Source()(bytes);
    return Status::Ok();
  }
  if (getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size())) return Status::Ok();
  return Status(Code::kUnavailable, "the kernel gave no random bytes for a key");
}

Result<Salt> NewSalt() {
  Salt salt;
  HF_RETURN_IF_ERROR(FillRandom(salt));
  return salt;
}

Status Seal(const Secret& key, uint64_t nonce, std::span<const std::byte> aad, std::span<const std::byte> plain, std::span<std::byte> out) {
  thread_local Context sealing(true);
  EVP_CIPHER_CTX* context = sealing.Begin(key, nonce);
  unsigned char unused[kTagBytes];
  int n = 0;
  if (context == nullptr || !Update(context, aad, plain, out) || EVP_CipherFinal_ex(context, unused, &n) != 1 ||
      EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, kTagBytes, Bytes(out.subspan(plain.size()))) != 1)
    return Status(Code::kInternal, "OpenSSL cannot encrypt with AES-256-GCM");
  return Status::Ok();
}

Status Unseal(const Secret& key, uint64_t nonce, std::span<const std::byte> aad, std::span<const std::byte> sealed,
              std::span<std::byte> out) {
  if (sealed.size() < kTagBytes) return Status(Code::kDataLoss, "too short to be authentic");
  thread_local Context unsealing(false);
  const size_t size = sealed.size() - kTagBytes;
  EVP_CIPHER_CTX* context = unsealing.Begin(key, nonce);
  unsigned char tag[kTagBytes], unused[kTagBytes];
  memcpy(tag, sealed.data() + size, kTagBytes);
  int n = 0;
  if (context == nullptr || !Update(context, aad, sealed.first(size), out) ||
      EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, kTagBytes, tag) != 1)
    return Status(Code::kInternal, "OpenSSL cannot decrypt with AES-256-GCM");
  if (EVP_CipherFinal_ex(context, unused, &n) != 1) return Status(Code::kDataLoss, "not authentic: damaged, or of another key");
  return Status::Ok();
}

}  // namespace holdfast::storage
