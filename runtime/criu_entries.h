// A CRIU image file: two magic words, then entries, each with its size before it (images/… of CRIU; criu/protobuf.c). Hostile input.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace holdfast::runtime {

// criu/include/magic.h
constexpr uint32_t kCommonMagic = 0x54564319, kFilesMagic = 0x56303138, kRemapMagic = 0x59133954, kCoreMagic = 0x55053847;

// Calls `each` with every entry, until it returns false. False: damaged, of another kind, or `each` said so.
bool ForEachEntry(std::string_view image, uint32_t magic, const std::function<bool(std::string_view entry)>& each);

// The image with every entry replaced by what `rewrite` appends to `out`. Nothing: damaged, of another kind, or `rewrite` returned false.
std::optional<std::string> RewriteEntries(std::string_view image, uint32_t magic,
                                          const std::function<bool(std::string_view entry, std::string* out)>& rewrite);

}  // namespace holdfast::runtime
