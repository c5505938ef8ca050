// BLAKE3 as the store uses it: keyed per namespace for segments, plain for manifests.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "storage/bytes.h"
#include "storage/store.h"

namespace holdfast::storage {

using HashKey = std::array<uint8_t, 32>;

SegmentId HashSegment(const HashKey& key, std::span<const std::byte> content);
std::string Digest(std::string_view text);  // "blake3:<hex>"
// Plain BLAKE3 of what comes piece by piece.
class StreamHash {
 public:
  StreamHash();
  ~StreamHash();
  StreamHash(const StreamHash&) = delete;
  StreamHash& operator=(const StreamHash&) = delete;
  void Add(std::span<const std::byte> bytes);
  std::array<uint8_t, 32> Sum() const;  // of all so far

 private:
  struct State;
  const std::unique_ptr<State> state_;
};
std::string ToHex(std::span<const uint8_t> bytes);
bool FromHex(std::string_view hex, std::span<uint8_t> bytes);  // lower case, exactly bytes.size() of them
bool IsZero(std::span<const std::byte> content);

}  // namespace holdfast::storage
