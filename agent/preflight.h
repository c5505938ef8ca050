// May this pod be checkpointed, and as what? Decided from the API's objects alone, before anything is frozen.
#pragma once

#include "agent/journal.h"
#include "api/checkpoint.h"
#include "kube/objects.h"

namespace holdfast::agent {

struct Preflight {
  std::string reason;   // empty: go; kWaiting: not yet, ask again; else the condition's reason
  std::string message;  // what to do about it
  bool stock = false;   // the pod is not under our RuntimeClass
  std::vector<JournalContainer> containers;
  std::vector<JournalContainer> waiting;  // that have never run (api/pod.h)
  std::vector<std::string> volumes;
};

// `pod` null: the API server has no such pod.
Preflight Check(const api::Checkpoint& checkpoint, const kube::Pod* pod, const std::string& node_name);

// Empty when the pod's containers are still those of `entry`; else why not.
std::string Replaced(const JournalEntry& entry, const kube::Pod& pod);

}  // namespace holdfast::agent
