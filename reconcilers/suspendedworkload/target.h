// The kinds that can sleep, made alike: how large one is, whether it is stopped, and the patches that stop and start it. Each patch carries
// the mark of api::kAsleep with it, so a workload never is stopped by us without saying so, nor the other way round. A bare pod is a
// workload of one; it is stopped by its deletion and started by being made again, and while it sleeps it is what its SuspendedWorkload
// keeps of it.
#pragma once

#include "kube/client.h"
#include "reconcilers/view.h"

namespace holdfast::reconcilers::suspendedworkload {

bool IsPod(const api::SuspendedWorkload& object);  // it names a bare pod
// How many pods it is to have now. Of a Job: how many it has.
int64_t SizeOf(const api::SuspendedWorkload& object, const kube::Workload& target);
// Scaled to 0, or spec.suspend. By whomever.
bool Stopped(const api::SuspendedWorkload& object, const kube::Workload& target);

// Merge patches.
Json StopPatch(const api::SuspendedWorkload& object, const api::Asleep& mark);
Json StartPatch(const api::SuspendedWorkload& object, int64_t replicas);
Json UnmarkPatch();
// What is still to come of a suspension that is taken back finds another version, and is refused.
Json FencePatch(const api::SuspendedWorkload& object);
bool Fenced(const api::SuspendedWorkload& object, const kube::Workload& target);

const kube::Resource* ResourceOf(std::string_view kind);  // null: not one that can sleep
// The pod of that name, or null, as the workload that it is; null: there is none, and none is kept.
WorkloadPtr AsWorkload(const api::SuspendedWorkload& object, const kube::Pod* pod);
// As the API server has it; null: there is none.
Result<WorkloadPtr> ReadTarget(kube::Client& client, const api::SuspendedWorkload& object, std::stop_token stop);

// What an hour costs; nothing: it is not told of this.
struct Prices {
  std::optional<double> cpu{}, memory_gib{}, gpu{};  // of one CPU, of one GiB, of one GPU
  std::string currency = "USD";
  bool any() const { return cpu || memory_gib || gpu; }
};
// "0.04": a decimal number from 0 to 999999999, written without sign and exponent. Nothing: it is none.
std::optional<double> ParsePrice(std::string_view text);

// What pods ask the scheduler for: {"cpu": "1500m", "memory": "360Mi", "gpu": "1", "costPerHour": "0.0618 USD"}; what none asks for is left
// out, and so is the cost where there are no prices.
Json Requests(const std::vector<PodPtr>& pods, const Prices& prices = {});

}  // namespace holdfast::reconcilers::suspendedworkload
