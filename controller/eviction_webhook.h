// /evictions: holds an eviction back while the pod's checkpoint is made. Answers from caches in microseconds, but for a pod that they do
// not show running (at most a second); what has to be written goes to a bounded background queue.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

#include "base/thread.h"
#include "kube/admission.h"
#include "reconcilers/context.h"
#include "reconcilers/drain/eviction_answer.h"

namespace holdfast::controller {

// Creates Checkpoints in the background. Every replica may ask for the same one: its name is the request's, so the second finds it there.
class CheckpointCreator {
 public:
  explicit CheckpointCreator(kube::Client& client);
  ~CheckpointCreator();
  // Dropped when the queue is full: the drainer comes again.
  void Ask(Json checkpoint);
  void Stop();

 private:
  void Run(std::stop_token stop);
  kube::Client& client_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<Json> queue_;
  std::set<std::string> queued_;
  Thread thread_;
};

struct EvictionWebhookOptions {
  std::string own_username;   // of the controller: its evictions pass
  std::string own_namespace;  // store and controller there leave last
  Duration deadline = std::chrono::seconds(100);
  std::function<bool()> store_down;
  Duration live_read = std::chrono::seconds(1);
};

class EvictionWebhook {
 public:
  EvictionWebhook(reconcilers::Context context, CheckpointCreator& creator, EvictionWebhookOptions options)
      : context_(std::move(context)), creator_(creator), options_(std::move(options)) {}
  kube::AdmissionResponse Handle(const kube::AdmissionRequest& request);

 private:
  kube::AdmissionResponse LeaveLast(const kube::Pod& pod) const;
  bool Told(const reconcilers::Notice& notice, const kube::Pod& pod);
  reconcilers::PodPtr PodOf(const std::string& ns, const std::string& name) const;
  reconcilers::CheckpointPtr RestoredFrom(const kube::Pod& pod) const;
  reconcilers::Context context_;
  CheckpointCreator& creator_;
  const EvictionWebhookOptions options_;
  std::mutex mutex_;
  std::map<std::string, int> told_;  // by pod uid: how often its event was tried; bounded
};

// The Checkpoint that a drain asks for.
Json DrainCheckpoint(const kube::Pod& pod, int ordinal, const std::vector<std::string>& containers, Duration deadline);

}  // namespace holdfast::controller
