#include "reconcilers/drain/step.h"

namespace holdfast::reconcilers::drain {
namespace {

bool WasAnswered(const Status& status) {
  return status.code() != Code::kUnavailable && status.code() != Code::kDeadlineExceeded && status.code() != Code::kCancelled;
}

}  // namespace

Step Next(const World& seen, WallTime now) {
  Step step;
  const api::Checkpoint& c = *seen.checkpoint;
  if (c.spec.trigger != api::Trigger::kDrain || !c.spec.final || c.status.phase != api::Phase::kReady || c.meta.terminating()) return step;
  if (!seen.pod || seen.pod->meta.terminating() || Reclaimed(c)) return step;
  if (!seen.evicted) {
    step.action = Action::kEvict;
    step.why = "its state is durable";
    return step;
  }
  switch (seen.evicted->code()) {
    case Code::kOk:
    case Code::kNotFound:
    case Code::kConflict:  // another pod of that name by now
      return step;
    default:
      break;
  }
  // Claimed by a successor: taking it back would make two of them, so the eviction is tried for as long as it takes. One that got no answer
  // may have come through, so what it was to end is not taken back on the strength of it.
  if (!c.status.claim && WasAnswered(*seen.evicted) && now - CompletedAt(c) >= kReclaimAfter) {
    step.action = Action::kReclaim;
    step.why = "its eviction was refused for " + FormatDuration(kReclaimAfter) + " (" + seen.evicted->message() +
               "): the pod is thawed and runs on; the next eviction request begins anew";
    step.notice = Notice{true, "Reclaimed", step.why, true, true};
    return step;
  }
  step.again = kEvictRetry;
  step.why = "eviction refused: " + seen.evicted->message();
  return step;
}

}  // namespace holdfast::reconcilers::drain
