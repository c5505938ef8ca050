#include "agent/preflight.h"

#include <algorithm>
#include <array>

#include "api/gpu.h"
#include "api/pod.h"
#include "base/file.h"

namespace holdfast::agent {
namespace {

// They hold connections of the pod's network that are worth nothing elsewhere, and start again on their own.
constexpr std::array<std::string_view, 5> kMeshSidecars = {"istio-proxy", "linkerd-proxy", "kuma-sidecar", "consul-dataplane",
                                                           "envoy-sidecar"};
constexpr std::string_view kContainerdScheme = "containerd://";

Preflight Refuse(const std::string& reason, const std::string& message) {
  Preflight result;
  result.reason = reason;
  result.message = message;
  return result;
}

std::string IdOf(const kube::ContainerStatus& status) {
  return status.container_id.starts_with(kContainerdScheme) ? status.container_id.substr(kContainerdScheme.size()) : "";
}

std::string DigestOf(const std::string& image_id) {
  size_t at = image_id.find("sha256:");
  return at == std::string::npos ? "" : image_id.substr(at);
}

Preflight CheckPlatform(const api::Checkpoint& checkpoint, const kube::Pod& pod) {
  const bool ours = pod.runtime_class == api::kRuntimeClass;
  if (!pod.host_users) {
    return Refuse(api::reason::kUnsupported,
                  "the pod runs in a user namespace (spec.hostUsers: false), which CRIU cannot restore into another pod");
  }
  if (!ours && !pod.runtime_class.empty()) {
    return Refuse(api::reason::kUnsupported,
                  "the pod runs under RuntimeClass \"" + pod.runtime_class + "\"; only \"holdfast\" and runc can be checkpointed");
  }
  if (!ours && !checkpoint.spec.cut.none()) {
    return Refuse(api::reason::kUnsupported,
                  "the pod is a member of group " + checkpoint.spec.cut.group +
                      " and runs under plain runc, so it cannot be held still for the others; restart it while its owner is annotated "
                      "holdfast.dev/protect: \"true\"");
  }
  if (!ours && checkpoint.spec.final) {
    return Refuse(api::reason::kUnsupported,
                  "the pod runs under plain runc, so it cannot be kept frozen; restart it while its owner is annotated "
                  "holdfast.dev/protect: \"true\"");
  }
  if (!pod.meta.Annotation("kubernetes.io/config.mirror").empty()) {
    return Refuse(api::reason::kUnsupported, "static pods are started by the kubelet and cannot be restored elsewhere");
  }
  for (const kube::Container* one : pod.LastingContainers()) {
    const kube::Container& container = *one;
    const std::string gpu = ours ? api::UnsupportedGpuOf(container) : api::GpuOf(container);
    if (!gpu.empty()) {
      return Refuse(api::reason::kUnsupported, "container " + container.name + " uses " + gpu +
                                                   "; of GPUs, only whole NVIDIA ones (nvidia.com/gpu) of pods with runtimeClassName: "
                                                   "holdfast can be checkpointed");
    }
  }
  return {};
}

}  // namespace

Preflight Check(const api::Checkpoint& checkpoint, const kube::Pod* pod, const std::string& node_name) {
  const std::string& wanted = checkpoint.status.pod_uid.empty() ? checkpoint.spec.pod_uid : checkpoint.status.pod_uid;
  const std::string who = "pod " + checkpoint.meta.ns + "/" + checkpoint.spec.pod_name;
  if (pod == nullptr) return Refuse(api::reason::kPodGone, who + " does not exist any more");
  if (pod->meta.uid != wanted) return Refuse(api::reason::kPodReplaced, who + " has uid " + pod->meta.uid + ", not " + wanted);
  if (pod->node_name != node_name) return Refuse(api::reason::kPodGone, who + " is not on node " + node_name);
  if (pod->phase == "Succeeded" || pod->phase == "Failed") return Refuse(api::reason::kPodGone, who + " has ended (" + pod->phase + ")");
  const bool on_stop = checkpoint.spec.trigger == api::Trigger::kStop;
  if (pod->meta.terminating() && !on_stop) return Refuse(api::reason::kPodGone, who + " is being deleted");
  if (on_stop && !pod->meta.terminating()) return Refuse(api::reason::kWaiting, who + " is not being deleted, as far as is known here");
  if (!IsSafeName(pod->meta.uid) || !IsSafeName(checkpoint.meta.uid)) return Refuse(api::reason::kUnsupported, "a uid is no file name");
  Preflight result = CheckPlatform(checkpoint, *pod);
  if (!result.reason.empty()) return result;
  result.stock = pod->runtime_class != api::kRuntimeClass;

  const bool in_part = checkpoint.spec.final && api::RunsInPart(*pod);
  const std::vector<const kube::Container*> lasting = pod->LastingContainers();
  for (const std::string& name : checkpoint.spec.containers) {
    bool exists = std::any_of(lasting.begin(), lasting.end(), [&](const kube::Container* c) { return c->name == name; });
    if (!exists) return Refuse(api::reason::kUnsupported, who + " has no container " + name);
  }
  for (const kube::Container* one : lasting) {
    const kube::Container& container = *one;
    const auto& chosen = checkpoint.spec.containers;
    const bool sidecar = std::find(kMeshSidecars.begin(), kMeshSidecars.end(), container.name) != kMeshSidecars.end();
    const bool wanted_container = chosen.empty() ? !sidecar : std::find(chosen.begin(), chosen.end(), container.name) != chosen.end();
    if (!wanted_container) continue;
    const kube::ContainerStatus* status = pod->StatusOf(container.name);
    if (status != nullptr && status->terminated) {
      return Refuse(api::reason::kUnsupported, "container " + container.name + " has ended and has no memory to keep");
    }
    if (status == nullptr || !status->running) {
      if (!in_part) return Refuse(api::reason::kWaiting, "container " + container.name + " is not running yet");
      if (IsSafeName(container.name)) result.waiting.push_back({container.name, "", container.image, ""});
      continue;
    }
    const std::string id = IdOf(*status);
    if (!IsSafeName(id)) {
      return Refuse(api::reason::kUnsupported, "container " + container.name + " is not run by containerd (" + status->container_id + ")");
    }
    if (!IsSafeName(container.name)) return Refuse(api::reason::kUnsupported, "a container's name is no file name");
    result.containers.push_back({container.name, id, status->image.empty() ? container.image : status->image, DigestOf(status->image_id)});
  }
  if (result.containers.empty()) return Refuse(api::reason::kUnsupported, who + " has no container to checkpoint");
  for (const kube::Volume& volume : pod->volumes) {
    if (volume.type == "emptyDir" && IsSafeName(volume.name)) result.volumes.push_back(volume.name);
  }
  return result;
}

std::string Replaced(const JournalEntry& entry, const kube::Pod& pod) {
  if (pod.meta.uid != entry.pod_uid) return "pod " + entry.ns + "/" + entry.pod + " was replaced during the checkpoint";
  for (const JournalContainer& container : entry.containers) {
    const kube::ContainerStatus* status = pod.StatusOf(container.name);
    if (status == nullptr || IdOf(*status) != container.id) return "container " + container.name + " was restarted during the checkpoint";
  }
  return "";
}

}  // namespace holdfast::agent
