// What a bare pod was made of, read off the living one: so that after its sleep it can be made again.
#pragma once

#include "base/json.h"

namespace holdfast::reconcilers::suspendedworkload {

inline constexpr size_t kMaxManifestBytes = 128 << 10;

// A Pod to create, from one that the API server has: without its identity, its node, and whatever Holdfast has added to it.
Json ManifestOf(const Json& pod);
// The same pod, to be created for this SuspendedWorkload, from this Checkpoint; empty: from none.
Json ToMake(Json manifest, const std::string& resumed_by, const std::string& from_checkpoint);

}  // namespace holdfast::reconcilers::suspendedworkload
