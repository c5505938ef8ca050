// What the owner of a pod should know of its checkpoints, though they are made all the same: decided from the pod's spec, before anything
// is frozen, and once more when it is known how long it took. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/journal.h"
#include "api/checkpoint.h"
#include "kube/objects.h"

namespace holdfast::agent {

struct Caveat {
  std::string reason;   // of the event: PostStartHook | LivenessProbe
  std::string message;  // names the container, and what to do
};

// How long a dump of so many bytes will hold its pod still: as fast as `last`, the newest one of the same workload (null: there is none)
// was made, else as memory, or a plain disk, commonly is. Nothing: how much it is, is not known.
std::optional<Duration> EstimateFreeze(uint64_t bytes, Place place, const api::Checkpoint* last);

// Of these containers of the pod: a postStart hook, which the kubelet runs again in a restored container; a livenessProbe whose budget is
// shorter than `frozen`, so that the kubelet may restart the container for the dump. Nothing in `frozen`: not known.
std::vector<Caveat> CaveatsOf(const kube::Pod& pod, const std::vector<JournalContainer>& containers, std::optional<Duration> frozen);

// The condition api::kCaveats for status.conditions of `checkpoint`, beside what is there; without any it is taken away.
std::vector<api::Condition> WithCaveats(const api::Checkpoint& checkpoint, const std::vector<Caveat>& caveats, WallTime now);

// Whether `last` (null: there is none) has said so already.
bool ToldBefore(const api::Checkpoint* last, const Caveat& caveat);

}  // namespace holdfast::agent
