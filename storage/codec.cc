#include "storage/codec.h"

#include <lz4.h>
#include <zstd.h>

namespace holdfast::storage {

namespace {

// Of LZ4: on heaps of a JVM, Redis and Python it takes 26 to 59 % less time than 4, for 3 to 20 % more bytes until the store tightens them.
constexpr int kAcceleration = 16;
// Of zstd: 3 takes a third longer for 3 % fewer bytes.
constexpr int kZstdLevel = 1;

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

}  // namespace

size_t TryCompress(std::span<const std::byte> content, std::span<std::byte> out) {
  const size_t room = content.size() - content.size() * 6 / 100 - (content.size() < 100 ? 1 : 0);
  if (content.size() < 64 || content.size() > kMaxSegmentBytes || out.size() < room) return 0;
  // LZ4 gives up (0) when the result does not fit into what would still be a gain.
  int n = LZ4_compress_fast(reinterpret_cast<const char*>(content.data()), reinterpret_cast<char*>(out.data()),
                            static_cast<int>(content.size()), static_cast<int>(room), kAcceleration);
  return n > 0 ? static_cast<size_t>(n) : 0;
}

size_t TryCompressMore(std::span<const std::byte> content, size_t most, std::span<std::byte> out) {
  thread_local const std::unique_ptr<ZSTD_CCtx, FreeContext> context(ZSTD_createCCtx());
  const size_t room = most - most * 6 / 100 - (most < 100 ? 1 : 0);
  if (!context || content.size() < 64 || content.size() > kMaxSegmentBytes || out.size() < room) return 0;
  const size_t n = ZSTD_compressCCtx(context.get(), out.data(), room, content.data(), content.size(), kZstdLevel);
  return ZSTD_isError(n) != 0 ? 0 : n;
}

Status CheckEncoding(uint8_t codec, uint32_t size, uint64_t stored) {
  if (size == 0 || size > kMaxSegmentBytes) {
    return Status(Code::kInvalidArgument, "a segment has 1 to " + std::to_string(kMaxSegmentBytes) + " bytes, not " + std::to_string(size));
  }
  if (codec == static_cast<uint8_t>(Codec::kRaw) ? stored == size
                                                 : codec <= static_cast<uint8_t>(Codec::kZstd) && stored > 0 && stored < size) {
    return Status::Ok();
  }
  return Status(Code::kInvalidArgument, "a segment of " + std::to_string(size) + " bytes cannot be stored as " + std::to_string(stored) +
                                            " with codec " + std::to_string(codec));
}

Status Decode(Codec codec, uint32_t size, std::span<const std::byte> stored, std::string* content) {
  HF_RETURN_IF_ERROR(CheckEncoding(static_cast<uint8_t>(codec), size, stored.size()));
  const char* data = reinterpret_cast<const char*>(stored.data());
  if (codec == Codec::kRaw) {
    content->assign(data, stored.size());
    return Status::Ok();
  }
  content->resize(size);
  bool whole = false;
  if (codec == Codec::kZstd) {
    thread_local const std::unique_ptr<ZSTD_DCtx, FreeContext> context(ZSTD_createDCtx());
    if (!context) return Status(Code::kResourceExhausted, "no memory to unpack a segment");
    const size_t n = ZSTD_decompressDCtx(context.get(), content->data(), size, data, stored.size());
    whole = ZSTD_isError(n) == 0 && n == size;
  } else {
    whole = LZ4_decompress_safe(data, content->data(), static_cast<int>(stored.size()), static_cast<int>(size)) == static_cast<int>(size);
  }
  if (!whole) return Status(Code::kDataLoss, "a segment does not unpack to its size");
  return Status::Ok();
}

Result<std::string> Decode(Codec codec, uint32_t size, std::span<const std::byte> stored) {
  std::string content;
  HF_RETURN_IF_ERROR(Decode(codec, size, stored, &content));
  return content;
}

}  // namespace holdfast::storage
