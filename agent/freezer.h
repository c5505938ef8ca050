// The files through which holdfast-runc knows that containers belong to a checkpoint, and the way back: thawing.
#pragma once

#include <map>

#include "agent/journal.h"
#include "agent/layout.h"
#include "agent/node.h"

namespace holdfast::agent {

// So long a frozen pod waits for the rest of its group; then holdfast-runc thaws it, whoever else may be alive.
inline constexpr std::chrono::seconds kBarrierLimit{30};
// And so long, once it is dumped, until the rest of its group is.
inline constexpr std::chrono::seconds kHoldLimit{60};

// pods/<uid>.json for final ones, request.json, then an Intent for each container. For the dump of holdfast-runc.
Status WriteIntents(const Layout& layout, const JournalEntry& entry);

// One of them.
Status WriteIntent(const Layout& layout, const JournalEntry& entry, const JournalContainer& container);

// Whether a file of Layout::Containers() is an Intent, also of a container that is being thawed; and what it says.
bool IsIntent(const std::string& file);
Result<runtime::Intent> ReadIntent(const Layout& layout, const std::string& file);

// No container is created in the pod of `entry` any more. WriteIntents does it first.
Status HoldPod(const Layout& layout, const JournalEntry& entry);

// Whether one of its containers was told to quit. Asked after WriteIntents: of two that look at the same time, holdfast-runc with a signal
// and the agent with a dump, at least one sees the other, so a process that was told to quit is never dumped (runtime/protocol.h).
bool AnySignalled(const Layout& layout, const JournalEntry& entry);

// Thaws every container of `entry` and removes their intents and the pod's file. Idempotent; a failure says which container stays frozen.
Status Thaw(const Layout& layout, Node& node, const JournalEntry& entry);

// The same, and its pod stays held.
Status ThawContainers(const Layout& layout, Node& node, const JournalEntry& entry);

// Removes intents and the pod's file, touching no container: they are gone, or were thawed by holdfast-runc itself.
Status RemoveIntents(const Layout& layout, const JournalEntry& entry);

// The intents of a checkpoint, by container id; without those that cannot be read.
std::map<std::string, runtime::Intent> IntentsOf(const Layout& layout, const std::string& checkpoint_uid);

// Thaws each container whose intent belongs to none of `live` checkpoint uids, or whose thaw was interrupted; removes pods' files likewise.
// Returns the ids of what was thawed. Files that cannot be read are left alone: damaged_files.h finds out what they meant.
std::vector<std::string> ThawOrphans(const Layout& layout, Node& node, const std::vector<std::string>& live);

// True when an intent, a kept-frozen container or a restore exists on this node, so containerd must not be restarted. A pod that may only
// not start anew (layout.Pods) has nothing that a restart could hurt.
bool NodeIsBusy(const Layout& layout, std::string* why);

}  // namespace holdfast::agent
