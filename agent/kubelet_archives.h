// What the kubelet leaves when its answer to a checkpoint call is lost (it died, we died, the network did): an archive that nobody reads.
#pragma once

#include <cstdint>
#include <string>

#include "agent/journal.h"
#include "agent/layout.h"

namespace holdfast::agent {

// Removes the archives of this entry's containers that were written since it began and that nobody has written to for some seconds. How
// many. `ahead_ms`: of the clock that the entry and `now` are by, over the files'. An archive that a user asked the kubelet for in that
// very time goes too: they cannot be told apart.
Result<int> RemoveKubeletArchives(const Layout& layout, const JournalEntry& entry, int64_t now_unix_ms, int64_t ahead_ms = 0);

}  // namespace holdfast::agent
