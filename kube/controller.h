// Runs a reconcile function over keys with N workers: errors are retried with backoff and logged, exceptions become errors, Stop waits for
// running work (whose stop_token is set). It has one life: after Stop make a new one.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "kube/queue.h"

namespace holdfast::kube {

struct ReconcileResult {
  std::optional<Duration> requeue_after{};
};

struct ControllerOptions {
  std::string name{};  // in logs and metrics
  int workers = 1;
  Duration timeout = std::chrono::seconds(60);  // of one reconcile: its stop_token is set then
  BackoffOptions backoff{};
};

class Controller {
 public:
  using Reconcile = std::function<Result<ReconcileResult>(const std::string& key, std::stop_token stop)>;
  Controller(ControllerOptions options, Reconcile reconcile, Clock& clock = Clock::Real());
  ~Controller();
  void Enqueue(const std::string& key);
  void EnqueueAfter(const std::string& key, Duration delay);
  void Start();
  void Stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast::kube
