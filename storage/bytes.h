// Little-endian integers in byte strings.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace holdfast::storage {

template <class Integer>
void PutInteger(Integer value, void* out) {
  for (size_t i = 0; i < sizeof value; ++i) static_cast<unsigned char*>(out)[i] = static_cast<unsigned char>(value >> (8 * i));
}
template <class Integer>
Integer GetInteger(const void* in) {
  Integer value = 0;
  for (size_t i = 0; i < sizeof value; ++i) value |= static_cast<Integer>(static_cast<const unsigned char*>(in)[i]) << (8 * i);
  return value;
}
template <class Integer>
void AppendInteger(Integer value, std::string& out) {
  char bytes[sizeof value];
  PutInteger(value, bytes);
  out.append(bytes, sizeof value);
}

inline std::span<const std::byte> AsBytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }
template <size_t N>
std::string_view AsText(const std::array<uint8_t, N>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), N};
}

}  // namespace holdfast::storage
