#include "agent/turns.h"

#include <algorithm>

#include "base/log.h"

namespace holdfast::agent {
namespace {

constexpr Duration kLookAgain = std::chrono::milliseconds(250);

// Once.
void SayThatItWaits(Cluster& cluster, const api::Checkpoint& cp, WallTime now) {
  const api::Condition* ready = cp.Ready();
  if (cp.status.phase != api::Phase::kAssigned || (ready != nullptr && ready->reason == api::reason::kQueued)) return;
  const Json patch = api::PhasePatch(cp, api::Phase::kAssigned, api::reason::kQueued,
                                     "waits for other checkpoints of running pods on its node, of its namespace or of several", now);
  Status told = cluster.PatchStatus(cp.meta.ns, cp.meta.name, cp.meta.uid, patch);
  if (!told.ok()) LogWarning("cannot say that a checkpoint waits", {{"checkpoint", cp.meta.Key()}, {"error", told.message()}});
}

}  // namespace

bool CanWait(const api::Checkpoint& checkpoint) { return !checkpoint.spec.final && checkpoint.spec.cut.none(); }

Turns::Turns(int workers) : limit_(std::max(1, workers / 2)), of_namespace_(std::max(1, limit_ / 2)) {}

bool Turns::Take(const std::string& uid, const std::string& ns) {
  std::lock_guard lock(mutex_);
  if (taken_.contains(uid)) return true;
  const auto own = std::count_if(taken_.begin(), taken_.end(), [&](const auto& one) { return one.second == ns; });
  if (static_cast<int>(taken_.size()) >= limit_ || own >= of_namespace_) return false;
  taken_[uid] = ns;
  return true;
}

void Turns::Release(const std::string& uid) {
  std::lock_guard lock(mutex_);
  taken_.erase(uid);
}

Result<std::optional<Duration>> RunInTurn(Turns& turns, Executor& executor, const Journal& journal, Cluster& cluster, Clock& clock,
                                          const std::string& uid, std::stop_token stop) {
  const Result<api::Checkpoint> seen = cluster.CachedCheckpoint(uid);
  const bool over = seen.ok() && seen->done() && journal.Read(uid).status().code() == Code::kNotFound;
  if (seen.ok() && !over && CanWait(*seen) && !turns.Take(uid, seen->meta.ns)) {
    SayThatItWaits(cluster, *seen, clock.Wall());
    return std::optional(kLookAgain);
  }
  Result<std::optional<Duration>> again = executor.Run(uid, std::move(stop));
  if (journal.Read(uid).status().code() == Code::kNotFound) turns.Release(uid);
  return again;
}

}  // namespace holdfast::agent
