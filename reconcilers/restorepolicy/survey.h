// Checkpoints, pods, workloads and policies as retention.h wants them. Pure, over what `view` shows.
#pragma once

#include "reconcilers/restorepolicy/retention.h"
#include "reconcilers/view.h"

namespace holdfast::reconcilers::restorepolicy {

// Condition of a Checkpoint: True since it was noticed that its workload does not exist.
inline constexpr char kOrphanedCondition[] = "Orphaned";

// Bytes that the Checkpoints of a namespace may take: its annotation holdfast.dev/quota, else `otherwise`; 0: as many as they like.
// A malformed annotation reads as `otherwise`, and `problem` (may be null) says so.
int64_t QuotaOf(const View& view, const std::string& ns, int64_t otherwise, std::string* problem = nullptr);
// What the Checkpoints of a namespace take, without those that are being deleted.
int64_t StoredIn(const View& view, const std::string& ns);

// excess_bytes is left 0.
Seen Survey(const View& view, const std::set<std::string>& namespaces, int64_t default_quota_bytes, WallTime now);

}  // namespace holdfast::reconcilers::restorepolicy
