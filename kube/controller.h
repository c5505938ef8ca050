// Runs a reconcile function over keys with N workers. Life: AddSource, perhaps Warmup, Start, Stop; after Stop make a new one.
//
// What a reconcile returns decides what becomes of its key:
// - a result: its failures are forgotten; with requeue_after it comes again after that time;
// - an error (an exception is one): it comes again after a backoff that grows with each failure in a row, with the priority it had;
// - an error marked Terminal: logged and counted; only a new event brings the key back.
//
// A key's reconcile sees what the one before it wrote: where a source has a cache of what was written, it waits until that has the write.
//
// Lines that a reconcile logs on its own thread carry the fields controller, key and reconcile_id.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "kube/own_writes.h"
#include "kube/queue.h"

namespace holdfast::kube {

class RuntimeMetrics;

struct ReconcileResult {
  std::optional<Duration> requeue_after{};
  std::optional<int> priority{};  // of the requeue; unset: the one that the key had
};

struct ControllerOptions {
  std::string name{};  // in logs and metrics
  int workers = 1;
  Duration timeout = std::chrono::seconds(60);  // of one reconcile: its stop_token is set then; 0: none
  BackoffOptions backoff{};
  Duration sync_timeout = std::chrono::minutes(2);  // for all sources together to start and hand over what is there already
  // How long after its writes a key's next reconcile still waits for the caches to have them; 0: it does not.
  Duration own_writes_patience = std::chrono::seconds(5);
  RuntimeMetrics* metrics = nullptr;  // outlives the controller
};

// Where keys come from. kube/source.h makes one of an Informer.
struct Source {
  std::string name{};                              // in errors
  std::function<Status(std::stop_token)> start{};  // may be unset; returns soon, or when stopped
  // Waits until all that was there at the start has been enqueued: false when it was not within the limit, or was stopped. May be unset.
  std::function<bool(Duration limit, std::stop_token)> wait_for_sync{};
  // The collection that it has a cache of (Resource::Path of all namespaces), and how to wait for a write to be in it. May be unset.
  std::string collection{};
  WaitForVersion wait_for_version{};
};

class Controller {
 public:
  using Reconcile = std::function<Result<ReconcileResult>(const std::string& key, std::stop_token stop)>;
  Controller(ControllerOptions options, Reconcile reconcile, Clock& clock = Clock::Real());
  ~Controller();

  // From any thread, also before Start; ignored after Stop. A key of what is only there already, and is no news, has kLowPriority.
  void Enqueue(const std::string& key, int priority = 0);
  void EnqueueAfter(const std::string& key, Duration delay);

  void AddSource(Source source);  // before Start; one added after Warmup starts with Start
  // Starts the sources and waits for them, without reconciling: so a replica that waits for the lease has its caches and its queue full.
  // Start does it otherwise. An error, after which the controller is of no use: a source did not start, or not in time. OK when stopped.
  Status Warmup(std::stop_token stop = {});
  // Warmup, then the workers begin. kFailedPrecondition when it was started before, kAlreadyExists when a controller of this name runs
  // under the same metrics.
  Status Start(std::stop_token stop = {});
  // Tells running reconciles to stop and waits for them. What is queued is dropped.
  void Stop();

  size_t depth() const;  // of the queue

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Of the reconcile that runs on this thread, "" outside of one.
std::string CurrentReconcileId();

}  // namespace holdfast::kube
