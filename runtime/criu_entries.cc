#include "runtime/criu_entries.h"

#include <cstring>

namespace holdfast::runtime {
namespace {

uint32_t TakeWord(std::string_view* in) {
  uint32_t word = 0;
  memcpy(&word, in->data(), sizeof word);
  in->remove_prefix(sizeof word);
  return word;
}

}  // namespace

bool ForEachEntry(std::string_view image, uint32_t magic, const std::function<bool(std::string_view entry)>& each) {
  const bool common = magic != kInventoryMagic;
  if (image.size() < (common ? 8 : 4) || (common && TakeWord(&image) != kCommonMagic) || TakeWord(&image) != magic) return false;
  while (!image.empty()) {
    if (image.size() < 4) return false;
    const uint32_t size = TakeWord(&image);
    if (size > image.size() || !each(image.substr(0, size))) return false;
    image.remove_prefix(size);
  }
  return true;
}

bool ForEachField(std::string_view message, const std::function<bool(const protobuf::Field& field)>& each) {
  for (protobuf::Field field; !message.empty();) {
    if (!protobuf::ReadField(&message, &field) || !each(field)) return false;
    field = {};
  }
  return true;
}

std::optional<std::string> RewriteEntries(std::string_view image, uint32_t magic,
                                          const std::function<bool(std::string_view entry, std::string* out)>& rewrite) {
  std::string out(image.substr(0, 8));
  const bool whole = ForEachEntry(image, magic, [&](std::string_view entry) {
    const size_t at = out.size();
    out.append(sizeof(uint32_t), '\0');
    if (!rewrite(entry, &out)) return false;
    const auto size = static_cast<uint32_t>(out.size() - at - sizeof(uint32_t));
    memcpy(out.data() + at, &size, sizeof size);
    return true;
  });
  return whole ? std::optional(std::move(out)) : std::nullopt;
}

}  // namespace holdfast::runtime
