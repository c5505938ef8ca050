// BLAKE3 as the store uses it: keyed per namespace for segments, plain for manifests.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "storage/bytes.h"
#include "storage/store.h"

namespace holdfast::storage {

using HashKey = std::array<uint8_t, 32>;

SegmentId HashSegment(const HashKey& key, std::span<const std::byte> content);
std::string Digest(std::string_view text);  // "blake3:<hex>"
std::string ToHex(std::span<const uint8_t> bytes);
bool FromHex(std::string_view hex, std::span<uint8_t> bytes);  // lower case, exactly bytes.size() of them
bool IsZero(std::span<const std::byte> content);

}  // namespace holdfast::storage
