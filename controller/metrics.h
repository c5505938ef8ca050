// What /metrics shows: the runtime's own (kube/metrics.h) and what Checkpoints there are. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "kube/metrics.h"
#include "reconcilers/restorepolicy/retainer.h"

namespace holdfast::controller {

class Metrics final : public reconcilers::restorepolicy::RetentionObserver {
 public:
  explicit Metrics(std::vector<std::string> stores);  // the names of those that are configured
  kube::RuntimeMetrics& runtime() { return runtime_; }
  // Prometheus' text format; `checkpoints` as they are now, since counting them on every change would cost more than on every scrape.
  std::string Text(const std::vector<reconcilers::CheckpointPtr>& checkpoints);
  void StoreDown(const std::string& store, bool down);
  void Planned(const reconcilers::restorepolicy::Plan& plan) override;
  void Deleted(reconcilers::restorepolicy::Drop why, int64_t bytes) override;

 private:
  const std::vector<std::string> stores_;
  prometheus::Registry registry_;
  kube::RuntimeMetrics runtime_;
  prometheus::Family<prometheus::Gauge>& checkpoints_;
  prometheus::Family<prometheus::Gauge>& stored_;
  prometheus::Family<prometheus::Gauge>& store_down_;
  prometheus::Family<prometheus::Gauge>& restores_;
  prometheus::Family<prometheus::Gauge>& kept_;
  prometheus::Family<prometheus::Gauge>& over_;
  prometheus::Family<prometheus::Counter>& deleted_;
  prometheus::Family<prometheus::Counter>& deleted_bytes_;
};

}  // namespace holdfast::controller
