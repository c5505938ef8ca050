// Whose pod is this, is it protected, and by which policy.
#pragma once

#include "reconcilers/view.h"

namespace holdfast::reconcilers {

struct Lineage {
  api::Owner owner;        // the top owner; for a bare pod the pod itself
  std::string parent_uid;  // uid of the pod's own controller: all pods of one ReplicaSet share it
  WorkloadPtr workload;    // the owner, when it is a kind that we know
  bool complete = true;    // false: an owner could not be read, so annotations may have been missed
};

// `ns` is given apart, since a pod in an admission request may not carry its own yet. `live`: see View::GetWorkload.
Lineage Trace(const View& view, const kube::Pod& pod, const std::string& ns, Duration live = Duration(0));

struct Protection {
  bool on = false;
  PolicyPtr policy;     // never null: the built-in one where none is named
  std::string problem;  // a malformed annotation: what it is and what to write instead; then `on` is false
};

// The nearest word wins: an annotation of the pod, then of its owner, then a RestorePolicy whose selector matches, then a SuspendedWorkload
// that names its owner, then an annotation of the namespace. holdfast.dev/protect: "false" switches off what stands further away.
Protection ProtectionOf(const View& view, const kube::Pod& pod, const std::string& ns, const Lineage& lineage);

// holdfast.dev/containers of the pod or its owner, split; empty: the default.
std::vector<std::string> WantedContainers(const kube::Pod& pod, const Lineage& lineage);

// Same owner, same template, same ordinal: a checkpoint of one is a checkpoint for the other.
bool SameSeat(const api::Owner& a, const api::Owner& b);

}  // namespace holdfast::reconcilers
