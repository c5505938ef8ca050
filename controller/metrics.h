// What /metrics shows: the runtime's own (kube/metrics.h) and what Checkpoints there are. Thread-safe.
#pragma once

#include <string>

#include "kube/metrics.h"
#include "reconcilers/view.h"

namespace holdfast::controller {

class Metrics {
 public:
  Metrics();
  kube::RuntimeMetrics& runtime() { return runtime_; }
  // Prometheus' text format; `checkpoints` as they are now, since counting them on every change would cost more than on every scrape.
  std::string Text(const std::vector<reconcilers::CheckpointPtr>& checkpoints);

 private:
  prometheus::Registry registry_;
  kube::RuntimeMetrics runtime_;
  prometheus::Family<prometheus::Gauge>& checkpoints_;
  prometheus::Family<prometheus::Gauge>& stored_;
  prometheus::Family<prometheus::Gauge>& restores_;
};

}  // namespace holdfast::controller
