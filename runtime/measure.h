// How much a dump would write, estimated while the containers run: the agent chooses by it where the dump lands.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/command_line.h"
#include "runtime/node.h"

namespace holdfast::runtime {

// Memory of the processes that CRIU writes: anonymous, shared and swapped out. What forked processes share counts for each, as in a dump.
uint64_t MemoryOf(const std::vector<int>& pids, const std::string& proc = "/proc");
// Bytes that the files below `folder` take on its own file system. kResourceExhausted: they are more than can be looked at until `until`.
Result<uint64_t> FilesOf(const std::string& folder, MonoTime until);

// `holdfast-runc measure [--root RUNC_ROOT] [--tasks DIR] CONTAINER… [/FOLDER…]`: bytes of the containers' memory, upper directories and
// /dev/shm, and of the folders, as {"bytes"} on stdout. Exit status 1, and why: not known, as with a GPU, whose memory comes on top.
int Measure(const Node& node, const CommandLine& line);

}  // namespace holdfast::runtime
