// How a segment's bytes lie on disk and on the wire: as they are, LZ4 where that gains at least 6 %, or, once the store had time for it,
// zstd.
#pragma once

#include <span>
#include <string>

#include "storage/store.h"

namespace holdfast::storage {

// Compresses `content` into `out` (at least content.size() bytes) and returns how many bytes it took; 0: keep it raw.
size_t TryCompress(std::span<const std::byte> content, std::span<std::byte> out);
// The same with zstd, which takes twice as long and leaves little more than half; 0: it does not gain at least 6 % on `most` bytes.
size_t TryCompressMore(std::span<const std::byte> content, size_t most, std::span<std::byte> out);
// Into `content`, which is made `size` long.
Status Decode(Codec codec, uint32_t size, std::span<const std::byte> stored, std::string* content);
// kDataLoss when the bytes do not unpack to exactly `size`; `size` is at most kMaxSegmentBytes, else kInvalidArgument.
Result<std::string> Decode(Codec codec, uint32_t size, std::span<const std::byte> stored);
// 'stored' is a whole, plausible encoding of `size` bytes: cheap checks that need no unpacking.
Status CheckEncoding(uint8_t codec, uint32_t size, uint64_t stored);

}  // namespace holdfast::storage
