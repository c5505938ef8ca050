#include "controller/metrics.h"

#include <prometheus/text_serializer.h>

namespace holdfast::controller {
namespace {

prometheus::Family<prometheus::Gauge>& Level(const char* name, const char* help, prometheus::Registry& registry) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

}  // namespace

Metrics::Metrics()
    : runtime_(registry_),
      checkpoints_(Level("holdfast_checkpoints", "Checkpoints by phase and trigger.", registry_)),
      stored_(Level("holdfast_checkpoints_stored_bytes", "What Ready checkpoints added to the store.", registry_)),
      restores_(Level("holdfast_checkpoint_restores", "Restores recorded on existing checkpoints, by outcome.", registry_)) {}

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
  runtime_.Refresh();
  return prometheus::TextSerializer().Serialize(registry_.Collect());
}

}  // namespace holdfast::controller
