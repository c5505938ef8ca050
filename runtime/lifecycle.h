// The verbs of a container's life that a checkpoint changes. While an Intent for the container exists, the freezer is ours.
// Each returns the exit code, or does not return and becomes runc.
#pragma once

#include "runtime/command_line.h"
#include "runtime/node.h"
#include "runtime/runc.h"

namespace holdfast::runtime {

int Start(const Node& node, const Runc& runc, const CommandLine& line);
int Delete(const Node& node, const Runc& runc, const CommandLine& line);
int PauseOrResume(const Node& node, const Runc& runc, const CommandLine& line);
int Kill(const Node& node, const Runc& runc, const CommandLine& line);
int Exec(const Node& node, const Runc& runc, const CommandLine& line);
int Checkpoint(const Node& node, const Runc& runc, const CommandLine& line);
// Our own verbs, for the agent.
int Dump(const Node& node, const Runc& runc, const CommandLine& line);
int Thaw(const Node& node, const CommandLine& line);

}  // namespace holdfast::runtime
