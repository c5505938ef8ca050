#include "kube/metrics.h"

#include <algorithm>
#include <cstdlib>

namespace holdfast::kube {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;
using prometheus::Registry;

// client-go's, of the queue; controller-runtime's, of a reconcile; and finer ones below 5 ms, where a webhook should be.
const Histogram::BucketBoundaries kQueueBuckets = {1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 100, 1000};
const Histogram::BucketBoundaries kReconcileBuckets = {0.005, 0.01, 0.025, 0.05, 0.1,  0.15, 0.2,  0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6,
                                                       0.7,   0.8,  0.9,   1,    1.25, 1.5,  1.75, 2,    2.5, 3,    3.5, 4,    4.5, 5,
                                                       6,     7,    8,     9,    10,   15,   20,   25,   30,  40,   50,  60};
const Histogram::BucketBoundaries kWebhookBuckets = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1, 10};
const Histogram::BucketBoundaries kListBuckets = {0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};
const Histogram::BucketBoundaries kWatchBuckets = {1, 5, 30, 60, 120, 300, 450, 600};  // they are asked for 300 s to 600 s
const Histogram::BucketBoundaries kItemBuckets = {0, 1, 10, 100, 1000, 10000, 100000, 1000000};

// More than these share one series: priorities may come from outside.
constexpr size_t kMaxPriorities = 16;

template <class Builder>
auto& Make(Builder builder, const char* name, const char* help, Registry& registry) {
  return builder.Name(name).Help(help).Register(registry);
}
Family<Counter>& Count(const char* name, const char* help, Registry& registry) {
  return Make(prometheus::BuildCounter(), name, help, registry);
}
Family<Gauge>& Level(const char* name, const char* help, Registry& registry) {
  return Make(prometheus::BuildGauge(), name, help, registry);
}
Family<Histogram>& Spread(const char* name, const char* help, Registry& registry) {
  return Make(prometheus::BuildHistogram(), name, help, registry);
}

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

Labels OfQueue(const std::string& name) { return {{"name", name}, {"controller", name}}; }

}  // namespace

QueueMetrics::QueueMetrics(const QueueFamilies& families, const std::string& name, Clock& clock)
    : families_(families),
      name_(name),
      clock_(clock),
      unfinished_(families.unfinished.Add(OfQueue(name))),
      longest_(families.longest.Add(OfQueue(name))),
      adds_(families.adds.Add(OfQueue(name))),
      retries_(families.retries.Add(OfQueue(name))),
      waited_(families.waited.Add(OfQueue(name), kQueueBuckets)),
      worked_(families.worked.Add(OfQueue(name), kQueueBuckets)) {
  DepthOf(0);
}

Gauge& QueueMetrics::DepthOf(int priority) {
  auto found = depth_.find(priority);
  if (found != depth_.end()) return *found->second;
  Labels labels = OfQueue(name_);
  labels["priority"] = depth_.size() < kMaxPriorities ? std::to_string(priority) : "other";
  Gauge& gauge = families_.depth.Add(labels);
  if (depth_.size() < kMaxPriorities) depth_[priority] = &gauge;
  return gauge;
}

void QueueMetrics::Reset() {
  std::lock_guard lock(mutex_);
  for (auto& [priority, gauge] : depth_) gauge->Set(0);
  running_.clear();
}

void QueueMetrics::Depth(int priority, double change) {
  std::lock_guard lock(mutex_);
  DepthOf(priority).Increment(change);
}

void QueueMetrics::Added() { adds_.Increment(); }

void QueueMetrics::Retried() { retries_.Increment(); }

void QueueMetrics::Taken(MonoTime now, Duration waited) {
  waited_.Observe(Seconds(waited));
  std::lock_guard lock(mutex_);
  running_.push_back(now);
}

void QueueMetrics::Done(MonoTime started, MonoTime now) {
  worked_.Observe(Seconds(now - started));
  std::lock_guard lock(mutex_);
  auto found = std::find(running_.begin(), running_.end(), started);
  if (found == running_.end()) return;
  *found = running_.back();
  running_.pop_back();
}

void QueueMetrics::Refresh() {
  std::lock_guard lock(mutex_);
  const MonoTime now = clock_.Mono();
  double total = 0, longest = 0;
  for (MonoTime began : running_) {
    total += Seconds(now - began);
    longest = std::max(longest, Seconds(now - began));
  }
  unfinished_.Set(total);
  longest_.Set(longest);
}

ReflectorMetrics::ReflectorMetrics(const ReflectorFamilies& families, const std::string& resource)
    : lists_(families.lists.Add({{"name", resource}})),
      watches_(families.watches.Add({{"name", resource}})),
      short_watches_(families.short_watches.Add({{"name", resource}})),
      list_seconds_(families.list_seconds.Add({{"name", resource}}, kListBuckets)),
      list_items_(families.list_items.Add({{"name", resource}}, kItemBuckets)),
      watch_seconds_(families.watch_seconds.Add({{"name", resource}}, kWatchBuckets)),
      watch_items_(families.watch_items.Add({{"name", resource}}, kItemBuckets)),
      last_version_(families.last_version.Add({{"name", resource}})) {}

void ReflectorMetrics::List(Duration took, size_t items, const std::string& version) {
  lists_.Increment();
  list_seconds_.Observe(Seconds(took));
  list_items_.Observe(static_cast<double>(items));
  last_version_.Set(std::strtod(version.c_str(), nullptr));
}

void ReflectorMetrics::Watch(Duration lasted, size_t events, bool brief, const std::string& version) {
  watches_.Increment();
  if (brief) short_watches_.Increment();
  watch_seconds_.Observe(Seconds(lasted));
  watch_items_.Observe(static_cast<double>(events));
  last_version_.Set(std::strtod(version.c_str(), nullptr));
}

RuntimeMetrics::RuntimeMetrics(Registry& registry, Clock& clock)
    : clock_(clock),
      queue_{Level("workqueue_depth", "Keys that are ready, by work queue and priority.", registry),
             Level("workqueue_unfinished_work_seconds", "How long the work that is in progress has been running, summed.", registry),
             Level("workqueue_longest_running_processor_seconds", "How long the longest work in progress has been running.", registry),
             Count("workqueue_adds_total", "Keys that became ready.", registry),
             Count("workqueue_retries_total", "Keys added with a delay: after an error, or because a reconcile asked.", registry),
             Spread("workqueue_queue_duration_seconds", "How long a key is ready before a worker takes it.", registry),
             Spread("workqueue_work_duration_seconds", "How long a key is worked on.", registry)},
      reflector_{
          Count("reflector_lists_total", "Lists taken over, streamed ones too.", registry),
          Count("reflector_watches_total", "Watches that have ended.", registry),
          Count("reflector_short_watches_total", "Of these, the ones that ended within a second and brought nothing.", registry),
          Spread("reflector_list_duration_seconds", "How long a list took to come in.", registry),
          Spread("reflector_items_per_list", "Objects in a list.", registry),
          Spread("reflector_watch_duration_seconds", "How long a watch lasted.", registry),
          Spread("reflector_items_per_watch", "Events that a watch brought, those of a streamed list too.", registry),
          Level("reflector_last_resource_version", "Up to where the cache is complete, as of the last list or end of a watch.", registry)},
      reconciles_(Count("controller_runtime_reconcile_total", "Reconciliations by controller and result.", registry)),
      errors_(Count("controller_runtime_reconcile_errors_total", "Reconciliations that failed.", registry)),
      terminal_errors_(
          Count("controller_runtime_terminal_reconcile_errors_total", "Reconciliations that failed and are not tried again.", registry)),
      panics_(Count("controller_runtime_reconcile_panics_total", "Reconciliations that threw.", registry)),
      timeouts_(Count("controller_runtime_reconcile_timeouts_total", "Reconciliations that were stopped at their time limit.", registry)),
      reconcile_seconds_(Spread("controller_runtime_reconcile_time_seconds", "Time of a reconciliation.", registry)),
      active_workers_(Level("controller_runtime_active_workers", "Workers that reconcile now.", registry)),
      max_concurrent_(Level("controller_runtime_max_concurrent_reconciles", "Workers.", registry)),
      webhook_requests_(Count("controller_runtime_webhook_requests_total", "Admission requests by webhook and code.", registry)),
      webhook_seconds_(Spread("controller_runtime_webhook_latency_seconds", "Time of an admission request.", registry)),
      webhook_in_flight_(Level("controller_runtime_webhook_requests_in_flight", "Admission requests being answered.", registry)),
      requests_(Count("rest_client_requests_total", "Requests to the API server by code, method and host.", registry)),
      lease_slow_path_(Count("leader_election_slowpath_total", "Renewals of a lease that had to read it first.", registry)),
      events_dropped_(Count("events_dropped_total", "Events that were not sent, by controller and reason.", registry)),
      leading_(Level("leader_election_master_status", "1 on the replica that leads.", registry)) {}

QueueMetrics& RuntimeMetrics::Queue(const std::string& name) {
  std::lock_guard lock(mutex_);
  auto& found = queues_[name];
  if (!found) found = std::make_unique<QueueMetrics>(queue_, name, clock_);
  return *found;
}

ControllerMetrics& RuntimeMetrics::Controller(const std::string& name) {
  std::lock_guard lock(mutex_);
  auto& found = controllers_[name];
  if (found) return *found;
  const Labels labels = {{"controller", name}};
  auto result = [&](const char* what) -> Counter& { return reconciles_.Add({{"controller", name}, {"result", what}}); };
  found = std::make_unique<ControllerMetrics>(ControllerMetrics{
      result("success"), result("requeue_after"), result("error"), errors_.Add(labels), terminal_errors_.Add(labels), panics_.Add(labels),
      timeouts_.Add(labels), reconcile_seconds_.Add(labels, kReconcileBuckets), active_workers_.Add(labels), max_concurrent_.Add(labels)});
  return *found;
}

WebhookMetrics& RuntimeMetrics::Webhook(const std::string& path) {
  std::lock_guard lock(mutex_);
  auto& found = webhooks_[path];
  if (found) return *found;
  for (const char* code : {"200", "500"}) webhook_requests_.Add({{"webhook", path}, {"code", code}});
  found = std::make_unique<WebhookMetrics>(
      WebhookMetrics{webhook_seconds_.Add({{"webhook", path}}, kWebhookBuckets), webhook_in_flight_.Add({{"webhook", path}})});
  return *found;
}

ReflectorMetrics& RuntimeMetrics::Reflector(const std::string& resource) {
  std::lock_guard lock(mutex_);
  auto& found = reflectors_[resource];
  if (!found) found = std::make_unique<ReflectorMetrics>(reflector_, resource);
  return *found;
}

bool RuntimeMetrics::Claim(const std::string& controller) {
  std::lock_guard lock(mutex_);
  return claimed_.insert(controller).second;
}

void RuntimeMetrics::Release(const std::string& controller) {
  std::lock_guard lock(mutex_);
  claimed_.erase(controller);
}

void RuntimeMetrics::WebhookRequest(const std::string& path, int code) {
  webhook_requests_.Add({{"webhook", path}, {"code", std::to_string(code)}}).Increment();
}

void RuntimeMetrics::Request(const std::string& code, const std::string& method, const std::string& host) {
  requests_.Add({{"code", code}, {"method", method}, {"host", host}}).Increment();
}

void RuntimeMetrics::Leading(const std::string& lease, bool leading) { leading_.Add({{"name", lease}}).Set(leading ? 1 : 0); }

void RuntimeMetrics::LeaseSlowPath(const std::string& lease) { lease_slow_path_.Add({{"name", lease}}).Increment(); }

void RuntimeMetrics::EventDropped(const std::string& controller, const std::string& why) {
  events_dropped_.Add({{"controller", controller}, {"reason", why}}).Increment();
}

void RuntimeMetrics::Refresh() {
  std::lock_guard lock(mutex_);
  for (auto& [name, queue] : queues_) queue->Refresh();
}

}  // namespace holdfast::kube
