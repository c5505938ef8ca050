// Who asks for a workload that sleeps is led to the activator: what comes next for that, from what is seen of the world. Pure.
//
// Each TCP port of spec.resume.onRequest.service gets a port of the activator, which stands for it and for nothing else; that is recorded
// in status.onRequest before anything leads there, and stays as long as the object asks for it. While the workload sleeps, and until it
// runs again with a ready endpoint of its own, an EndpointSlice of that Service has the ready activators as its endpoints.
#pragma once

#include <optional>
#include <set>

#include "reconcilers/suspendedworkload/target.h"
#include "reconcilers/view.h"

namespace holdfast::reconcilers::onrequest {

using ServicePtr = std::shared_ptr<const kube::Service>;
using SlicePtr = std::shared_ptr<const kube::EndpointSlice>;

inline constexpr char kCondition[] = "OnRequest";

// TCP ports of an activator, first to last; count 0: there is no activator.
struct PortRange {
  int32_t first = 0, count = 0;
  bool Has(int32_t number) const { return number >= first && number - first < count; }
  std::string ToString() const { return std::to_string(first) + "-" + std::to_string(first + count - 1); }
};
// "20000-21999". Nothing: malformed, backwards, or not within 1024-65535.
std::optional<PortRange> ParsePortRange(std::string_view text);

struct World {
  SuspendedPtr object;
  WorkloadPtr target;                   // null: there is none
  PortRange range;                      // of the activator
  ServicePtr service;                   // spec.resume.onRequest.service; null: there is none
  SlicePtr slice;                       // the object's own, of status.onRequest.service; null: there is none
  std::vector<std::string> activators;  // addresses of those that are ready, of the Service's family; sorted
  std::string rival;                    // another object that asks for the same Service, and came first; empty: none
  std::set<int32_t> taken;              // the numbers of all other objects
  std::set<int32_t> taken_earlier;      // of them those of objects that came first: of two that have the same one these keep it
  bool own_endpoint = false;            // the Service has a ready endpoint that is no activator
};

enum class Action { kNothing, kPatchStatus, kWriteSlice, kDeleteSlice };

struct Step {
  Action action = Action::kNothing;
  Json patch{};       // of kPatchStatus
  Json slice{};       // of kWriteSlice: labels, owner, endpoints and ports of it
  bool live = false;  // to be decided again on what the API server has now: numbers are given out, or the slice goes
  std::string why{};
  std::optional<Duration> again{};
};

Step Next(const World& seen, WallTime now);

// Of the slice that stands for a Service: one a Service.
std::string SliceName(std::string_view service);

}  // namespace holdfast::reconcilers::onrequest
