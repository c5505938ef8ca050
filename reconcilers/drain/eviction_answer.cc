#include "reconcilers/drain/eviction_answer.h"

#include <algorithm>

#include "api/pod.h"
#include "reconcilers/support.h"

namespace holdfast::reconcilers::drain {
namespace {

using api::Phase;
constexpr int kMaxAttempts = 100;

std::string Who(const EvictionWorld& w) { return w.ns + "/" + w.name; }

EvictionAnswer Refuse(std::string message) {
  EvictionAnswer answer;
  answer.allow = false;
  answer.message = std::move(message);
  return answer;
}

EvictionAnswer LetGo(const std::string& because) {
  EvictionAnswer answer;
  answer.notice = Notice{true, "StateNotKept", "evicted without its state: " + because, true, false};
  return answer;
}

std::string ProgressText(const api::Checkpoint& c) {
  if (c.status.phase == Phase::kPending) {
    const api::Condition* ready = c.Ready();
    return ready != nullptr && !ready->message.empty() ? "waiting: " + ready->message : "asked for";
  }
  if (c.status.progress_total <= 0) return c.status.phase == Phase::kAssigned ? "waits for its node's agent" : "freezing";
  const int64_t percent = std::clamp<int64_t>(c.status.progress_bytes * 100 / c.status.progress_total, 0, 100);
  return FormatBytes(c.status.progress_total) + ", " + std::to_string(percent) + " %";
}

int FreeOrdinal(const EvictionWorld& w) {
  int ordinal = 0;
  auto taken = [&](int n) {
    const std::string name = api::CheckpointName(api::Trigger::kDrain, w.name, w.pod->meta.uid, n);
    return std::any_of(w.checkpoints.begin(), w.checkpoints.end(), [&](const CheckpointPtr& c) { return c->meta.name == name; });
  };
  while (ordinal < kMaxAttempts && taken(ordinal)) ++ordinal;
  return ordinal;
}

EvictionAnswer Begin(const EvictionWorld& w) {
  EvictionAnswer answer = Refuse("holdfast: checkpointing " + Who(w) + " (asked for)");
  answer.ordinal = FreeOrdinal(w);
  if (answer.ordinal >= kMaxAttempts) return LetGo("it was checkpointed for " + std::to_string(kMaxAttempts) + " drains that never ended");
  answer.create = true;
  return answer;
}

// The drained pod of this name that was moved a moment ago, when this request cannot mean the one that is there now: its node is not
// being drained.
const api::Checkpoint* MovedFrom(const EvictionWorld& w, WallTime now) {
  if (!w.asked_uid.empty() || (w.node && w.node->unschedulable)) return nullptr;
  for (const CheckpointPtr& c : w.predecessors) {
    const bool moved = c->spec.trigger == api::Trigger::kDrain && c->spec.final && c->status.phase == Phase::kReady && !Reclaimed(*c);
    if (moved && now - CompletedAt(*c) < kOldRequestStands) return c.get();
  }
  return nullptr;
}

// Its processes are about to run, and nobody else goes on from what they are restored from.
bool IsBeingRestored(const EvictionWorld& w, WallTime now) {
  const api::Checkpoint* c = w.restored_from.get();
  if (c == nullptr || !c->status.claim || c->status.claim->pod_uid != w.pod->meta.uid || !BeingRestored(*c)) return false;
  const auto began = ParseTime(WordOfClaim(*c)->at);
  return began && now - *began < kRestoreStands;
}

// Nothing: the attempt is over and says nothing about this request.
std::optional<EvictionAnswer> AnswerFor(const EvictionWorld& w, const api::Checkpoint& c, WallTime now) {
  const api::Condition* ready = c.Ready();
  switch (c.status.phase) {
    case Phase::kDeleting:
      return std::nullopt;
    case Phase::kFailed:
      if (now - CompletedAt(c) >= kAttemptStands) return std::nullopt;
      return LetGo(ready != nullptr ? ready->message.str() : "checkpoint " + c.meta.name + " failed");
    case Phase::kReady: {
      if (Reclaimed(c)) {
        const WallTime at = ParseTime(c.status.claim->at).value_or(CompletedAt(c));
        if (now - at >= kAfterReclaim) return std::nullopt;
        return Refuse("holdfast: " + Who(w) + " runs on, because its eviction was refused before; tries again in " +
                      FormatDuration(std::chrono::duration_cast<std::chrono::seconds>(at + kAfterReclaim - now)));
      }
      if (now - CompletedAt(c) >= kEvictingStands) return EvictionAnswer{};
      return Refuse("holdfast: checkpointing " + Who(w) + " (" + FormatBytes(c.status.memory_bytes + c.status.files_bytes) +
                    ", 100 %), evicting");
    }
    default:
      break;
  }
  // Without a store each one's turn would only take its deadline.
  if (now >= (w.store_down ? DeadlineOf(c) + kAgentGrace : WaitedForUntil(c))) {
    const Duration had = DeadlineOf(c) - ParseTime(c.status.started_at).value_or(CreatedAt(c));
    return LetGo("its checkpoint " + c.meta.name + " was not done within " + FormatDuration(had) + " (" + ProgressText(c) + ")");
  }
  return Refuse("holdfast: checkpointing " + Who(w) + " (" + ProgressText(c) + ")");
}

}  // namespace

EvictionAnswer AnswerEviction(const EvictionWorld& seen, WallTime now) {
  EvictionAnswer allow;
  if (!seen.pod || seen.pod->meta.terminating()) return allow;
  if (const api::Checkpoint* moved = MovedFrom(seen, now)) {
    EvictionAnswer answer = Refuse("holdfast: pod " + Who(seen) + " of uid " + moved->spec.pod_uid +
                                   " has moved; this is the one that took its place, and its node is not being drained");
    answer.gone = true;
    return answer;
  }
  if (!seen.asked_uid.empty() && seen.asked_uid != seen.pod->meta.uid) return allow;  // the API server answers that
  if (seen.pod->phase != "Running" && !api::RunsInPart(*seen.pod)) {
    return IsBeingRestored(seen, now) ? Refuse("holdfast: " + Who(seen) + " is being restored, and is checkpointed when it runs") : allow;
  }

  // Final ones only: any other leaves the pod as it is. The newest speaks.
  std::vector<CheckpointPtr> attempts;
  for (const CheckpointPtr& c : seen.checkpoints) {
    if (!c->spec.final || c->meta.terminating()) continue;
    if (c->spec.trigger != api::Trigger::kDrain) {
      if (Unclaimed(*c)) return allow;  // frozen and kept already
      if (c->done()) continue;
    }
    attempts.push_back(c);
  }
  if (!attempts.empty()) {
    auto newest = std::max_element(attempts.begin(), attempts.end(),
                                   [](const CheckpointPtr& a, const CheckpointPtr& b) { return CreatedAt(*a) < CreatedAt(*b); });
    if (auto answer = AnswerFor(seen, **newest, now)) return *answer;
  }

  if (!seen.protection.problem.empty()) return LetGo(seen.protection.problem);
  if (!seen.protection.on || !seen.protection.policy->spec.triggers.drain) return allow;
  if (auto why = UnsupportedHere(*seen.pod, seen.node.get(), true)) return LetGo(*why);
  if (seen.store_down) return LetGo("the checkpoint store does not answer: see `kubectl -n holdfast-system get pods`");
  return Begin(seen);
}

}  // namespace holdfast::reconcilers::drain
