// Who is worked on, of the checkpoints that nobody stands and waits for: those of running pods, that a user or an interval asked for. They
// take no more than half of the agent's workers, so drains always find one; and those of one namespace half of that, so that the pods of
// one tenant, however many and however slow, leave a worker to the others. A turn lasts until its checkpoint is over. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <stop_token>
#include <string>

#include "agent/executor.h"
#include "api/checkpoint.h"
#include "base/clock.h"

namespace holdfast::agent {

// Its pod runs on meanwhile, and no other one stands still for it.
bool CanWait(const api::Checkpoint& checkpoint);

class Turns {
 public:
  explicit Turns(int workers);
  // True: it may be worked on, now and until Release.
  bool Take(const std::string& uid, const std::string& ns);
  void Release(const std::string& uid);  // idempotent

  int limit() const { return limit_; }
  int limit_of_namespace() const { return of_namespace_; }

 private:
  const int limit_, of_namespace_;
  std::mutex mutex_;
  std::map<std::string, std::string> taken_;  // namespace, by uid
};

// Executor::Run, in its turn; a duration while it is another one's.
Result<std::optional<Duration>> RunInTurn(Turns& turns, Executor& executor, const Journal& journal, Cluster& cluster, Clock& clock,
                                          const std::string& uid, std::stop_token stop);

}  // namespace holdfast::agent
