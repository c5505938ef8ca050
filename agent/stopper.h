// Answers holdfast-runc, which was told to signal a container of ours: is its pod dumped in place of the signal? That is so when the pod is
// being deleted and the controller has made a final Checkpoint of it (reconcilers/stop); the signal is held back until that is known, for
// at most `Options::patience`. Only advice: what decides are the files of both sides (freezer.h, AnySignalled). Thread-safe.
#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "agent/cluster.h"
#include "agent/layout.h"
#include "runtime/protocol.h"

namespace holdfast::agent {

struct StopperOptions {
  bool enabled = false;                            // else every signal is passed on at once
  Duration patience = std::chrono::seconds(3);     // for the controller's word
  Duration dump_begins = std::chrono::seconds(6);  // after that, for the store's session and the intents
  Duration look_every = std::chrono::milliseconds(50);
};

class Stopper {
 public:
  Stopper(StopperOptions options, Layout layout, Cluster& cluster, Clock& clock)
      : options_(options), layout_(std::move(layout)), cluster_(cluster), clock_(clock) {}
  runtime::StopAnswer Answer(const runtime::StopQuestion& question, std::stop_token stop);

 private:
  // Why the signal is passed on, or nothing while it is not known.
  std::optional<std::string> Known(const runtime::StopQuestion& question, bool* asked_for) const;
  bool DumpHas(const runtime::StopQuestion& question) const;

  const StopperOptions options_;
  const Layout layout_;
  Cluster& cluster_;
  Clock& clock_;
};

}  // namespace holdfast::agent
