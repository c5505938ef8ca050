// What /metrics shows. Names of the runtime's own are controller-runtime's. Thread-safe.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <string>

#include "kube/admission.h"
#include "kube/controller.h"
#include "reconcilers/view.h"

namespace holdfast::controller {

class Metrics {
 public:
  Metrics();
  // `reconcile`, counted and timed under `controller`.
  kube::Controller::Reconcile Measured(const std::string& controller, kube::Controller::Reconcile reconcile);
  kube::AdmissionServer::Handler Measured(const std::string& webhook, kube::AdmissionServer::Handler handler);
  void SetLeading(bool leading);
  // Prometheus' text format; `checkpoints` as they are now, since counting them on every change would cost more than on every scrape.
  std::string Text(const std::vector<reconcilers::CheckpointPtr>& checkpoints);

 private:
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>& reconciles_;
  prometheus::Family<prometheus::Histogram>& reconcile_seconds_;
  prometheus::Family<prometheus::Counter>& webhooks_;
  prometheus::Family<prometheus::Histogram>& webhook_seconds_;
  prometheus::Family<prometheus::Gauge>& leading_;
  prometheus::Family<prometheus::Gauge>& checkpoints_;
  prometheus::Family<prometheus::Gauge>& stored_;
  prometheus::Family<prometheus::Gauge>& restores_;
};

}  // namespace holdfast::controller
