// Making a namespace's checkpoints unreadable for ever, also in whatever copy of the volume somebody keeps: its keys go.
#pragma once

#include "storage/volume.h"

namespace holdfast::storage {

struct ShredReport {
  size_t manifests = 0, packs = 0;  // that went with the keys
};
// Needs the volume for itself. kFailedPrecondition while the namespace has checkpoints (or manifests whose namespace cannot be told),
// unless `force`. A copy of the wrapped keys stays as good as the KEK: where the volume has snapshots, the KEK has to go too.
Result<ShredReport> Shred(const VolumeOptions& options, const std::string& ns, bool force);

}  // namespace holdfast::storage
