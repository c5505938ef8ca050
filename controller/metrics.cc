#include "controller/metrics.h"

#include <prometheus/text_serializer.h>

namespace holdfast::controller {
namespace {

using prometheus::Histogram;

// controller-runtime's.
const Histogram::BucketBoundaries kReconcileBuckets = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
const Histogram::BucketBoundaries kWebhookBuckets = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1};

template <class Builder>
auto& Make(Builder builder, const char* name, const char* help, prometheus::Registry& registry) {
  return builder.Name(name).Help(help).Register(registry);
}

double Since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Metrics::Metrics()
    : reconciles_(
          Make(prometheus::BuildCounter(), "controller_runtime_reconcile_total", "Reconciliations by controller and result.", registry_)),
      reconcile_seconds_(
          Make(prometheus::BuildHistogram(), "controller_runtime_reconcile_time_seconds", "Time of a reconciliation.", registry_)),
      webhooks_(Make(prometheus::BuildCounter(), "controller_runtime_webhook_requests_total", "Admission requests by webhook and code.",
                     registry_)),
      webhook_seconds_(
          Make(prometheus::BuildHistogram(), "controller_runtime_webhook_latency_seconds", "Time of an admission request.", registry_)),
      leading_(Make(prometheus::BuildGauge(), "leader_election_master_status", "1 on the replica that leads.", registry_)),
      checkpoints_(Make(prometheus::BuildGauge(), "holdfast_checkpoints", "Checkpoints by phase and trigger.", registry_)),
      stored_(Make(prometheus::BuildGauge(), "holdfast_checkpoints_stored_bytes", "What Ready checkpoints added to the store.", registry_)),
      restores_(Make(prometheus::BuildGauge(), "holdfast_checkpoint_restores", "Restores recorded on existing checkpoints, by outcome.",
                     registry_)) {
  leading_.Add({{"name", "holdfast-controller"}});
}

kube::Controller::Reconcile Metrics::Measured(const std::string& controller, kube::Controller::Reconcile reconcile) {
  auto& success = reconciles_.Add({{"controller", controller}, {"result", "success"}});
  auto& again = reconciles_.Add({{"controller", controller}, {"result", "requeue_after"}});
  auto& error = reconciles_.Add({{"controller", controller}, {"result", "error"}});
  auto& seconds = reconcile_seconds_.Add({{"controller", controller}}, kReconcileBuckets);
  return [&success, &again, &error, &seconds, reconcile = std::move(reconcile)](const std::string& key, std::stop_token stop) {
    const auto start = std::chrono::steady_clock::now();
    Result<kube::ReconcileResult> result = reconcile(key, stop);
    seconds.Observe(Since(start));
    (!result.ok() ? error : result->requeue_after ? again : success).Increment();
    return result;
  };
}

kube::AdmissionServer::Handler Metrics::Measured(const std::string& webhook, kube::AdmissionServer::Handler handler) {
  auto& allowed = webhooks_.Add({{"webhook", webhook}, {"code", "200"}});
  auto& refused = webhooks_.Add({{"webhook", webhook}, {"code", "429"}});
  auto& seconds = webhook_seconds_.Add({{"webhook", webhook}}, kWebhookBuckets);
  return [&allowed, &refused, &seconds, handler = std::move(handler)](const kube::AdmissionRequest& request) {
    const auto start = std::chrono::steady_clock::now();
    kube::AdmissionResponse response = handler(request);
    seconds.Observe(Since(start));
    (response.allowed ? allowed : refused).Increment();
    return response;
  };
}

void Metrics::SetLeading(bool leading) { leading_.Add({{"name", "holdfast-controller"}}).Set(leading ? 1 : 0); }

std::string Metrics::Text(const std::vector<reconcilers::CheckpointPtr>& checkpoints) {
  std::map<std::pair<std::string_view, std::string_view>, int> phases;
  std::map<std::string, int> outcomes;
  double stored = 0;
  for (const auto& c : checkpoints) {
    ++phases[{api::PhaseName(c->status.phase), api::TriggerName(c->spec.trigger)}];
    if (c->status.phase == api::Phase::kReady) stored += static_cast<double>(c->status.stored_bytes);
    for (const api::Restore& restore : c->status.restores) ++outcomes[restore.outcome];
  }
  // Phases that were counted before and are empty now show 0.
  for (auto phase : {api::Phase::kPending, api::Phase::kAssigned, api::Phase::kFreezing, api::Phase::kDumping, api::Phase::kStoring,
                     api::Phase::kReady, api::Phase::kFailed, api::Phase::kDeleting}) {
    for (auto trigger : {api::Trigger::kManual, api::Trigger::kDrain})
      phases.try_emplace({api::PhaseName(phase), api::TriggerName(trigger)}, 0);
  }
  for (const auto& [labels, count] : phases) {
    checkpoints_.Add({{"phase", std::string(labels.first)}, {"trigger", std::string(labels.second)}}).Set(count);
  }
  for (const char* outcome : {"Restored", "ColdStart", "Failed"}) restores_.Add({{"outcome", outcome}}).Set(outcomes[outcome]);
  stored_.Add({}).Set(stored);
  return prometheus::TextSerializer().Serialize(registry_.Collect());
}

}  // namespace holdfast::controller
