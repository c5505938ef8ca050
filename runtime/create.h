// `create`: the container starts as it is, or from a checkpoint, or not at all.
#pragma once

#include "runtime/command_line.h"
#include "runtime/node.h"
#include "runtime/runc.h"

namespace holdfast::runtime {

// Returns the exit code, or does not return and becomes runc.
int Create(const Node& node, const Runc& runc, const CommandLine& line);

// True when this runc and this kernel know time namespaces. Asked once for each runc binary, then read from a file.
bool HasTimeNamespaces(const Node& node, const Runc& runc, const std::string& runc_path);

}  // namespace holdfast::runtime
