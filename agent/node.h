// What the agent does to containers on its node. HostNode runs holdfast-runc in the node's mount namespace; tests have a fake.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/status.h"

namespace holdfast::agent {

enum class ContainerState { kGone, kStopped, kRunning, kPaused };

struct NodeContainer {
  std::string id, pod_uid, ns, pod, container;
  bool ours = false;  // made by holdfast-runc: its pod is under our RuntimeClass
};

class Node {
 public:
  virtual ~Node() = default;
  // Bytes that a dump of these containers, and of folders beside them, would take now. An error: not known.
  virtual Result<uint64_t> Estimate(const std::vector<std::string>& container_ids, const std::vector<std::string>& folders) = 0;
  // Starts `holdfast-runc dump <landing>` so that it outlives this process. Its progress is told by DumpRunning and result.json.
  virtual Status StartDump(const std::string& checkpoint_uid, const std::string& landing) = 0;
  // `pod_uid`: a dump that the kubelet asked for holds only the pod's lock.
  virtual bool DumpRunning(const std::string& checkpoint_uid, const std::string& pod_uid) = 0;
  // SIGKILL to the dump and its children. OK when none runs.
  virtual Status KillDump(const std::string& checkpoint_uid) = 0;
  // OK when the container runs, is stopped or is gone afterwards. Intents must be out of the way.
  virtual Status Resume(const std::string& container_id) = 0;
  virtual Result<ContainerState> StateOf(const std::string& container_id) = 0;
  // All containers of pods that the runtime has, running or not; no sandboxes.
  virtual Result<std::vector<NodeContainer>> Containers() = 0;
  // Freezes them all, then kills them. OK when none of them runs afterwards.
  virtual Status End(const std::vector<std::string>& container_ids) = 0;
  // Removes a container that a killed `create` left in runc; OK when there is none.
  virtual Status RemoveContainer(const std::string& container_id) = 0;
  // The digests by which the node knows the image that a container is being made of: of its manifest, and of its configuration. An error:
  // not known here.
  virtual Result<std::vector<std::string>> ImageDigests(const std::string& /*container_id*/) {
    return Status(Code::kUnsupported, "this node does not tell");
  }
  // Last lines of what the dump process wrote, for messages.
  virtual std::string DumpOutput(const std::string& checkpoint_uid) = 0;
  // {arch, kernel, runtime, criu, cpuFeatures}: goes into Checkpoint.status.platform.
  virtual Json Platform() = 0;
};

// POST /checkpoint on this node's kubelet.
class Kubelet {
 public:
  virtual ~Kubelet() = default;
  // The path on the node of the archive that the kubelet wrote. kUnsupported: the kubelet or the runtime cannot checkpoint. kUnavailable,
  // kDeadlineExceeded, kCancelled: it did not answer, and may write the archive all the same.
  virtual Result<std::string> Checkpoint(const std::string& ns, const std::string& pod, const std::string& container, Duration timeout,
                                         std::stop_token stop) = 0;
};

}  // namespace holdfast::agent
