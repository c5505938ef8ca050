// Where the paths of a checkpoint's images lead in the new container, once its files and volumes are put back: a link that a node has put
// into these could lead CRIU, which goes along them as root, by a descriptor of its own to the node's files. Hostile input.
#pragma once

#include <string>

#include "base/status.h"
#include "runtime/image_files.h"
#include "runtime/image_mounts.h"

namespace holdfast::runtime {

// `root`: the new container's root folder. kFailedPrecondition: a step of a file's path is a link; or a name leads, by links or without,
// through a process of /proc. What runs in the pod meanwhile may still put a link there; see SECURITY.md.
Status CheckImagePaths(const std::string& images, const ImageMounts& mounts, const ImagePaths& paths, const std::string& root);

}  // namespace holdfast::runtime
