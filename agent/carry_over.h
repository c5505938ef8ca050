// What a pod was to go on from, and has not yet, because some of its containers have never run: when the pod is checkpointed as it is, that
// goes on with it.
#pragma once

#include "agent/journal.h"
#include "agent/layout.h"

namespace holdfast::agent {

// Copies what was fetched for those of `entry.waiting` that were not restored into its landing folder, and names them in `entry.carried`.
// They are forgotten when nothing was fetched for them: they start anew. The dump must be complete. kFailedPrecondition: one of them was
// restored while the others were dumped, so it is missing there.
Status CarryOver(const Layout& layout, JournalEntry& entry);

}  // namespace holdfast::agent
