// What CRIU would give the processes of a checkpoint, compared with what the new container may have: whoever has root on the node that made
// the images can write into them what he likes. Asked before anything is restored. Hostile input.
#pragma once

#include <string>

#include "base/status.h"
#include "runtime/image_files.h"
#include "runtime/image_mounts.h"
#include "runtime/spec.h"

namespace holdfast::runtime {

struct ImageView {  // what was found, for what is asked later
  ImageMounts mounts;
  ImagePaths paths;
};

// Reads the images that say what a restore does, never memory. kFailedPrecondition: they are wider than `spec` (image_names.h,
// image_tasks.h, image_seccomp.h, image_cgroups.h, image_mounts.h, image_files.h, image_made.h), or a task would stand in a namespace of
// the node. kDataLoss: damaged, or of another CRIU. Images without an inventory are left to CRIU, which restores none. `root`: the
// container's root folder.
Status CheckImageRights(const std::string& images, const Spec& spec, const std::string& root = "", ImageView* view = nullptr);

}  // namespace holdfast::runtime
