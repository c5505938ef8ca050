// What is asked of pods in more than one room.
#pragma once

#include <algorithm>

#include "kube/objects.h"

namespace holdfast::api {

// Some of its containers run, and others have never run yet, so that its phase is still Pending: after a restore there may be state in the
// ones, and in the checkpoint of the others.
inline bool RunsInPart(const kube::Pod& pod) {
  const auto& all = pod.container_statuses;
  auto runs = [](const kube::ContainerStatus& c) { return c.running; };
  return pod.phase == "Pending" && std::any_of(all.begin(), all.end(), runs) && !std::all_of(all.begin(), all.end(), runs);
}

}  // namespace holdfast::api
