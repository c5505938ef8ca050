// What a container's spec mounts, and where runc puts it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/json.h"

namespace holdfast::runtime {

struct SpecMount {
  std::string type, source;  // type "bind" for every kind of bind
  uint32_t flags = 0;        // of MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC
};

// By destination, as the spec names it and as it is reached through the links of the container's root folder, `root`.
std::map<std::string, SpecMount> SpecMounts(const Json& spec, const std::string& root);

// Absolute, without "." and empty steps; ".." stays.
std::string PlainPath(const std::string& path);

}  // namespace holdfast::runtime
