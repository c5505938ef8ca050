// What the agent counts, and the runtime under it (kube/metrics.h). Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "agent/layout.h"

namespace holdfast::kube {
class RuntimeMetrics;
}

namespace holdfast::agent {

class Metrics {
 public:
  Metrics();
  ~Metrics();
  void Checkpointed(const std::string& outcome_reason);  // Completed, or the reason of a failure
  void Landed(Place place);                              // a dump that is whole
  void Dumped(double frozen_seconds, double dump_seconds, double bytes);
  void Stored(double seconds, double bytes, double new_bytes);
  void Restored(const std::string& outcome, double seconds);  // Restored | ColdStart | Failed
  void Fetched(double seconds, double bytes);
  void KeptFrozen(int pods);
  void JournalDamaged();  // an entry could not be read
  kube::RuntimeMetrics& runtime();
  std::string Render() const;  // Prometheus text format

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast::agent
