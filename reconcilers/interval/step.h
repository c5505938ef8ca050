// When a running pod is checkpointed next because its RestorePolicy says triggers.interval. Pure: the same world at the same time gives the
// same checkpoint, under the same name.
#pragma once

#include <optional>

#include "reconcilers/claims.h"
#include "reconcilers/lineage.h"

namespace holdfast::reconcilers::interval {

struct World {
  PodPtr pod;
  Protection protection;
  NodePtr node;                    // of the pod
  std::vector<CheckpointPtr> own;  // all of this pod's uid
  std::string opener;              // of its group, the member whose interval the cuts follow; empty: it is in none
  int64_t busy = 0;                // checkpoints of other pods that are under way on the node
  int64_t max_per_node = 1;
};

struct Step {
  bool create = false;
  int ordinal = 0;  // of the checkpoint: seconds from the pod's creation to when it was due, so a later one's is greater
  std::string why;
  std::optional<Duration> again;
};

Step Next(const World& seen, WallTime now);

// interval: auto. Young's interval sqrt(2·C·M), between kShortest and kLongest: what a checkpoint costs (C: the time that the pod is frozen
// for) against what its node's end costs (M: how long such a node lives on average).
Duration YoungInterval(Duration cost, Duration node_lives);
inline constexpr Duration kShortest = std::chrono::minutes(1), kLongest = std::chrono::hours(6);

// M. Spot nodes: 24 h, the most that Google gives a preemptible VM; others mostly live longer, which makes the interval only shorter than
// it had to be. Others: 30 days. Hardware alone lasts longer (Llama 3.1's training: 419 unplanned interruptions in 54 days of 2048
// servers, so 264 days a server), but kernels, kubelets and people end nodes too.
inline constexpr Duration kSpotLives = std::chrono::hours(24), kNodeLives = std::chrono::hours(24 * 30);
// By the labels and taints that clouds, Karpenter and kOps put on nodes which can be reclaimed.
bool IsSpot(const kube::Node& node);

}  // namespace holdfast::reconcilers::interval
