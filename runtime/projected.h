// Files of configMap, secret, token and downward volumes that a process holds open. Their paths name the old `..YYYY_…` folder, which
// the new pod's volume lacks: what is open is kept with the checkpoint, and put beside the new content before the restore. The kubelet's
// next update of the volume takes it away again.
#pragma once

#include <string>
#include <vector>

#include "runtime/spec.h"

namespace holdfast::runtime {

// Copies into `folder` what the processes hold open, under the index of the mount's destination. Only what is open: these are secrets.
// Nothing open: no folder. The folder is 0700, as the whole landing is.
Status KeepOpenProjectedFiles(const std::vector<int>& pids, const Spec& spec, const std::string& folder);
// Puts the files of such a folder into the volumes that `spec` mounts at the same destinations. No folder: nothing to do.
Status PutBackProjectedFiles(const std::string& folder, const Spec& spec);

}  // namespace holdfast::runtime
