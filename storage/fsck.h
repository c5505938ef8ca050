// Looks at every byte of a store's volume without changing any. May run beside the process that writes it: what is deleted meanwhile is
// left out.
#pragma once

#include <string>
#include <vector>

#include "storage/volume.h"

namespace holdfast::storage {

struct HurtCheckpoint {
  std::string id, ns, name;  // name is empty when the manifest itself cannot be read
  std::string why;           // the first damage found
  size_t lost_segments = 0;
};

struct FsckReport {
  size_t manifests = 0, packs = 0, objects = 0, damaged_objects = 0, unreferenced_objects = 0;
  size_t damaged_indexes = 0;  // index files or footers: what they say is known from the other, and a start makes them anew
  uint64_t bytes = 0;
  std::vector<HurtCheckpoint> hurt;
};

Result<FsckReport> Fsck(const VolumeOptions& options, int threads = 2);

}  // namespace holdfast::storage
