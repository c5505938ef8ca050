// Lets drains begin: reconcilers/drain/admission.h, then a dry run of the eviction itself. What was granted a moment ago counts even before
// the cache shows it. Thread-safe.
#pragma once

#include <mutex>

#include "reconcilers/context.h"
#include "reconcilers/drain/admission.h"

namespace holdfast::reconcilers::drain {

class Gate {
 public:
  // `longest`: that one is under way, whoever asked for it.
  Gate(Context context, int max_per_node, Duration longest)
      : context_(std::move(context)), max_per_node_(max_per_node), longest_(longest) {}
  checkpoint::Admission Ask(const CheckpointPtr& checkpoint, const PodPtr& pod, std::stop_token stop);
  // The grant was not used: the status could not be written.
  void GiveBack(const api::Checkpoint& checkpoint);

 private:
  Traffic Look(const Seat& me);
  Context context_;
  const int max_per_node_;
  const Duration longest_;
  std::mutex mutex_;
  std::map<std::string, MonoTime> grants_;  // by uid of the Checkpoint: until when they count unseen
};

}  // namespace holdfast::reconcilers::drain
