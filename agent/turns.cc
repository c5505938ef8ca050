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
                                     "waits for other checkpoints on its node, of its namespace or of several", now);
  Status told = cluster.PatchStatus(cp.meta.ns, cp.meta.name, cp.meta.uid, patch);
  if (!told.ok()) LogWarning("cannot say that a checkpoint waits", {{"checkpoint", cp.meta.Key()}, {"error", told.message()}});
}

}  // namespace

bool CanWait(const api::Checkpoint& checkpoint) { return !checkpoint.spec.final && checkpoint.spec.cut.none(); }

Line LineOf(const api::Checkpoint& c) {
  if (!c.spec.cut.none()) return Line::kMember;
  if (!c.spec.final) return Line::kCanWait;
  return c.spec.trigger == api::Trigger::kDrain ? Line::kDrain : Line::kUrgent;
}

Line LineOf(const JournalEntry& entry) {
  if (entry.in_cut) return Line::kMember;
  if (!entry.final) return Line::kCanWait;
  return entry.on_stop ? Line::kUrgent : Line::kDrain;
}

bool MayBegin(const Work& me, const std::vector<Work>& under_way, int workers) {
  int drains = 0, others = 0, own = 0;
  for (const Work& work : under_way) {
    (work.line == Line::kDrain ? drains : others) += 1;
    own += work.line != Line::kDrain && work.ns == me.ns ? 1 : 0;
  }
  if (me.line == Line::kDrain) return drains < workers;
  return others < workers && (me.line == Line::kMember || own < std::max(1, workers - 1));
}

Turns::Turns(int workers) : workers_(workers), limit_(std::max(1, workers / 2)), of_namespace_(std::max(1, limit_ / 2)) {}

bool Turns::Begin(const std::string& uid, const Work& work) {
  std::lock_guard lock(mutex_);
  std::vector<Work> others;
  for (const auto& [other, its] : under_way_) others.push_back(its);
  if (!MayBegin(work, others, workers_)) return false;
  under_way_[uid] = work;
  return true;
}

void Turns::End(const std::string& uid) {
  std::lock_guard lock(mutex_);
  under_way_.erase(uid);
}

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
  const Result<JournalEntry> entry = journal.Read(uid);
  const bool fresh = entry.status().code() == Code::kNotFound;
  if (seen.ok() && CanWait(*seen) && !(fresh && seen->done()) && !turns.Take(uid, seen->meta.ns)) {
    SayThatItWaits(cluster, *seen, clock.Wall());
    return std::optional(kLookAgain);
  }
  // What is over but for its end, and what nobody knows, takes a moment.
  const bool begins = fresh && seen.ok() && !seen->done();
  const bool works = entry.ok() && !entry->failed() && entry->step < Step::kCommitted;
  if (begins || works) {
    const Work work = seen.ok() ? Work{LineOf(*seen), seen->meta.ns} : Work{LineOf(*entry), entry->ns};
    if (!turns.Begin(uid, work)) {
      if (begins) SayThatItWaits(cluster, *seen, clock.Wall());
      return std::optional(kLookAgain);
    }
  }
  Result<std::optional<Duration>> again = executor.Run(uid, std::move(stop));
  turns.End(uid);
  if (journal.Read(uid).status().code() == Code::kNotFound) turns.Release(uid);
  return again;
}

}  // namespace holdfast::agent
