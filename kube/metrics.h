// What Prometheus sees of the runtime, under the names and labels of client-go and controller-runtime, so that the dashboards people have
// fit. The registry is the caller's and outlives this; this outlives everything that is given a part of it. Thread-safe.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"

namespace holdfast::kube {

struct ReflectorFamilies {
  prometheus::Family<prometheus::Counter>&lists, &watches, &short_watches;
  prometheus::Family<prometheus::Histogram>&list_seconds, &list_items, &watch_seconds, &watch_items;
  prometheus::Family<prometheus::Gauge>& last_version;
};

struct QueueFamilies {
  prometheus::Family<prometheus::Gauge>&depth, &unfinished, &longest;
  prometheus::Family<prometheus::Counter>&adds, &retries;
  prometheus::Family<prometheus::Histogram>&waited, &worked;
};

// Of one work queue: workqueue_*{name,controller}, the depth by priority too.
class QueueMetrics {
 public:
  QueueMetrics(const QueueFamilies& families, const std::string& name, Clock& clock);
  void Reset();  // a new queue: nothing is in it
  void Depth(int priority, double change);
  void Added();
  void Retried();
  void Taken(MonoTime now, Duration waited);
  void Done(MonoTime started, MonoTime now);
  void Refresh();  // of what grows while nothing happens: how long work has been running

 private:
  prometheus::Gauge& DepthOf(int priority);

  const QueueFamilies families_;
  const std::string name_;
  Clock& clock_;
  prometheus::Gauge &unfinished_, &longest_;
  prometheus::Counter &adds_, &retries_;
  prometheus::Histogram &waited_, &worked_;
  std::mutex mutex_;
  std::map<int, prometheus::Gauge*> depth_;
  std::vector<MonoTime> running_;  // when each began; as many as there are workers
};

// Of one controller: controller_runtime_*{controller}.
struct ControllerMetrics {
  prometheus::Counter &success, &requeue_after, &error;  // …_reconcile_total by result
  prometheus::Counter &errors, &terminal_errors, &panics, &timeouts;
  prometheus::Histogram& seconds;
  prometheus::Gauge &active_workers, &max_concurrent;
};

// Of one admission path: controller_runtime_webhook_*{webhook}.
struct WebhookMetrics {
  prometheus::Histogram& seconds;
  prometheus::Gauge& in_flight;
};

// Of the reflectors of one resource: reflector_*{name}.
class ReflectorMetrics {
 public:
  ReflectorMetrics(const ReflectorFamilies& families, const std::string& resource);
  void List(Duration took, size_t items, const std::string& version);                  // taken over
  void Watch(Duration lasted, size_t events, bool brief, const std::string& version);  // ended; `brief`: at once and without an event

 private:
  prometheus::Counter &lists_, &watches_, &short_watches_;
  prometheus::Histogram &list_seconds_, &list_items_, &watch_seconds_, &watch_items_;
  prometheus::Gauge& last_version_;
};

class RuntimeMetrics {
 public:
  explicit RuntimeMetrics(prometheus::Registry& registry, Clock& clock = Clock::Real());

  // The same object for the same name.
  QueueMetrics& Queue(const std::string& name);
  ControllerMetrics& Controller(const std::string& name);
  WebhookMetrics& Webhook(const std::string& path);
  ReflectorMetrics& Reflector(const std::string& resource);

  // Whether nobody else has this controller name now; Release gives it back.
  bool Claim(const std::string& controller);
  void Release(const std::string& controller);

  // controller_runtime_webhook_requests_total; the code is the HTTP status, or that of the refusal.
  void WebhookRequest(const std::string& path, int code);
  void Request(const std::string& code, const std::string& method, const std::string& host);  // rest_client_requests_total
  void Leading(const std::string& lease, bool leading);                                       // leader_election_master_status
  void LeaseSlowPath(const std::string& lease);                                               // leader_election_slowpath_total
  void EventDropped(const std::string& controller, const std::string& why);                   // events_dropped_total

  // Before each Collect of the registry.
  void Refresh();

 private:
  Clock& clock_;
  const QueueFamilies queue_;
  const ReflectorFamilies reflector_;
  prometheus::Family<prometheus::Counter>&reconciles_, &errors_, &terminal_errors_, &panics_, &timeouts_;
  prometheus::Family<prometheus::Histogram>& reconcile_seconds_;
  prometheus::Family<prometheus::Gauge>&active_workers_, &max_concurrent_;
  prometheus::Family<prometheus::Counter>& webhook_requests_;
  prometheus::Family<prometheus::Histogram>& webhook_seconds_;
  prometheus::Family<prometheus::Gauge>& webhook_in_flight_;
  prometheus::Family<prometheus::Counter>&requests_, &lease_slow_path_, &events_dropped_;
  prometheus::Family<prometheus::Gauge>& leading_;

  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<QueueMetrics>> queues_;
  std::map<std::string, std::unique_ptr<ControllerMetrics>> controllers_;
  std::map<std::string, std::unique_ptr<WebhookMetrics>> webhooks_;
  std::map<std::string, std::unique_ptr<ReflectorMetrics>> reflectors_;
  std::set<std::string> claimed_;
};

}  // namespace holdfast::kube
