// The parts of Kubernetes beside the API server and the kubelets (machine.h): workloads, their controllers, the scheduler, and the people
// who use kubectl. Simpler than the real ones: docs/simulation.md.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/sim/api_server.h"
#include "tests/sim/turns.h"

namespace holdfast::sim {

inline constexpr char kUserNamespace[] = "default", kOwnNamespace[] = "holdfast-system";

class Kubernetes {
 public:
  using Tell = std::function<void(const std::string&)>;
  Kubernetes(Turns& turns, ApiServer& server, Tell tell) : turns_(turns), server_(server), tell_(std::move(tell)) {}

  void MakeNode(const std::string& name);
  // `count` Deployments of one pod; of two containers, "main" and "side", where `two(i)` says so.
  // Each pod asks for `mib` of memory; 0: for none.
  void MakeWorkloads(int count, const std::function<bool(int)>& two, int mib = 0);
  // One look of the controllers and of the scheduler at everything.
  void Look();
  // kubectl drain, then uncordon. On a fiber; returns when the node is in use again, or `closing` says so.
  void Drain(const std::string& node, const bool& closing);
  // kubectl drain alone: returns when nothing is left on the node.
  void Empty(const std::string& node, const bool& closing);
  void Cordon(const std::string& node, bool cordoned);
  // kubectl delete pod, with its grace or --force.
  void DeletePod(const std::string& name, bool force);
  std::vector<std::string> PodNames() const;  // that have a node
  // Where the scheduler puts a pod, of the nodes that it fits on; unset: it draws one.
  std::function<std::string(const Json& pod, const std::vector<std::string>& fit)> place;

 private:
  void Replicate(const Json& replica_set);
  void Schedule(const Json& pod);

  Turns& turns_;
  ApiServer& server_;
  const Tell tell_;
};

}  // namespace holdfast::sim
