// What dumps and restores need of this node, tried out rather than read from a version: the agent's label and `holdfast-agent doctor` rest
// on it. It tries in a network namespace of its own, and changes nothing on the node.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/command_line.h"
#include "runtime/node.h"
#include "runtime/protocol.h"
#include "runtime/runc.h"

namespace holdfast::runtime {

// Can connections be reset, and packets held back? Moves the calling thread into a new network namespace; needs root.
std::vector<NodeCheck> CheckNetwork();
// Clocks that go on where they stopped: a kernel and a runc with time namespaces.
NodeCheck CheckClocks(const Node& node, const Runc& runc, const std::string& runc_path);
NodeCheck CheckFreezer(const std::string& cgroups = "/sys/fs/cgroup");
// Room for dumps in `folder` (or where it will be), beside the node's memory.
NodeCheck CheckSpace(const std::string& folder, const std::string& meminfo = "/proc/meminfo");
// What restored programs may have compiled themselves for.
NodeCheck CheckProcessor(const std::string& cpuinfo = "/proc/cpuinfo");

// `holdfast-runc check [--state DIR]`: all of them as one JSON array on stdout. Exit status 0 whatever they say.
int Check(const Node& node, const Runc& runc, const std::string& runc_path, const CommandLine& line);

}  // namespace holdfast::runtime
