// What a node must have to restore a checkpoint: Checkpoint.status.platform, and a part of its manifest.
#pragma once

#include "agent/journal.h"
#include "agent/layout.h"
#include "agent/node.h"
#include "api/checkpoint.h"

namespace holdfast::agent {

// The node's own, and the GPUs that the dumped containers held: gpu{product, count, driver}. The landing folder must still be there.
Json PlatformOf(Node& node, const Layout& layout, const JournalEntry& entry);

// Why a node of platform `here` (Node::Platform) cannot restore it: architecture, features of the processor, an older kernel or CRIU.
// Empty: it can, as far as both are known.
std::string Unfit(const api::Checkpoint& checkpoint, const Json& here);

}  // namespace holdfast::agent
