#include "storage/keys.h"

#include <algorithm>

#include "base/file.h"
#include "storage/bytes.h"

namespace holdfast::storage {
namespace {

constexpr std::string_view kMagic = "HFKEYS02";
constexpr size_t kSealedBytes = sizeof(HashKey) + sizeof(Secret) + kTagBytes;
constexpr size_t kSealedAt = 8 + 16 + 16, kSumAt = kSealedAt + kSealedBytes, kFileBytes = kSumAt + 16;

std::string Sum(std::string_view text) {
  std::string hex = Digest(text).substr(7, 32);
  Salt sum{};
  FromHex(hex, sum);
  return std::string(AsText(sum));
}

Secret WrappingKey(const Kek& kek, const Salt& salt) { return Derive("holdfast-store 2 key wrapping", kek.key, salt); }

}  // namespace

Kek MakeKek(const Secret& key) {
  const Secret id = Derive("holdfast-store 2 KEK id", key, {});
  Kek kek{.id = {}, .key = key};
  std::copy_n(id.begin(), kek.id.size(), kek.id.begin());
  return kek;
}

Result<Kek> ParseKek(std::string_view text) {
  Secret key;
  if (text.size() == key.size()) {
    memcpy(key.data(), text.data(), key.size());
    return MakeKek(key);
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
  if (!FromHex(text, key)) return Status(Code::kInvalidArgument, "a KEK is 32 bytes or 64 lower-case hexadecimal digits");
  return MakeKek(key);
}

Result<std::vector<Kek>> LoadKeks(const std::vector<std::string>& files) {
  std::vector<Kek> keks;
  for (const std::string& file : files) {
    HF_ASSIGN_OR_RETURN(std::string text, ReadFile(file, 4096));
    Result<Kek> kek = ParseKek(text);
    if (!kek.ok()) return kek.status().With(file);
    keks.push_back(*kek);
  }
  return keks;
}

Result<NamespaceKeys> NewNamespaceKeys() {
  NamespaceKeys keys;
  HF_RETURN_IF_ERROR(FillRandom(keys.hash));
  HF_RETURN_IF_ERROR(FillRandom(keys.data));
  return keys;
}

Result<std::string> WrapKeys(const NamespaceKeys& keys, const std::string& ns, const Kek& kek) {
  HF_ASSIGN_OR_RETURN(Salt salt, NewSalt());
  std::string text(kMagic);
  text += AsText(kek.id);
  text += AsText(salt);
  const std::string plain = std::string(AsText(keys.hash)) + std::string(AsText(keys.data));
  text.resize(kSumAt);
  HF_RETURN_IF_ERROR(
      Seal(WrappingKey(kek, salt), 0, AsBytes(ns), AsBytes(plain), std::as_writable_bytes(std::span(text)).subspan(kSealedAt)));
  return text + Sum(text);
}

Result<UnwrappedKeys> UnwrapKeys(std::string_view text, const std::string& ns, const std::vector<Kek>& keks) {
  if (text.size() != kFileBytes || !text.starts_with(kMagic) || Sum(text.substr(0, kSumAt)) != text.substr(kSumAt))
    return Status(Code::kDataLoss,
                  "the keys of the namespace " + ns + " are damaged: restore their file from a backup, nothing of it can be read without");
  UnwrappedKeys unwrapped;
  memcpy(unwrapped.kek.data(), text.data() + 8, 16);
  auto kek = std::find_if(keks.begin(), keks.end(), [&](const Kek& one) { return one.id == unwrapped.kek; });
  if (kek == keks.end())
    return Status(Code::kFailedPrecondition,
                  "the keys of the namespace " + ns + " are wrapped by the KEK " + ToHex(unwrapped.kek) +
                      ", which was not given: add its file with --kek-file (in a cluster: put the Secret that had it back, from a copy)");
  Salt salt;
  memcpy(salt.data(), text.data() + 24, 16);
  std::array<uint8_t, 64> plain;
  Status opened = Unseal(WrappingKey(*kek, salt), 0, AsBytes(ns), AsBytes(text.substr(kSealedAt, kSealedBytes)),
                         std::as_writable_bytes(std::span(plain)));
  if (!opened.ok()) return opened.With("the keys of the namespace " + ns);
  memcpy(unwrapped.keys.hash.data(), plain.data(), 32);
  memcpy(unwrapped.keys.data.data(), plain.data() + 32, 32);
  return unwrapped;
}

}  // namespace holdfast::storage
