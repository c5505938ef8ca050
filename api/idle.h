// How idle workloads are found: what the controller asks of a node's agent about a pod (an annotation of the pod), and what that agent
// answers (a condition of the pod). Reading never throws: what is malformed reads as missing.
#pragma once

#include <optional>

#include "base/time_format.h"
#include "kube/conditions.h"
#include "kube/resource.h"

namespace holdfast::api {

// Annotation of a pod, written by the controller: an IdleWatch. Its agent measures no others.
inline constexpr char kIdleWatch[] = "holdfast.dev/idle-watch";
// Condition of a pod, written by the agent of its node when its judgement changes. True: idle, and lastTransitionTime says since when.
// False: it is active, or not known for long enough to be anything else. Unknown: it cannot be measured, and the message says why.
inline constexpr char kIdle[] = "holdfast.dev/Idle";
// Annotation of a Deployment or StatefulSet, written by a user: "30m". It stands for a SuspendedWorkload with that spec.idle.after.
inline constexpr char kSuspendWhenIdle[] = "holdfast.dev/suspend-when-idle";

inline constexpr Duration kLeastIdle = std::chrono::seconds(10), kMostIdle = std::chrono::hours(24 * 30);  // of after, as in the CRD
inline constexpr int64_t kDefaultCpuBelow = 20;                                                            // millicores
inline constexpr int kDefaultGpuBelow = 2;                                                                 // percent

struct IdleWatch {
  Duration after{};  // kLeastIdle to kMostIdle
  int64_t cpu_below_millis = kDefaultCpuBelow;
  bool jupyter = false;
  int gpu_below_percent = kDefaultGpuBelow;  // 1 to 100; of pods that have GPUs
  bool operator==(const IdleWatch&) const = default;
  std::string ToAnnotation() const;  // JSON
  // How long it is idle before the agent says so: the condition changes at most so often.
  Duration settle() const { return after / 4; }
};
std::optional<IdleWatch> IdleWatchOf(const kube::ObjectMeta& pod);

// A duration as `after` may have it.
std::optional<Duration> ParseIdleAfter(std::string_view text);

namespace reason {
inline constexpr char kNotIdle[] = "NotIdle";  // of a Checkpoint with trigger Idle: its pod is used again
}

}  // namespace holdfast::api
