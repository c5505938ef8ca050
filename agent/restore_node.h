// holdfast-agent --mode restore-node: after Holdfast was uninstalled from the cluster, one process a node waits until no pod there calls
// its runtime any more, and takes back what the agent's installer had made (installer/installer.h).
#pragma once

#include "agent/agent.h"
#include "agent/layout.h"
#include "agent/node.h"

namespace holdfast::agent {

// Who still needs what was installed, for people; empty: nobody. A checkpoint that was not finished (its journal is on the node) counts: it
// may be all that there is of its pod.
Result<std::string> WhoNeedsTheRuntime(Node& node, const Layout& layout);

// Until `stop`; asks no API server, and needs no rights there. An error only when it cannot begin.
Status RestoreNode(const AgentOptions& options, std::stop_token stop);

}  // namespace holdfast::agent
