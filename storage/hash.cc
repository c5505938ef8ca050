#include "storage/hash.h"

#include <blake3.h>

#include <cstring>

namespace holdfast::storage {

SegmentId HashSegment(const HashKey& key, std::span<const std::byte> content) {
  blake3_hasher hasher;
  blake3_hasher_init_keyed(&hasher, key.data());
  blake3_hasher_update(&hasher, content.data(), content.size());
  SegmentId id;
  blake3_hasher_finalize(&hasher, id.bytes.data(), id.bytes.size());
  return id;
}

std::string Digest(std::string_view text) {
  blake3_hasher hasher;
  blake3_hasher_init(&hasher);
  blake3_hasher_update(&hasher, text.data(), text.size());
  std::array<uint8_t, 32> bytes;
  blake3_hasher_finalize(&hasher, bytes.data(), bytes.size());
  return "blake3:" + ToHex(bytes);
}

struct StreamHash::State {
  blake3_hasher hasher;
};
StreamHash::StreamHash() : state_(std::make_unique<State>()) { blake3_hasher_init(&state_->hasher); }
StreamHash::~StreamHash() = default;
void StreamHash::Add(std::span<const std::byte> bytes) { blake3_hasher_update(&state_->hasher, bytes.data(), bytes.size()); }
std::array<uint8_t, 32> StreamHash::Sum() const {
  std::array<uint8_t, 32> sum;
  blake3_hasher_finalize(&state_->hasher, sum.data(), sum.size());
  return sum;
}

std::string ToHex(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(bytes.size() * 2);
  for (uint8_t byte : bytes) {
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

bool FromHex(std::string_view hex, std::span<uint8_t> bytes) {
  if (hex.size() != bytes.size() * 2) return false;
  auto value = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  for (size_t i = 0; i < bytes.size(); ++i) {
    int high = value(hex[2 * i]), low = value(hex[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    bytes[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return true;
}

bool IsZero(std::span<const std::byte> content) {
  if (content.empty()) return true;
  // Compared with itself one byte on: equal to the end only when every byte equals the first.
  return content[0] == std::byte{0} && memcmp(content.data(), content.data() + 1, content.size() - 1) == 0;
}

std::string SegmentId::Hex() const { return ToHex(bytes); }

Result<SegmentId> SegmentId::FromHex(std::string_view hex) {
  SegmentId id;
  if (!storage::FromHex(hex, id.bytes)) return Status(Code::kInvalidArgument, "a segment id is 64 lower-case hexadecimal digits");
  return id;
}

}  // namespace holdfast::storage
