// Text that has to fit a limit of the API.
#pragma once

#include <string>
#include <string_view>

namespace holdfast::kube {

// `text`, cut to at most `max_bytes` (at least 3) with "..." at the end where it is longer; never within a UTF-8 character.
inline std::string Clip(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  size_t end = max_bytes - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

}  // namespace holdfast::kube
