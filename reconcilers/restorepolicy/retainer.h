// Carries retention.h's plan out: a few deletions at a time, each of exactly what was looked at, the content by the Checkpoint's finalizer.
#pragma once

#include "reconcilers/context.h"
#include "reconcilers/restorepolicy/survey.h"

namespace holdfast::reconcilers::restorepolicy {

struct RetentionSettings {
  int64_t namespace_quota_bytes = 0;  // of namespaces without holdfast.dev/quota; 0: none
  VolumeMarks marks;
  size_t at_once = 20;  // deletions (and marks) between two looks
};

class VolumeMeter {
 public:
  virtual ~VolumeMeter() = default;
  // Of each store, by its name.
  virtual std::map<std::string, Result<VolumeUse>> Use(std::stop_token stop) = 0;
};

// For metrics. Called by one thread at a time.
class RetentionObserver {
 public:
  virtual ~RetentionObserver() = default;
  virtual void Planned(const Plan& plan) = 0;
  virtual void Deleted(Drop why, int64_t bytes) = 0;
};

class Retainer {
 public:
  static constexpr char kKey[] = "all";  // its only key
  Retainer(Context context, RetentionSettings settings, VolumeMeter& meter, RetentionObserver& observer)
      : context_(std::move(context)), settings_(settings), meter_(meter), observer_(observer) {}
  Result<kube::ReconcileResult> Reconcile(const std::string& key, std::stop_token stop);

 private:
  Plan Look(const View& view, const std::set<std::string>& namespaces, std::stop_token stop);
  Status Delete(const api::Checkpoint& checkpoint, const Removal& removal, std::stop_token stop);
  Status Mark(const api::Checkpoint& checkpoint, bool orphaned, std::stop_token stop);
  Status CarryOut(const Plan& plan, const View& live, const std::set<std::string>& fresh, std::stop_token stop);
  void Tell(const Plan& plan, const std::set<std::string>& namespaces);

  Context context_;
  const RetentionSettings settings_;
  VolumeMeter& meter_;
  RetentionObserver& observer_;
  std::set<std::string> emptying_;  // stores whose volume was above its high mark, and is not yet down to the low one
  std::string told_, told_of_stores_;
};

}  // namespace holdfast::reconcilers::restorepolicy
