// A CRIU image file: two magic words, then entries, each with its size before it (images/… of CRIU; criu/protobuf.c). Hostile input.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/protobuf.h"

namespace holdfast::runtime {

// criu/include/magic.h
constexpr uint32_t kCommonMagic = 0x54564319, kFilesMagic = 0x56303138, kRemapMagic = 0x59133954, kCoreMagic = 0x55053847,
                   kInventoryMagic = 0x58313116, kPstreeMagic = 0x50273030, kIdsMagic = 0x54432030, kMountsMagic = 0x55563928,
                   kCgroupMagic = 0x59383330, kGhostMagic = 0x52583605, kSeccompMagic = 0x64413049, kNetnsMagic = 0x55933752;

// Calls `each` with every entry, until it returns false. False: damaged, of another kind, or `each` said so. An inventory has no common
// magic.
bool ForEachEntry(std::string_view image, uint32_t magic, const std::function<bool(std::string_view entry)>& each);

// Calls `each` with every field of a message, until it returns false. False: damaged, or `each` said so.
bool ForEachField(std::string_view message, const std::function<bool(const protobuf::Field& field)>& each);

// The image with every entry replaced by what `rewrite` appends to `out`. Nothing: damaged, of another kind, or `rewrite` returned false.
std::optional<std::string> RewriteEntries(std::string_view image, uint32_t magic,
                                          const std::function<bool(std::string_view entry, std::string* out)>& rewrite);

}  // namespace holdfast::runtime
