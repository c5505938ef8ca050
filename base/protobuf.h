// Reading protobuf messages field by field, as they stand in the bytes: for the few messages of CRIU's images that we look into. Nothing is
// copied, and what we do not know stays visible. Hostile input: whatever comes in is answered by false. And writing single fields.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace holdfast::protobuf {

struct Field {
  uint32_t number = 0, wire = 0;
  uint64_t value = 0;        // wire type 0
  std::string_view content;  // the others
  std::string_view whole;    // tag and all
};

// Takes it from the beginning of `in`. False: cut short, or longer than 64 bits.
inline bool ReadVarint(std::string_view* in, uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 64 && !in->empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(in->front());
    in->remove_prefix(1);
    *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return true;
  }
  return false;
}

inline bool ReadField(std::string_view* in, Field* field) {
  const std::string_view from = *in;
  uint64_t tag = 0, size = 0;
  if (!ReadVarint(in, &tag)) return false;
  field->number = static_cast<uint32_t>(tag >> 3);
  field->wire = tag & 7;
  switch (field->wire) {
    case 0:
      if (!ReadVarint(in, &field->value)) return false;
      break;
    case 1:
      size = 8;
      break;
    case 5:
      size = 4;
      break;
    case 2:
      if (!ReadVarint(in, &size)) return false;
      break;
    default:
      return false;
  }
  if (field->wire != 0) {
    if (size > in->size()) return false;
    field->content = in->substr(0, size);
    in->remove_prefix(size);
  }
  field->whole = from.substr(0, from.size() - in->size());
  return true;
}

inline void WriteVarint(std::string* out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

inline void WriteNumber(std::string* out, uint32_t number, uint64_t value) {
  WriteVarint(out, uint64_t{number} << 3);
  WriteVarint(out, value);
}

inline void WriteBytes(std::string* out, uint32_t number, std::string_view content) {
  WriteVarint(out, uint64_t{number} << 3 | 2);
  WriteVarint(out, content.size());
  out->append(content);
}

}  // namespace holdfast::protobuf
