// The pods that ran and are gone, for a while. A cache forgets a pod with its end, but the request for its successor may come after that,
// and while the news of its checkpoint, which are in another cache, are still on their way. Thread-safe.
#pragma once

#include <deque>
#include <mutex>
#include <optional>

#include "reconcilers/view.h"

namespace holdfast::controller {

class EndedPods {
 public:
  explicit EndedPods(Clock& clock) : clock_(clock) {}
  // A handler of the informer of pods.
  void Saw(const reconcilers::PodPtr& old, const reconcilers::PodPtr& now);
  // Those of that controller, newest first, each as it was seen last: gone for kFollowsWithin at most, and the last 4096 of all of them.
  std::vector<reconcilers::PodPtr> Of(const std::string& controller_uid) const;
  // When the first pod was seen. What was gone by then nobody here knows of. Nothing: none was seen yet.
  std::optional<WallTime> since() const;

 private:
  struct Ended {
    MonoTime at;
    reconcilers::PodPtr pod;
  };
  Clock& clock_;
  mutable std::mutex mutex_;
  std::optional<WallTime> since_;
  std::deque<Ended> ended_;  // oldest first
};

}  // namespace holdfast::controller
