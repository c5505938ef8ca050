// Sees to it that a pod which was replaced does not go on here. A node that was cut off still runs what the cluster has given up, and
// nobody could tell it; so as soon as the API server answers again, and before the kubelet has worked through its own backlog, pods that
// are gone, or that gave their state to another one, are frozen and killed. Until that first look, both may run: see ARCHITECTURE.md.
//
// It also says when a pod has ended: the condition PodEnded of its interval checkpoints, for which a successor may wait.
#pragma once

#include <map>
#include <set>

#include "agent/cluster.h"
#include "agent/layout.h"
#include "agent/node.h"

namespace holdfast::agent {

struct WardenOptions {
  std::string node_name;
  Duration look_every = std::chrono::seconds(1);
  Duration probe_every = std::chrono::seconds(10);      // of the API server, while it answers: as often as the kubelet renews its lease
  Duration probe_lost_every = std::chrono::seconds(1);  // while it does not
  Duration cut_off_after = std::chrono::seconds(20);    // less counts as no loss of contact: nothing is given up so soon
};

// A pod whose containers must not run on, and why.
struct ReplacedPod {
  std::string uid, ns, name, why;
  std::vector<std::string> containers;  // ids
};

// `pods` and `checkpoints`: all of this node, as the API server has them. `cut_off`: this node was out of contact, so what is gone was
// given up without the kubelet's knowing; else a pod that was deleted is the kubelet's, to be ended with grace. Pure.
std::vector<ReplacedPod> FindReplaced(const std::vector<NodeContainer>& containers, const std::vector<kube::Pod>& pods,
                                      const std::vector<api::Checkpoint>& checkpoints, bool cut_off, WallTime now);

class Warden {
 public:
  // `clock`: the API server's (kube/server_time.h), by which its times are compared.
  Warden(WardenOptions options, Layout layout, Node& node, Cluster& cluster, Clock& clock);
  void Run(std::stop_token stop);
  // One round of Run.
  void Look();

 private:
  Status Sweep(bool cut_off);
  Status End(const ReplacedPod& pod);
  bool NewClaims(const std::vector<api::Checkpoint>& checkpoints);
  void Confirm(const std::vector<api::Checkpoint>& checkpoints);
  void LetGo();

  const WardenOptions options_;
  const Layout layout_;
  Node& node_;
  Cluster& cluster_;
  Clock& clock_;
  bool contact_ = false, started_ = true;  // started_: no round of contact was had yet
  MonoTime last_contact_, next_probe_;
  std::set<std::string> claims_;  // uids of checkpoints whose claim was acted upon
  std::set<std::string> ended_;   // pods whose file in Layout::Pods is ours
};

}  // namespace holdfast::agent
