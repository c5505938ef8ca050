#include "controller/sealer.h"

#include <algorithm>

#include "kube/base64.h"
#include "kube/objects.h"

namespace holdfast::controller {
namespace {

constexpr int kMaxRounds = 5;
constexpr char kDataKey[] = "key", kContext[] = "holdfast.dev 2026-11 controller seal";

kube::CallOptions Calls(std::stop_token stop) {
  kube::CallOptions options;
  options.timeout = std::chrono::seconds(10);
  options.stop = std::move(stop);
  return options;
}

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

Result<storage::Secret> Sealer::Key(std::stop_token stop) {
  std::lock_guard lock(mutex_);
  if (key_) return *key_;
  const std::string where = "Secret " + ns_ + "/" + kSealSecret;
  storage::Secret key;
  for (int round = 0; round < kMaxRounds; ++round) {
    auto found = client_.Get<kube::Secret>(ns_, kSealSecret, Calls(stop));
    if (found.ok()) {
      const std::string& data = found->data[kDataKey];
      if (data.size() != key.size()) return Status(Code::kDataLoss, where + " has no key of " + std::to_string(key.size()) + " bytes");
      std::copy(data.begin(), data.end(), key.begin());
      key_ = key;
      return key;
    }
    if (found.status().code() != Code::kNotFound) return found.status().With(where);
    HF_RETURN_IF_ERROR(storage::FillRandom(key));
    const std::string text(reinterpret_cast<const char*>(key.data()), key.size());
    const Json secret = {
        {"apiVersion", "v1"},
        {"kind", "Secret"},
        {"metadata", {{"name", kSealSecret}, {"namespace", ns_}, {"labels", {{"app.kubernetes.io/managed-by", "holdfast"}}}}},
        {"immutable", true},
        {"data", {{kDataKey, kube::EncodeBase64(text)}}}};
    auto made = client_.Create(kube::Secret::kResource, ns_, secret, Calls(stop));
    if (!made.ok() && made.status().code() != Code::kAlreadyExists) return made.status().With(where);
  }
  return Status(Code::kUnavailable, where + " comes and goes");
}

Result<std::string> Sealer::Seal(const std::string& text, const std::string& about, std::stop_token stop) {
  HF_ASSIGN_OR_RETURN(const storage::Secret key, Key(std::move(stop)));
  HF_ASSIGN_OR_RETURN(const storage::Salt salt, storage::NewSalt());
  std::string out(salt.size() + text.size() + storage::kTagBytes, '\0');
  std::copy(salt.begin(), salt.end(), out.begin());
  const auto body = std::as_writable_bytes(std::span(out)).subspan(salt.size());
  HF_RETURN_IF_ERROR(storage::Seal(storage::Derive(kContext, key, salt), 0, Bytes(about), Bytes(text), body));
  return kube::EncodeBase64(out);
}

Result<std::string> Sealer::Open(const std::string& sealed, const std::string& about, std::stop_token stop) {
  HF_ASSIGN_OR_RETURN(const storage::Secret key, Key(std::move(stop)));
  const Status damaged(Code::kDataLoss, "what was sealed for " + about + " is damaged, or not of this cluster's Secret " + kSealSecret);
  const auto raw = kube::DecodeBase64(sealed);
  storage::Salt salt;
  if (!raw || raw->size() < salt.size() + storage::kTagBytes) return damaged;
  std::copy_n(raw->begin(), salt.size(), salt.begin());
  std::string out(raw->size() - salt.size() - storage::kTagBytes, '\0');
  const Status opened = storage::Unseal(storage::Derive(kContext, key, salt), 0, Bytes(about), Bytes(*raw).subspan(salt.size()),
                                        std::as_writable_bytes(std::span(out)));
  if (!opened.ok()) return damaged;
  return out;
}

}  // namespace holdfast::controller
