// That a pod starts cold, and why, stands in an annotation that is written with the very patch that opens its gate; the events are made
// from it. So a controller that dies between the two loses no event: its successor makes them, under the same names.
#pragma once

#include <optional>
#include <string>

#include "kube/objects.h"
#include "reconcilers/claim/step.h"
#include "reconcilers/context.h"

namespace holdfast::reconcilers::claim {

struct ColdStart {
  WallTime at{};
  std::string why;                                           // for the person who reads the event
  std::string checkpoint;                                    // the one whose state was not used; empty: there was none
  std::string ToAnnotation() const;                          // JSON
  static std::optional<ColdStart> Of(const kube::Pod& pod);  // nothing: the annotation is not there, or nothing that we wrote
};

// The ColdStart events on the pod and on the Checkpoint, as AnnounceOnce sends them.
Status TellColdStart(const Context& context, const ColdStart& cold, const kube::Pod& pod, std::stop_token stop);
// The StateIsOlder events, likewise. What they are made from is the claim.
Status TellOlderState(const Context& context, const OlderState& older, const kube::Pod& pod, std::stop_token stop);

}  // namespace holdfast::reconcilers::claim
