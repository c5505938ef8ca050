// Keeps what the controller alone may read and nobody may change in places that others can write: AES-256-GCM, by a key of its own from
// the Secret holdfast-seal in its namespace, which it makes when there is none. Thread-safe.
#pragma once

#include <mutex>
#include <optional>

#include "kube/client.h"
#include "storage/aead.h"

namespace holdfast::controller {

inline constexpr char kSealSecret[] = "holdfast-seal";

class Sealer {
 public:
  Sealer(kube::Client& client, std::string ns) : client_(client), ns_(std::move(ns)) {}
  // Base64 of salt, ciphertext and tag, 64 bytes and a third longer than `text`. Each is sealed by a key of its own, derived with the salt.
  Result<std::string> Seal(const std::string& text, const std::string& about, std::stop_token stop);
  // kDataLoss when it is not what Seal gave for the same `about`, or the Secret is another one than then.
  Result<std::string> Open(const std::string& sealed, const std::string& about, std::stop_token stop);

 private:
  Result<storage::Secret> Key(std::stop_token stop);

  kube::Client& client_;
  const std::string ns_;
  std::mutex mutex_;
  std::optional<storage::Secret> key_;
};

}  // namespace holdfast::controller
