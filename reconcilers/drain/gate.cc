#include "reconcilers/drain/gate.h"

#include <set>

#include "reconcilers/lineage.h"

namespace holdfast::reconcilers::drain {
namespace {

constexpr Duration kGrantStands = std::chrono::seconds(30);
constexpr Duration kDryRunTimeout = std::chrono::seconds(10);

// What its pod is expected to be, as the last checkpoint of its owner was, or as it asks for memory; 0: nothing tells.
int64_t ExpectedBytes(const View& view, const kube::Pod& pod) {
  const Lineage lineage = Trace(view, pod, pod.meta.ns);
  CheckpointPtr last;
  if (!lineage.owner.uid.empty()) {
    for (const CheckpointPtr& c : view.CheckpointsOfOwner(lineage.owner.uid.str())) {
      if (c->status.phase == api::Phase::kReady && (!last || Newer(c, last))) last = c;
    }
  }
  if (last) return last->status.memory_bytes + last->status.files_bytes;
  double asked = 0;
  for (const kube::Container* container : pod.LastingContainers()) {
    const auto memory = container->requests.find("memory");
    if (memory != container->requests.end()) asked += api::ParseAmount(memory->second).value_or(0);
  }
  return static_cast<int64_t>(asked);
}

}  // namespace

// Those of the node of `me`, and what takes slots of budgets elsewhere.
Traffic Gate::Look(const Seat& me) {
  Traffic traffic;
  traffic.max_per_node = max_per_node_;
  traffic.now = context_.clock.Wall();
  traffic.longest = longest_;
  std::set<std::string> namespaces = {me.checkpoint->meta.ns};
  for (const CheckpointPtr& c : context_.view.DrainsUnderWay()) {
    Seat seat{c, GetPodWithUid(context_.view, c->meta.ns, c->spec.pod_name, c->spec.pod_uid)};
    if (c->status.phase != api::Phase::kPending) grants_.erase(c->meta.uid);  // seen: the cache speaks for it now
    if (c->status.node_name == me.pod->node_name) traffic.done_here.push_back(c);
    if (!seat.pod) continue;
    const bool granted = UnderWay(*c) || grants_.contains(c->meta.uid) || (c->status.phase == api::Phase::kReady && !Reclaimed(*c));
    const bool here = seat.pod->node_name == me.pod->node_name;
    if (!here && !granted) continue;
    if (here) seat.bytes = ExpectedBytes(context_.view, *seat.pod);
    if (here) namespaces.insert(c->meta.ns);
    (granted ? traffic.granted : traffic.waiting).push_back(std::move(seat));
  }
  for (const std::string& ns : namespaces) {
    for (PdbPtr& budget : context_.view.BudgetsIn(ns)) traffic.budgets.push_back(std::move(budget));
  }
  std::erase_if(grants_, [&](const auto& grant) { return grant.second <= context_.clock.Mono(); });
  return traffic;
}

checkpoint::Admission Gate::Ask(const CheckpointPtr& checkpoint, const PodPtr& pod, std::stop_token stop) {
  const Seat me{checkpoint, pod, ExpectedBytes(context_.view, *pod)};
  {
    std::lock_guard lock(mutex_);
    checkpoint::Admission answer = Admit(me, Look(me));
    if (!answer.granted) return answer;
    grants_[checkpoint->meta.uid] = context_.clock.Mono() + kGrantStands;
  }
  kube::DeleteOptions del;
  del.preconditions.uid = pod->meta.uid;
  kube::CallOptions options;
  options.dry_run = true;
  options.timeout = kDryRunTimeout;
  options.stop = stop;
  const Status evict = context_.client.Evict(pod->meta.ns, pod->meta.name, del, options);
  if (evict.ok()) return {.granted = true, .most = longest_};
  GiveBack(*checkpoint);
  // Our own webhook knows us by name; where it does not, every round would quote the round before.
  if (evict.message().find("denied the request: holdfast:") != std::string::npos) {
    return {.waits_for =
                "Holdfast's eviction webhook holds back Holdfast's own evictions: let --own-user and the webhook's "
                "matchConditions name the controller's account"};
  }
  const bool budget = evict.code() == Code::kResourceExhausted;
  return {.waits_for = (budget ? "PodDisruptionBudget: " : "its eviction would fail: ") + evict.message(), .budget = budget};
}

void Gate::GiveBack(const api::Checkpoint& checkpoint) {
  std::lock_guard lock(mutex_);
  grants_.erase(checkpoint.meta.uid);
}

}  // namespace holdfast::reconcilers::drain
