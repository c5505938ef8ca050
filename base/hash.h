// A hash whose values may be written down: the same on every machine, for ever. For no secret, and against nobody who wishes a collision.
#pragma once

#include <cstdint>
#include <string_view>

namespace holdfast {

// FNV-1a, 64 bit.
constexpr uint64_t Fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace holdfast
