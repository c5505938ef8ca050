#include "controller/metrics.h"

#include <prometheus/text_serializer.h>

namespace holdfast::controller {

using reconcilers::restorepolicy::Drop;
using reconcilers::restorepolicy::Keep;

namespace {

constexpr char kOtherStore[] = "";  // none of those that are configured: of all such together

prometheus::Family<prometheus::Gauge>& Level(const char* name, const char* help, prometheus::Registry& registry) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

}  // namespace

Metrics::Metrics(std::vector<std::string> stores)
    : stores_(std::move(stores)),
      runtime_(registry_),
      checkpoints_(Level("holdfast_checkpoints", "Checkpoints by phase and trigger.", registry_)),
      stored_(Level("holdfast_checkpoints_stored_bytes", "What Ready checkpoints added to their store.", registry_)),
      store_down_(Level("holdfast_store_down", "1: this store has answered, but not for half a minute.", registry_)),
      restores_(Level("holdfast_checkpoint_restores", "Restores recorded on existing checkpoints, by outcome.", registry_)),
      kept_(Level("holdfast_retention_kept_checkpoints", "Checkpoints that stay, by the reason.", registry_)),
      over_(Level("holdfast_retention_over_bytes", "What protected checkpoints take beyond a limit that retention therefore cannot meet.",
                  registry_)),
      deleted_(prometheus::BuildCounter()
                   .Name("holdfast_retention_deleted_total")
                   .Help("Checkpoints that retention deleted, by the reason.")
                   .Register(registry_)),
      deleted_bytes_(prometheus::BuildCounter()
                         .Name("holdfast_retention_deleted_bytes_total")
                         .Help("What those had added to the store.")
                         .Register(registry_)) {
  // So that what never happened shows 0.
  for (Drop why : reconcilers::restorepolicy::kDrops) {
    deleted_.Add({{"reason", std::string(DropName(why))}});
    deleted_bytes_.Add({{"reason", std::string(DropName(why))}});
  }
}

void Metrics::StoreDown(const std::string& store, bool down) { store_down_.Add({{"store", store}}).Set(down ? 1 : 0); }

void Metrics::Planned(const reconcilers::restorepolicy::Plan& plan) {
  std::map<Keep, int> kept;
  for (const auto& stay : plan.stays) ++kept[stay.keep];
  for (Keep why : reconcilers::restorepolicy::kKeeps) kept_.Add({{"reason", std::string(KeepName(why))}}).Set(kept[why]);
  using Labels = std::map<std::string, std::string>;
  auto labels = [](Drop limit, const std::string& store) {
    Labels made = {{"limit", std::string(DropName(limit))}};
    if (limit == Drop::kVolume) made["store"] = store;
    return made;
  };
  std::map<Labels, double> over = {{labels(Drop::kMaxBytes, ""), 0}, {labels(Drop::kQuota, ""), 0}};
  for (const std::string& store : stores_) over[labels(Drop::kVolume, store)] = 0;
  for (const auto& unmet : plan.unmet) over[labels(unmet.limit, unmet.store)] += static_cast<double>(unmet.bytes);
  for (const auto& [which, bytes] : over) over_.Add(which).Set(bytes);
}

void Metrics::Deleted(Drop why, int64_t bytes) {
  const std::map<std::string, std::string> labels = {{"reason", std::string(DropName(why))}};
  deleted_.Add(labels).Increment();
  deleted_bytes_.Add(labels).Increment(static_cast<double>(bytes));
}

std::string Metrics::Text(const std::vector<reconcilers::CheckpointPtr>& checkpoints) {
  std::map<std::pair<std::string_view, std::string_view>, int> phases;
  std::map<std::string, int> outcomes;
  std::map<std::string, double> stored = {{kOtherStore, 0}};
  for (const std::string& store : stores_) stored[store] = 0;
  for (const auto& c : checkpoints) {
    ++phases[{api::PhaseName(c->status.phase), api::TriggerName(c->spec.trigger)}];
    if (c->status.phase == api::Phase::kReady) {
      const auto store = stored.find(c->store());
      (store == stored.end() ? stored[kOtherStore] : store->second) += static_cast<double>(c->status.stored_bytes);
    }
    for (const api::Restore& restore : c->status.restores) ++outcomes[restore.outcome];
  }
  // Phases that were counted before and are empty now show 0.
  for (auto phase : {api::Phase::kPending, api::Phase::kAssigned, api::Phase::kFreezing, api::Phase::kDumping, api::Phase::kStoring,
                     api::Phase::kReady, api::Phase::kFailed, api::Phase::kDeleting}) {
    for (auto trigger : {api::Trigger::kManual, api::Trigger::kInterval, api::Trigger::kDrain, api::Trigger::kStop, api::Trigger::kSuspend,
                         api::Trigger::kIdle})
      phases.try_emplace({api::PhaseName(phase), api::TriggerName(trigger)}, 0);
  }
  for (const auto& [labels, count] : phases) {
    checkpoints_.Add({{"phase", std::string(labels.first)}, {"trigger", std::string(labels.second)}}).Set(count);
  }
  for (const char* outcome : {"Restored", "ColdStart", "Failed"}) restores_.Add({{"outcome", outcome}}).Set(outcomes[outcome]);
  for (const auto& [store, bytes] : stored) stored_.Add({{"store", store}}).Set(bytes);
  runtime_.Refresh();
  return prometheus::TextSerializer().Serialize(registry_.Collect());
}

}  // namespace holdfast::controller
