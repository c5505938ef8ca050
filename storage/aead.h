// AES-256-GCM and key derivation, as FORMAT.md uses them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/status.h"

namespace holdfast::storage {

using Secret = std::array<uint8_t, 32>;
using Salt = std::array<uint8_t, 16>;
inline constexpr size_t kTagBytes = 16;

// BLAKE3's derive-key mode: `context` says what the new key is for, `key` and then `info` are its material.
Secret Derive(const char* context, const Secret& key, std::span<const uint8_t> info);
Status FillRandom(std::span<uint8_t> bytes);  // kUnavailable when the kernel gives none
// A simulation's (tests/sim), which must be the same twice: keys made of it protect nothing. Null: the kernel's again. From one thread.
void UseRandom(std::function<void(std::span<uint8_t>)> source);
Result<Salt> NewSalt();

// `out` has plain.size() + kTagBytes. One `key` and `nonce` must never be used for two messages.
Status Seal(const Secret& key, uint64_t nonce, std::span<const std::byte> aad, std::span<const std::byte> plain, std::span<std::byte> out);
// `out` has sealed.size() - kTagBytes and may be where `sealed` is. kDataLoss when any bit of key, nonce, aad or `sealed` differs.
Status Unseal(const Secret& key, uint64_t nonce, std::span<const std::byte> aad, std::span<const std::byte> sealed,
              std::span<std::byte> out);

}  // namespace holdfast::storage
