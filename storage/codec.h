// How a segment's bytes lie on disk and on the wire: as they are, or LZ4 where that gains at least 6 %.
#pragma once

#include <span>
#include <string>

#include "storage/store.h"

namespace holdfast::storage {

// Compresses `content` into `out` (at least content.size() bytes) and returns how many bytes it took; 0: keep it raw.
size_t TryCompress(std::span<const std::byte> content, std::span<std::byte> out);
// kDataLoss when the bytes do not unpack to exactly `size`; `size` is at most kMaxSegmentBytes, else kInvalidArgument.
Result<std::string> Decode(Codec codec, uint32_t size, std::span<const std::byte> stored);
// 'stored' is a whole, plausible encoding of `size` bytes: cheap checks that need no unpacking.
Status CheckEncoding(uint8_t codec, uint32_t size, uint64_t stored);

}  // namespace holdfast::storage
