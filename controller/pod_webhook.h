// /mutate-pods: what is changed in a pod before it exists. Reads caches only, but for the owner of a pod that is not in them
// yet (at most a second). No side effects; whatever it does not understand, it leaves alone.
#pragma once

#include "controller/ended_pods.h"
#include "kube/admission.h"
#include "reconcilers/lineage.h"

namespace holdfast::controller {

struct PodWebhookOptions {
  std::string wait_image;
  std::string wait_command = "holdfast-wait";
  Duration live_read = std::chrono::seconds(1);
};

class PodWebhook {
 public:
  // `ended` hears what `view` hears of pods.
  PodWebhook(const reconcilers::View& view, const EndedPods& ended, PodWebhookOptions options, Clock& clock = Clock::Real())
      : view_(view), ended_(ended), options_(std::move(options)), clock_(clock) {}
  kube::AdmissionResponse Handle(const kube::AdmissionRequest& request) const;

 private:
  bool MayFollowAnEndedOne(const kube::Pod& pod, const std::string& ns, const reconcilers::Lineage& lineage) const;

  const reconcilers::View& view_;
  const EndedPods& ended_;
  const PodWebhookOptions options_;
  Clock& clock_;
};

}  // namespace holdfast::controller
