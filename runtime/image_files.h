// What the images open, compared with what the new container could open by itself: CRIU opens and makes files as root. Hostile input.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "runtime/image_mounts.h"

namespace holdfast::runtime {

// Paths of the container that a restore goes along.
struct ImagePaths {
  std::vector<std::string> files;  // as the kernel named them: no step of them was a link
  std::vector<std::string> names;  // as a program gave them, of sockets
};

// kFailedPrecondition: a descriptor of a kind that needs a capability which the container does not have (packets, raw sockets, tun, BPF,
// fanotify, marks), a path out of the container or into the parts of /proc that lead out of it, or a file
// that is open for writing on a read-only mount.
Result<ImagePaths> CheckImageFiles(const std::string& images, const Json& spec, const ImageMounts& mounts);

}  // namespace holdfast::runtime
