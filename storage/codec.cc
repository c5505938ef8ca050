#include "storage/codec.h"

#include <lz4.h>

namespace holdfast::storage {

size_t TryCompress(std::span<const std::byte> content, std::span<std::byte> out) {
  const size_t room = content.size() - content.size() * 6 / 100 - (content.size() < 100 ? 1 : 0);
  if (content.size() < 64 || content.size() > kMaxSegmentBytes || out.size() < room) return 0;
  // LZ4 gives up (0) when the result does not fit into what would still be a gain.
  int n = LZ4_compress_default(reinterpret_cast<const char*>(content.data()), reinterpret_cast<char*>(out.data()),
                               static_cast<int>(content.size()), static_cast<int>(room));
  return n > 0 ? static_cast<size_t>(n) : 0;
}

Status CheckEncoding(uint8_t codec, uint32_t size, uint64_t stored) {
  if (size == 0 || size > kMaxSegmentBytes) {
    return Status(Code::kInvalidArgument, "a segment has 1 to " + std::to_string(kMaxSegmentBytes) + " bytes, not " + std::to_string(size));
  }
  if (codec == static_cast<uint8_t>(Codec::kRaw) ? stored == size
                                                 : codec == static_cast<uint8_t>(Codec::kLz4) && stored > 0 && stored < size) {
    return Status::Ok();
  }
  return Status(Code::kInvalidArgument, "a segment of " + std::to_string(size) + " bytes cannot be stored as " + std::to_string(stored) +
                                            " with codec " + std::to_string(codec));
}

Result<std::string> Decode(Codec codec, uint32_t size, std::span<const std::byte> stored) {
  HF_RETURN_IF_ERROR(CheckEncoding(static_cast<uint8_t>(codec), size, stored.size()));
  const char* data = reinterpret_cast<const char*>(stored.data());
  if (codec == Codec::kRaw) return std::string(data, stored.size());
  std::string content(size, '\0');
  int n = LZ4_decompress_safe(data, content.data(), static_cast<int>(stored.size()), static_cast<int>(size));
  if (n < 0 || static_cast<uint32_t>(n) != size) return Status(Code::kDataLoss, "a segment does not unpack to its size");
  return content;
}

}  // namespace holdfast::storage
