// The subcommands of holdfast-store that work on a volume and end.
#pragma once

#include <string>

#include "storage/volume.h"

namespace holdfast::storage {

// Each prints to stdout and returns the exit status. Those that change anything need the volume for themselves.
int PrintStat(const VolumeOptions& options);               // also while a server runs on it
int PrintFsck(const VolumeOptions& options, bool repair);  // 1 when a checkpoint is hurt; without `repair` also while a server runs
// A Checkpoint object for each checkpoint (of `ns`, where that is not empty), for `kubectl create -f -`; 1 when one cannot be read. Also
// while a server runs.
int PrintCheckpoints(const VolumeOptions& options, const std::string& ns);
// By the server, where one runs on the volume. `name`: an id, or NAMESPACE/NAME. Empty paths: stdout and stdin.
int ExportCheckpoint(const VolumeOptions& options, const std::string& name, const std::string& output);
int ImportCheckpoint(const VolumeOptions& options, const std::string& ns, const std::string& input);
int DeleteOffline(const VolumeOptions& options, const std::string& id);
int CollectOffline(const VolumeOptions& options);
int RewrapOffline(const VolumeOptions& options);
int ShredOffline(const VolumeOptions& options, const std::string& ns, bool force);

}  // namespace holdfast::storage
