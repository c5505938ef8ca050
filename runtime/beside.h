// The other containers of a pod: native sidecars, ephemeral ones, those that a checkpoint leaves out. They stand still while the pod's
// volumes are read or filled: of what they would write meanwhile, half would be seen.
//
// A note for each (/run/holdfast/beside/<container id>) says that it was frozen for this, before it is: whoever is killed in between leaves
// it to ThawLeft.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/freezer.h"
#include "runtime/node.h"

namespace holdfast::runtime {

struct PodContainer {
  std::string id, name;
};
// Those that runc knows of this pod, its sandbox excepted.
std::vector<PodContainer> ContainersOfPod(const std::string& runc_root, const std::string& pod_uid);

// Frozen for as long as the object lives. The pod's lock is held meanwhile.
class HeldBeside {
 public:
  HeldBeside(const Node& node, std::string runc_root, std::string pod_uid)
      : node_(node), runc_root_(std::move(runc_root)), pod_uid_(std::move(pod_uid)) {}
  HeldBeside(const HeldBeside&) = delete;
  HeldBeside& operator=(const HeldBeside&) = delete;
  ~HeldBeside() { Thaw(); }

  // Freezes all but `except`. Returns why some of them run on, in words; empty when none does. That is no reason to give up what they are
  // frozen for: files are read and written by descriptors.
  std::string Freeze(const std::vector<std::string>& except, MonoTime until);
  void Thaw();

 private:
  const Node& node_;
  const std::string runc_root_, pod_uid_;
  std::vector<std::pair<std::string, Freezer>> held_;  // by container id
};

// Thaws what a dump or restore that was killed has left frozen: of pods of which none is at work now, and of `locked`, whose lock the
// caller holds. A failure says which container stays frozen.
Status ThawLeft(const Node& node, const std::string& locked = "");
bool IsHeldBeside(const Node& node, const std::string& container_id);
Status ForgetBeside(const Node& node, const std::string& container_id);

}  // namespace holdfast::runtime
