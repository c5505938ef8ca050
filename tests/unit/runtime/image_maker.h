// Images of CRIU's as a node could forge them: messages field by field.
#pragma once

#include <string>

#include "base/protobuf.h"

namespace holdfast::runtime {

inline std::string Word(uint32_t word) { return std::string(reinterpret_cast<const char*>(&word), sizeof word); }
inline std::string Number(uint32_t number, uint64_t value) {
  std::string out;
  protobuf::WriteNumber(&out, number, value);
  return out;
}
inline std::string Bytes(uint32_t number, const std::string& content) {
  std::string out;
  protobuf::WriteBytes(&out, number, content);
  return out;
}
inline std::string Entry(const std::string& message) { return Word(static_cast<uint32_t>(message.size())) + message; }
// An image with one entry or several that are written already.
inline std::string Image(uint32_t magic, const std::string& entries) { return Word(0x54564319) + Word(magic) + entries; }

}  // namespace holdfast::runtime
