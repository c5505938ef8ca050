// Who is worked on, so that no tenant's checkpoints hold up a node's drains, nor those of other tenants. An agent's threads are blocked
// through dump and store, so they are shared out by what a checkpoint is for (MayBegin): drains have as many of their own as the node may
// have drains at a time; the rest shares as many more. Of the rest, those of running pods, for which nobody stands and waits (CanWait),
// take no more than half, and of one namespace half of that; theirs is a turn, which lasts until its checkpoint is over. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "agent/executor.h"
#include "api/checkpoint.h"
#include "base/clock.h"

namespace holdfast::agent {

// Its pod runs on meanwhile, and no other one stands still for it.
bool CanWait(const api::Checkpoint& checkpoint);

enum class Line {
  kDrain,    // its place was given to it by the controller (reconcilers/drain/admission.h)
  kMember,   // of a group's cut: all of them are frozen at one moment, or none is
  kUrgent,   // its pod is to sleep or to end (Suspend, Idle, Stop), or a user asked for a final one
  kCanWait,  // manual and interval ones
};
Line LineOf(const api::Checkpoint& checkpoint);
Line LineOf(const JournalEntry& entry);  // as far as it tells, where the API server has not been heard yet

struct Work {
  Line line = Line::kDrain;
  std::string ns;
};
// Whether a thread may be blocked for `me` beside those that are. `workers`: of drains, and of the rest.
bool MayBegin(const Work& me, const std::vector<Work>& under_way, int workers);
// So many threads never lack one for who may begin, or for what takes a moment (an end, a thaw).
inline int ThreadsFor(int workers) { return 2 * workers + 1; }

class Turns {
 public:
  explicit Turns(int workers);
  // True: it may be worked on, now and until Release.
  bool Take(const std::string& uid, const std::string& ns);
  void Release(const std::string& uid);  // idempotent
  // True: a thread may be blocked for it, until End.
  bool Begin(const std::string& uid, const Work& work);
  void End(const std::string& uid);

  int limit() const { return limit_; }
  int limit_of_namespace() const { return of_namespace_; }

 private:
  const int workers_, limit_, of_namespace_;
  std::mutex mutex_;
  std::map<std::string, std::string> taken_;  // namespace, by uid
  std::map<std::string, Work> under_way_;     // by uid
};

// Executor::Run, in its turn; a duration while it is another one's.
Result<std::optional<Duration>> RunInTurn(Turns& turns, Executor& executor, const Journal& journal, Cluster& cluster, Clock& clock,
                                          const std::string& uid, std::stop_token stop);

}  // namespace holdfast::agent
