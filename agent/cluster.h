// What the agent asks of the API server. KubeCluster does it; tests have a fake. Every call is bounded by a few seconds.
#pragma once

#include <string>

#include "api/checkpoint.h"
#include "kube/objects.h"

namespace holdfast::agent {

class Cluster {
 public:
  virtual ~Cluster() = default;
  // From the cache of this node's objects; kNotFound only when the cache is complete, else kUnavailable.
  virtual Result<api::Checkpoint> CachedCheckpoint(const std::string& uid) = 0;
  virtual Result<kube::Pod> CachedPod(const std::string& ns, const std::string& name) = 0;
  virtual std::vector<api::Checkpoint> CachedCheckpoints() = 0;
  // From the API server: whether it answers at all, and all of this node.
  virtual Status Probe() = 0;
  virtual Result<std::vector<kube::Pod>> ListPods() = 0;
  virtual Result<std::vector<api::Checkpoint>> ListCheckpoints() = 0;
  // From the API server.
  virtual Result<api::Checkpoint> GetCheckpoint(const std::string& ns, const std::string& name) = 0;
  virtual Result<kube::Pod> GetPod(const std::string& ns, const std::string& name) = 0;
  // Merge patch of status, refused (kConflict) when the object of that name has another uid. `patch` is {"status": …}.
  virtual Status PatchStatus(const std::string& ns, const std::string& name, const std::string& uid, const Json& patch) = 0;
  // Sets status.claim by optimistic lock. True: it is `claim` now. False: somebody else has it.
  virtual Result<bool> Claim(const std::string& ns, const std::string& name, const std::string& uid, const api::Claim& claim) = 0;
  // Into status.restores, one of a pod's uid: "Started" gives way to what came of it, and that stays.
  virtual Status AppendRestore(const std::string& ns, const std::string& name, const std::string& uid, const api::Restore& restore) = 0;
  // Sets this condition of a pod of our node, by its type; nothing: takes it away. kConflict: the pod of that name is another one now.
  virtual Status TellCondition(const kube::Pod& pod, const std::string& type, const std::optional<kube::Condition>& condition) = 0;
  // Events, in the background.
  virtual void PodEvent(bool warning, const std::string& ns, const std::string& name, const std::string& uid, const std::string& reason,
                        const std::string& note) = 0;
  virtual void CheckpointEvent(bool warning, const std::string& ns, const std::string& name, const std::string& uid,
                               const std::string& reason, const std::string& note) = 0;
};

}  // namespace holdfast::agent
