// The subcommands of holdfast-store that work on a volume and end.
#pragma once

#include <string>

#include "base/status.h"

namespace holdfast::storage {

// Each prints to stdout and returns the exit status.
int PrintStat(const std::string& dir);                             // also while a server runs on it
int PrintFsck(const std::string& dir);                             // 1 when a checkpoint is hurt; also while a server runs
int DeleteOffline(const std::string& dir, const std::string& id);  // needs the volume for itself

}  // namespace holdfast::storage
