#include "agent/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "kube/metrics.h"

namespace holdfast::agent {
namespace {

const prometheus::Histogram::BucketBoundaries kSeconds = {0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200};

prometheus::Histogram& Seconds(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, kSeconds);
}

prometheus::Counter& Count(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
}

}  // namespace

struct Metrics::Impl {
  prometheus::Registry registry;
  kube::RuntimeMetrics runtime{registry};
  prometheus::Family<prometheus::Counter>& checkpoints = prometheus::BuildCounter()
                                                             .Name("holdfast_checkpoints_total")
                                                             .Help("Checkpoints that ended on this node, by reason")
                                                             .Register(registry);
  prometheus::Family<prometheus::Counter>& restores = prometheus::BuildCounter()
                                                          .Name("holdfast_restores_total")
                                                          .Help("Containers that should be restored on this node, by outcome")
                                                          .Register(registry);
  prometheus::Family<prometheus::Counter>& dumps =
      prometheus::BuildCounter().Name("holdfast_dumps_total").Help("Dumps by where they landed: memory or disk").Register(registry);
  prometheus::Histogram& frozen = Seconds(registry, "holdfast_frozen_seconds", "How long containers stood still for a dump");
  prometheus::Histogram& dump = Seconds(registry, "holdfast_dump_seconds", "CRIU's own time for a dump");
  prometheus::Counter& dump_bytes = Count(registry, "holdfast_dump_bytes_total", "Bytes written by dumps");
  prometheus::Histogram& store = Seconds(registry, "holdfast_store_seconds", "From the first segment to the commit");
  prometheus::Counter& store_bytes = Count(registry, "holdfast_store_bytes_total", "Bytes of checkpoints given to the store");
  prometheus::Counter& store_new_bytes = Count(registry, "holdfast_store_new_bytes_total", "Bytes that the store lacked");
  prometheus::Histogram& restore = Seconds(registry, "holdfast_restore_seconds", "From create to a restored container");
  prometheus::Histogram& fetch = Seconds(registry, "holdfast_fetch_seconds", "Reading a checkpoint from the store for a restore");
  prometheus::Counter& fetch_bytes = Count(registry, "holdfast_fetch_bytes_total", "Bytes read from the store for restores");
  prometheus::Counter& journal_damaged =
      Count(registry, "holdfast_journal_damaged_total", "Entries of the agent's journal that could not be read and were written anew");
  prometheus::Gauge& kept_frozen =
      prometheus::BuildGauge().Name("holdfast_kept_frozen_pods").Help("Pods in a final checkpoint now").Register(registry).Add({});
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

void Metrics::Checkpointed(const std::string& outcome_reason) { impl_->checkpoints.Add({{"reason", outcome_reason}}).Increment(); }

void Metrics::Landed(Place place) { impl_->dumps.Add({{"landing", PlaceName(place)}}).Increment(); }

void Metrics::Dumped(double frozen_seconds, double dump_seconds, double bytes) {
  impl_->frozen.Observe(frozen_seconds);
  impl_->dump.Observe(dump_seconds);
  impl_->dump_bytes.Increment(bytes);
}

void Metrics::Stored(double seconds, double bytes, double new_bytes) {
  impl_->store.Observe(seconds);
  impl_->store_bytes.Increment(bytes);
  impl_->store_new_bytes.Increment(new_bytes);
}

void Metrics::Restored(const std::string& outcome, double seconds) {
  impl_->restores.Add({{"outcome", outcome}}).Increment();
  if (outcome == "Restored") impl_->restore.Observe(seconds);
}

void Metrics::Fetched(double seconds, double bytes) {
  impl_->fetch.Observe(seconds);
  impl_->fetch_bytes.Increment(bytes);
}

void Metrics::JournalDamaged() { impl_->journal_damaged.Increment(); }
void Metrics::KeptFrozen(int pods) { impl_->kept_frozen.Set(pods); }

kube::RuntimeMetrics& Metrics::runtime() { return impl_->runtime; }

std::string Metrics::Render() const {
  impl_->runtime.Refresh();
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace holdfast::agent
