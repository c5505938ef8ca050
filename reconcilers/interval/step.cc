#include "reconcilers/interval/step.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/hash.h"
#include "reconcilers/support.h"

namespace holdfast::reconcilers::interval {
namespace {

using api::Phase;
using std::chrono::seconds;

constexpr Duration kFirstGuess = seconds(1);  // what a checkpoint costs, before one was made
constexpr Duration kBusy = seconds(5);        // another look while something else is under way
constexpr Duration kNodeAgain = seconds(30);
constexpr Duration kOptIn = std::chrono::minutes(1);  // the annotation of an owner tells nobody that it changed
constexpr Duration kRetry = std::chrono::minutes(1);  // after a failure, at least (unless the interval is shorter)

struct Mark {
  std::string_view key, value;  // of a label; an empty value is any. A taint of this key counts as well
};
constexpr std::array<Mark, 8> kSpotMarks = {{{"karpenter.sh/capacity-type", "spot"},
                                             {"eks.amazonaws.com/capacityType", "SPOT"},
                                             {"cloud.google.com/gke-spot", "true"},
                                             {"cloud.google.com/gke-preemptible", "true"},
                                             {"kubernetes.azure.com/scalesetpriority", "spot"},
                                             {"kops.k8s.io/instance-lifecycle", "spot"},
                                             {"node.kubernetes.io/lifecycle", "spot"},
                                             {"node-role.kubernetes.io/spot-worker", ""}}};

// In [0, 1), the same for a pod at all times: pods that began together are not frozen together.
double Jitter(const std::string& uid) { return static_cast<double>(Fnv1a(uid) % 1000) / 1000; }

Duration Scaled(Duration duration, double factor) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(duration) * factor);
}

CheckpointPtr NewestOf(const World& w, Phase phase) {
  CheckpointPtr newest;
  for (const CheckpointPtr& c : w.own) {
    if (c->status.phase == phase && !c->meta.terminating() && (!newest || Newer(c, newest))) newest = c;
  }
  return newest;
}

Duration PeriodOf(const World& w, const CheckpointPtr& last) {
  const auto& triggers = w.protection.policy->spec.triggers;
  if (!triggers.interval_auto) return *triggers.interval;
  const Duration cost = last ? std::chrono::milliseconds(last->status.frozen_ms) : kFirstGuess;
  return YoungInterval(cost, IsSpot(*w.node) ? kSpotLives : kNodeLives);
}

// What the next attempt after a failed one waits for: less than a whole interval, since the last good state grows old.
Duration Patience(const api::Checkpoint& failed, Duration period) {
  const api::Condition* ready = failed.Ready();
  if (ready != nullptr && ready->reason == api::reason::kUnsupported) return period;
  return std::min(period, std::max(kRetry, Scaled(period, 1.0 / 8)));
}

Step Later(Duration again, std::string why) {
  Step step;
  step.again = std::max<Duration>(again, std::chrono::milliseconds(100));
  step.why = std::move(why);
  return step;
}

}  // namespace

Duration YoungInterval(Duration cost, Duration node_lives) {
  const double c = std::max(std::chrono::duration<double>(cost).count(), 0.0), m = std::chrono::duration<double>(node_lives).count();
  return std::clamp(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::sqrt(2 * c * m))), kShortest, kLongest);
}

bool IsSpot(const kube::Node& node) {
  return std::any_of(kSpotMarks.begin(), kSpotMarks.end(), [&](const Mark& mark) {
    auto label = node.meta.labels.find(std::string(mark.key));
    if (label != node.meta.labels.end() && (mark.value.empty() || label->second == mark.value)) return true;
    return std::find(node.taint_keys.begin(), node.taint_keys.end(), mark.key) != node.taint_keys.end();
  });
}

Step Next(const World& seen, WallTime now) {
  if (!seen.pod || seen.pod->meta.terminating() || seen.pod->phase != "Running") return {};
  // A pod under plain runc would be frozen for an archive that cannot be restored.
  if (seen.pod->runtime_class != api::kRuntimeClass || UnsupportedPod(*seen.pod)) return {};
  const auto& triggers = seen.protection.policy->spec.triggers;
  if (!seen.protection.on || (!triggers.interval_auto && !triggers.interval)) return Later(kOptIn, "no interval is asked for");
  if (!seen.opener.empty() && seen.opener != seen.pod->meta.name)
    return Later(kOptIn, "the cuts of its group follow the interval of " + seen.opener);
  if (!seen.node || !seen.node->ready) return Later(kNodeAgain, "its node does not answer");
  if (auto why = UnsupportedHere(*seen.pod, seen.node.get(), false)) return Later(kNodeAgain, *why);
  for (const CheckpointPtr& c : seen.own) {
    if (!c->done() || HoldsItsPod(*c)) return Later(kBusy, "Checkpoint " + c->meta.name + " has this pod in hand");
  }

  const CheckpointPtr last = NewestOf(seen, Phase::kReady), failed = NewestOf(seen, Phase::kFailed);
  const Duration period = PeriodOf(seen, last);
  const WallTime born = ParseTime(seen.pod->meta.creation_timestamp).value_or(now);
  WallTime due = last ? CreatedAt(*last) + period : born + Scaled(period, 0.5 + 0.5 * Jitter(seen.pod->meta.uid));
  if (failed && (!last || Newer(failed, last))) due = CompletedAt(*failed) + Patience(*failed, period);
  if (now < due) return Later(due - now, "not due yet");
  if (seen.busy >= seen.max_per_node) return Later(kBusy, std::to_string(seen.busy) + " checkpoints are under way on its node");
  Step step;
  step.create = true;
  step.ordinal = static_cast<int>(std::clamp<int64_t>(std::chrono::duration_cast<seconds>(due - born).count(), 1, 1'000'000'000));
  step.why = "due since " + FormatTime(due) + ", every " + FormatDuration(std::chrono::duration_cast<seconds>(period));
  step.again = kBusy;
  return step;
}

}  // namespace holdfast::reconcilers::interval
