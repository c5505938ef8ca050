// The subcommands of holdfast-store that work on a volume and end.
#pragma once

#include <string>

#include "storage/volume.h"

namespace holdfast::storage {

// Each prints to stdout and returns the exit status. Those that change anything need the volume for themselves.
int PrintStat(const VolumeOptions& options);               // also while a server runs on it
int PrintFsck(const VolumeOptions& options, bool repair);  // 1 when a checkpoint is hurt; without `repair` also while a server runs
int DeleteOffline(const VolumeOptions& options, const std::string& id);
int CollectOffline(const VolumeOptions& options);
int RewrapOffline(const VolumeOptions& options);
int ShredOffline(const VolumeOptions& options, const std::string& ns, bool force);

}  // namespace holdfast::storage
