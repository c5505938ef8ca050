// `holdfast-agent doctor`: what the node's label rests on (installer/examine.h), and the label itself, for a person or a program.
#pragma once

#include <string>

#include "agent/agent.h"
#include "agent/installer/examine.h"

namespace holdfast::agent {

// What the node's object says of it. `node`: as read from the API server, or why it could not be.
runtime::NodeCheck CheckLabel(const Result<Json>& node);

struct Rendering {
  bool json = false;
  bool color = false;  // of the text: failures red, warnings yellow
};
// Both end in a newline. Text from the node's programs comes without control characters.
std::string Render(const std::string& node_name, const NodeReport& report, const Rendering& rendering);

// Looks, writes the report to stdout and returns the exit status: 0 when the node can be used, 1 when not. Changes nothing, and ends within
// 100 s, whatever hangs.
int Doctor(const AgentOptions& options, const Rendering& rendering);

}  // namespace holdfast::agent
