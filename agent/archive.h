// Takes the archive that a kubelet made of a container apart into the landing layout: checkpoint/ becomes images/, spec.dump becomes
// config.json, rootfs-diff.tar and dump.log stay as they are, the rest is dropped. The archive's content was written by a container
// runtime from the files of a pod: it is hostile input. Only regular files are taken, under names that are single components, within
// limits on their number and size; nothing outside `dir` is touched and no link is followed.
#pragma once

#include <string>

#include "base/status.h"

namespace holdfast::agent {

struct ArchiveSizes {
  int64_t memory_bytes = 0, files_bytes = 0;  // pages-*.img; the rest
};

struct ArchiveLimits {
  int64_t max_files = 100'000;
  int64_t max_bytes = int64_t{1} << 40;
};

Result<ArchiveSizes> ExtractKubeletArchive(const std::string& tar, const std::string& dir, const ArchiveLimits& limits = {});

}  // namespace holdfast::agent
