// Keeps the node's label holdfast.dev/runtime and its annotations true to what the installer and the probe found.
#pragma once

#include "agent/installer/installer.h"
#include "agent/kube_cluster.h"

namespace holdfast::agent {

class NodeKeeper {
 public:
  NodeKeeper(Installer& installer, KubeCluster& cluster, std::string node_name, Clock& clock);
  // Installs, probes and labels until `stop`; looks again every minute, sooner while something is in the way.
  void Run(std::stop_token stop);
  bool settled() const { return settled_; }  // it is known whether this node can be used

 private:
  Duration Once(std::stop_token stop);

  Installer& installer_;
  KubeCluster& cluster_;
  const std::string node_name_;
  Clock& clock_;
  std::atomic<bool> settled_ = false;
  std::string told_;  // the last reason that became an event
};

// What the agent applies to its node: these fields and no others of ours.
Json ReadyIntent(const Json& versions);
Json UnsupportedIntent(const std::string& reason);
// A merge patch that takes all of it away again, whoever wrote it.
Json UninstalledPatch();

}  // namespace holdfast::agent
