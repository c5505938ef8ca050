// A namespace's keys and how they lie on disk: wrapped by a key-encryption key (KEK) that the volume does not have. FORMAT.md has the
// bytes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "storage/aead.h"
#include "storage/hash.h"

namespace holdfast::storage {

struct NamespaceKeys {
  HashKey hash{};  // names the segments
  Secret data{};   // encrypts packs and manifests, never by itself: keys are derived from it
};

struct Kek {
  Salt id{};  // derived from it: says which one wrapped a key
  Secret key{};
};
Kek MakeKek(const Secret& key);
// 32 bytes, or 64 hexadecimal digits and perhaps a line's end.
Result<Kek> ParseKek(std::string_view text);
// The first wraps, all unwrap.
Result<std::vector<Kek>> LoadKeks(const std::vector<std::string>& files);

Result<NamespaceKeys> NewNamespaceKeys();
Result<std::string> WrapKeys(const NamespaceKeys& keys, const std::string& ns, const Kek& kek);

struct UnwrappedKeys {
  NamespaceKeys keys;
  Salt kek{};  // the id of the one that wrapped them
};
// kDataLoss: damaged. kFailedPrecondition: wrapped by a KEK that is not among `keks`.
Result<UnwrappedKeys> UnwrapKeys(std::string_view wrapped, const std::string& ns, const std::vector<Kek>& keks);

}  // namespace holdfast::storage
