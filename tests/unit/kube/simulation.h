// Virtual time that runs from one deadline to the next, and a look into a metrics registry.
#pragma once

#include <prometheus/registry.h>

#include "tests/unit/kube/fake_transport.h"

namespace holdfast::kube {

// Moves `clock` until `ready`, through at most `limit` of virtual time. Time stands still until `threads` threads have nothing to do but
// to wait for it, so what they do happens at the very moment that they asked for.
template <class Ready>
bool Simulate(FakeClock& clock, int threads, Duration limit, Ready ready) {
  const MonoTime end = clock.Mono() + limit;
  for (;;) {
    const bool settled = Eventually([&] { return ready() || clock.Settle(threads, std::chrono::milliseconds(50)); });
    if (ready() || !settled || clock.Mono() == end) return ready();
    clock.Advance(std::min(clock.next(), end) - clock.Mono());
  }
}

// The value of a counter or gauge, the count of a histogram (`sum`: its sum); -1 when there is none with these labels.
inline double MetricValue(const prometheus::Registry& registry, const std::string& name, const prometheus::Labels& labels,
                          bool sum = false) {
  for (const prometheus::MetricFamily& family : registry.Collect()) {
    if (family.name != name) continue;
    for (const prometheus::ClientMetric& metric : family.metric) {
      prometheus::Labels has;
      for (const auto& label : metric.label) has[label.name] = label.value;
      if (has != labels) continue;
      switch (family.type) {
        case prometheus::MetricType::Counter:
          return metric.counter.value;
        case prometheus::MetricType::Gauge:
          return metric.gauge.value;
        case prometheus::MetricType::Histogram:
          return sum ? metric.histogram.sample_sum : static_cast<double>(metric.histogram.sample_count);
        default:
          break;
      }
    }
  }
  return -1;
}

}  // namespace holdfast::kube
