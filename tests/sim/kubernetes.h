// The parts of Kubernetes beside the API server and the kubelets (machine.h): workloads, their controllers, the scheduler, and the people
// who use kubectl. Simpler than the real ones: docs/simulation.md.
#pragma once

#include <functional>
#include <map>
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
  // `count` workloads of any kind (owners.cc), each drawn from its own number: what one is does not depend on how many there are.
  void MakeOwners(int count, uint64_t seed);
  // How many pods there shall be that have not ended.
  int64_t Wanted() const;
  // The user of the pods that nobody owns: makes anew what is gone, mostly from the Checkpoint that it left. On a fiber.
  void TendBarePods(const bool& closing);
  std::function<void(const std::string& uid)> made_without_state;  // by that user
  // One look of the controllers and of the scheduler at everything.
  void Look();
  // kubectl drain, then uncordon. On a fiber; returns when the node is in use again, or `closing` says so.
  void Drain(const std::string& node, const bool& closing);
  // kubectl drain alone: returns when nothing is left on the node.
  void Empty(const std::string& node, const bool& closing);
  // The same, as kubectl does it: each pod that is there is asked for by its name until it is gone, whatever comes under that name.
  void EmptyByName(const std::string& node, const bool& closing);
  void Cordon(const std::string& node, bool cordoned);
  // kubectl delete pod, with its grace or --force.
  void DeletePod(const std::string& name, bool force);
  std::vector<std::string> PodNames() const;  // that have a node
  // Where the scheduler puts a pod, of the nodes that it fits on; unset: it draws one.
  std::function<std::string(const Json& pod, const std::vector<std::string>& fit)> place;

 private:
  struct Bare {
    std::string last;  // uid of its last pod
    MonoTime since;    // when the user saw that it is gone, or waits
  };
  void MakeNamespaces();
  void MakeDeployment(int number, bool two, int mib = 0);
  void MakeStatefulSet(int number, Random& random);
  void MakeJob(int number, Random& random);
  void Replicate(const Json& replica_set);
  void Order(const Json& stateful_set);
  void Work(const Json& job);
  void Schedule(const Json& pod);
  void TendBarePod(const std::string& name, Bare& bare);
  std::vector<ApiServer::Object> PodsOf(const std::string& owner) const;  // uid
  int Ask(const std::string& method, const std::string& path, const Json& body, const std::string& user);

  Turns& turns_;
  ApiServer& server_;
  const Tell tell_;
  std::map<std::string, Bare> bare_;  // by name
};

inline const std::string kPods = "/api/v1/namespaces/" + std::string(kUserNamespace) + "/pods";

}  // namespace holdfast::sim
