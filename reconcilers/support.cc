#include "reconcilers/support.h"

#include "api/gpu.h"

namespace holdfast::reconcilers {
namespace {

// A pod gets its GPUs from whoever runs it. Where that is not by CDI, the vendor's own OCI runtime does it, and ours in its place would
// not: so the user says it, by naming our RuntimeClass.
std::optional<std::string> UnsupportedGpu(const kube::Pod& pod) {
  for (const kube::Container* container : pod.LastingContainers()) {
    if (const std::string gpu = api::UnsupportedGpuOf(*container); !gpu.empty()) {
      return "container " + container->name + " has " + gpu + ": of GPUs, only whole NVIDIA ones (nvidia.com/gpu) can be checkpointed";
    }
    if (pod.runtime_class != api::kRuntimeClass && !api::GpuOf(*container).empty()) {
      return "container " + container->name + " has " + api::GpuOf(*container) +
             ": where GPUs are given to pods by CDI, set runtimeClassName: holdfast in its template to protect it";
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> UnsupportedPod(const kube::Pod& pod) {
  if (!pod.meta.Annotation("kubernetes.io/config.mirror").empty()) {
    return "it is a static pod, which the kubelet runs from a file: run it from a Deployment to protect it";
  }
  if (!pod.host_users) return "it runs in a user namespace (hostUsers: false), which CRIU cannot restore: remove hostUsers to protect it";
  if (pod.host_pid)
    return "it shares the node's process ids (hostPID: true), which another node does not have: remove hostPID to protect it";
  return UnsupportedGpu(pod);
}

std::optional<std::string> Unprotected(const kube::Pod& pod) {
  if (auto why = UnsupportedPod(pod)) return why;
  if (pod.runtime_class == api::kRuntimeClass) return std::nullopt;
  if (!pod.runtime_class.empty()) return "it runs under RuntimeClass " + pod.runtime_class;
  return "it was created before it was to be protected, or while Holdfast did not answer: delete it, and the pod that comes instead will "
         "be";
}

std::optional<std::string> UnsupportedHere(const kube::Pod& pod, const kube::Node* node, bool final) {
  if (auto why = UnsupportedPod(pod)) return why;
  if (final && pod.runtime_class != api::kRuntimeClass) {
    return "it runs under RuntimeClass \"" + pod.runtime_class + "\" and would run on after the dump: annotate its owner with " +
           std::string(api::kProtect) + ": \"true\" and restart it to protect it";
  }
  if (!pod.runtime_class.empty() && pod.runtime_class != api::kRuntimeClass) {
    return "it runs under RuntimeClass \"" + pod.runtime_class +
           "\", whose processes CRIU may not reach: use the default RuntimeClass or holdfast";
  }
  if (node == nullptr) return "its node " + pod.node_name + " is not known";
  auto os = node->meta.labels.find("kubernetes.io/os");
  if (os != node->meta.labels.end() && os->second != "linux")
    return "node " + pod.node_name + " runs " + os->second + ", and CRIU exists for Linux only";
  auto ready = node->meta.labels.find(api::kNodeReady);
  if (ready == node->meta.labels.end() || ready->second != "ready") {
    return "node " + pod.node_name + " is not ready for checkpoints (no label " + api::kNodeReady +
           "=ready): see `kubectl -n holdfast-system get pods -o wide` for its agent";
  }
  return std::nullopt;
}

}  // namespace holdfast::reconcilers
