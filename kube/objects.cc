#include "kube/objects.h"

#include <algorithm>
#include <limits>

#include "kube/base64.h"

namespace holdfast::kube {
namespace {

// Quantities may be written as numbers in JSON: `cpu: 2`.
StringMap ReadQuantities(const Json& object) {
  StringMap out;
  out.reserve(object.size());
  for (const auto& [key, value] : object.items()) {
    if (value.is_string()) out[key] = value.get<std::string>();
    if (value.is_number()) out[key] = value.dump();
  }
  return out;
}

void ShareAll(StringPool* pool, std::initializer_list<SharedString*> texts) {
  for (SharedString* text : texts) pool->Share(text);
}

int32_t GetInt32(const Json& json, JsonPath path, int32_t otherwise = 0) {
  int64_t value = GetInt(json, path, otherwise);
  return static_cast<int32_t>(std::clamp<int64_t>(value, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
}

// Whether status.conditions has `type` with status True.
bool HasCondition(const Json& object, std::string_view type) {
  for (const Json& condition : GetArray(object, {"status", "conditions"})) {
    if (GetString(condition, {"type"}) == type) return GetString(condition, {"status"}) == "True";
  }
  return false;
}

// The message of a condition that is False.
std::string MessageOfFalse(const Json& object, std::string_view type) {
  for (const Json& condition : GetArray(object, {"status", "conditions"})) {
    if (GetString(condition, {"type"}) == type && GetString(condition, {"status"}) == "False") return GetString(condition, {"message"});
  }
  return "";
}

// The container's own word comes before its pod's.
std::string ReadSecurity(const Json& own, const Json& pod) {
  Json out = Json::object();
  for (const char* key : {"runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile", "appArmorProfile", "seLinuxOptions"}) {
    const Json* said = Find(own, {key});
    if (said == nullptr || said->is_null()) said = Find(pod, {key});
    if (said != nullptr && !said->is_null()) out[key] = *said;
  }
  for (const char* key : {"privileged", "allowPrivilegeEscalation", "readOnlyRootFilesystem", "procMount", "capabilities"}) {
    if (const Json* said = Find(own, {key}); said != nullptr && !said->is_null()) out[key] = *said;
  }
  for (const char* key : {"fsGroup", "supplementalGroups"}) {
    if (const Json* said = Find(pod, {key}); said != nullptr && !said->is_null()) out[key] = *said;
  }
  return out.empty() ? "" : DumpJson(out);
}

// From a probe that just misses an answer to the one after which the kubelet acts.
int32_t ReadLivenessSeconds(const Json& probe) {
  if (probe.empty()) return 0;
  auto number = [&](const char* key, int64_t otherwise) {
    const int64_t said = GetInt(probe, {key}, otherwise);
    return std::clamp<int64_t>(said > 0 ? said : otherwise, 1, 100'000);
  };
  const int64_t between = (number("failureThreshold", 3) - 1) * number("periodSeconds", 10);
  return static_cast<int32_t>(std::min<int64_t>(between + number("timeoutSeconds", 1), 1'000'000'000));
}

Container ReadContainer(const Json& json, const Json& pod_security) {
  Container container;
  container.name = GetString(json, {"name"});
  container.image = GetString(json, {"image"});
  container.limits = ReadQuantities(GetObject(json, {"resources", "limits"}));
  container.requests = ReadQuantities(GetObject(json, {"resources", "requests"}));
  container.mounts.reserve(GetArray(json, {"volumeMounts"}).size());
  for (const Json& mount : GetArray(json, {"volumeMounts"})) {
    container.mounts.push_back({GetString(mount, {"name"}), GetString(mount, {"mountPath"}), GetBool(mount, {"readOnly"})});
  }
  container.security = ReadSecurity(GetObject(json, {"securityContext"}), pod_security);
  container.has_pre_stop = Find(json, {"lifecycle", "preStop"}) != nullptr;
  container.has_post_start = Find(json, {"lifecycle", "postStart"}) != nullptr;
  container.liveness_seconds = ReadLivenessSeconds(GetObject(json, {"livenessProbe"}));
  container.restart_always = GetString(json, {"restartPolicy"}) == "Always";
  return container;
}

std::vector<Container> ReadContainers(const Json& array, const Json& pod_security) {
  std::vector<Container> out;
  out.reserve(array.size());
  for (const Json& json : array) out.push_back(ReadContainer(json, pod_security));
  return out;
}

std::vector<ContainerStatus> ReadContainerStatuses(const Json& array) {
  std::vector<ContainerStatus> out;
  out.reserve(array.size());
  for (const Json& json : array) {
    ContainerStatus status;
    status.name = GetString(json, {"name"});
    status.container_id = GetString(json, {"containerID"});
    status.image = GetString(json, {"image"});
    status.image_id = GetString(json, {"imageID"});
    status.ready = GetBool(json, {"ready"});
    status.restart_count = GetInt32(json, {"restartCount"});
    status.running = Find(json, {"state", "running"}) != nullptr;
    status.terminated = Find(json, {"state", "terminated"}) != nullptr;
    status.exit_code = GetInt32(json, {"state", "terminated", "exitCode"});
    status.reason =
        status.terminated ? GetString(json, {"state", "terminated", "reason"}) : GetString(json, {"state", "waiting", "reason"});
    out.push_back(std::move(status));
  }
  return out;
}

Volume ReadVolume(const Json& json) {
  Volume volume;
  volume.name = GetString(json, {"name"});
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) {
      if (key != "name" && value.is_object()) volume.type = key;
    }
  }
  volume.medium = GetString(json, {"emptyDir", "medium"});
  volume.claim_name = GetString(json, {"persistentVolumeClaim", "claimName"});
  return volume;
}

std::vector<ServicePort> ReadPorts(const Json& array) {
  std::vector<ServicePort> out;
  out.reserve(array.size());
  for (const Json& port : array) out.push_back({GetString(port, {"name"}), GetString(port, {"protocol"}, "TCP"), GetInt32(port, {"port"})});
  return out;
}

template <class T>
T ReadWorkload(const Json& object) {
  T out;
  static_cast<Workload&>(out) = Workload::Read(object);
  return out;
}

}  // namespace

const Resource Pod::kResource{"", "v1", "pods", "Pod", true};
const Resource Node::kResource{"", "v1", "nodes", "Node", false};
const Resource Namespace::kResource{"", "v1", "namespaces", "Namespace", false};
const Resource ReplicaSet::kResource{"apps", "v1", "replicasets", "ReplicaSet", true};
const Resource Deployment::kResource{"apps", "v1", "deployments", "Deployment", true};
const Resource StatefulSet::kResource{"apps", "v1", "statefulsets", "StatefulSet", true};
const Resource Job::kResource{"batch", "v1", "jobs", "Job", true};
const Resource Service::kResource{"", "v1", "services", "Service", true};
const Resource EndpointSlice::kResource{"discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true};
const Resource Secret::kResource{"", "v1", "secrets", "Secret", true};
const Resource kConfigMaps{"", "v1", "configmaps", "ConfigMap", true};
const Resource kLeases{"coordination.k8s.io", "v1", "leases", "Lease", true};
const Resource kEvents{"events.k8s.io", "v1", "events", "Event", true};
const Resource kTokenReviews{"authentication.k8s.io", "v1", "tokenreviews", "TokenReview", false};
const Resource kMutatingWebhooks{"admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration",
                                 false};
const Resource kValidatingWebhooks{"admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations",
                                   "ValidatingWebhookConfiguration", false};
const Resource kRuntimeClasses{"node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", false};

Pod Pod::FromJson(const Json& object) {
  const Json& spec = GetObject(object, {"spec"});
  const Json& status = GetObject(object, {"status"});
  Pod pod;
  pod.meta = ObjectMeta::FromJson(object);
  pod.node_name = GetString(spec, {"nodeName"});
  pod.runtime_class = GetString(spec, {"runtimeClassName"});
  pod.restart_policy = GetString(spec, {"restartPolicy"});
  pod.service_account = GetString(spec, {"serviceAccountName"});
  pod.host_network = GetBool(spec, {"hostNetwork"});
  pod.host_pid = GetBool(spec, {"hostPID"});
  pod.host_ipc = GetBool(spec, {"hostIPC"});
  pod.host_users = GetBool(spec, {"hostUsers"}, true);
  pod.share_process_namespace = GetBool(spec, {"shareProcessNamespace"});
  pod.termination_grace_seconds =
      GetInt(object, {"metadata", "deletionGracePeriodSeconds"}, GetInt(spec, {"terminationGracePeriodSeconds"}, 30));
  pod.priority = GetInt32(spec, {"priority"});
  for (const Json& gate : GetArray(spec, {"schedulingGates"})) pod.scheduling_gates.push_back(GetString(gate, {"name"}));
  const Json& security = GetObject(spec, {"securityContext"});
  pod.containers = ReadContainers(GetArray(spec, {"containers"}), security);
  pod.init_containers = ReadContainers(GetArray(spec, {"initContainers"}), security);
  pod.volumes.reserve(GetArray(spec, {"volumes"}).size());
  for (const Json& volume : GetArray(spec, {"volumes"})) pod.volumes.push_back(ReadVolume(volume));
  pod.phase = GetString(status, {"phase"});
  pod.pod_ip = GetString(status, {"podIP"});
  pod.host_ip = GetString(status, {"hostIP"});
  pod.qos_class = GetString(status, {"qosClass"});
  pod.status_reason = GetString(status, {"reason"});
  pod.status_message = GetString(status, {"message"});
  for (const Json& ip : GetArray(status, {"podIPs"})) pod.pod_ips.push_back(GetString(ip, {"ip"}));
  pod.container_statuses = ReadContainerStatuses(GetArray(status, {"containerStatuses"}));
  pod.init_container_statuses = ReadContainerStatuses(GetArray(status, {"initContainerStatuses"}));
  pod.ready = HasCondition(object, "Ready");
  pod.unscheduled = MessageOfFalse(object, "PodScheduled");
  for (const Json& condition : GetArray(status, {"conditions"})) {
    if (GetString(condition, {"type"}).find('/') != std::string::npos) pod.conditions.push_back(Condition::FromJson(condition));
  }
  return pod;
}

std::vector<const Container*> Pod::LastingContainers() const {
  std::vector<const Container*> lasting;
  for (const Container& container : init_containers) {
    if (container.restart_always) lasting.push_back(&container);
  }
  for (const Container& container : containers) lasting.push_back(&container);
  return lasting;
}

const ContainerStatus* Pod::StatusOf(std::string_view container) const {
  for (const auto* statuses : {&container_statuses, &init_container_statuses}) {
    for (const ContainerStatus& status : *statuses) {
      if (status.name == container) return &status;
    }
  }
  return nullptr;
}

// Not what each pod has for itself: its address, the ids of its containers.
void Pod::Share(StringPool* pool) {
  meta.Share(pool);
  ShareAll(pool,
           {&node_name, &runtime_class, &phase, &host_ip, &qos_class, &restart_policy, &service_account, &status_reason, &unscheduled});
  for (std::vector<Container>* list : {&containers, &init_containers}) {
    for (Container& container : *list) {
      ShareAll(pool, {&container.name, &container.image, &container.security});
      container.limits.Share(pool);
      container.requests.Share(pool);
      for (VolumeMount& mount : container.mounts) ShareAll(pool, {&mount.name, &mount.mount_path});
    }
  }
  for (std::vector<ContainerStatus>* list : {&container_statuses, &init_container_statuses}) {
    for (ContainerStatus& status : *list) ShareAll(pool, {&status.name, &status.image, &status.image_id, &status.reason});
  }
  for (Condition& condition : conditions) condition.Share(pool);
  for (Volume& volume : volumes) ShareAll(pool, {&volume.name, &volume.type, &volume.medium});
}

Node Node::FromJson(const Json& object) {
  Node node;
  node.meta = ObjectMeta::FromJson(object);
  node.unschedulable = GetBool(object, {"spec", "unschedulable"});
  for (const Json& taint : GetArray(object, {"spec", "taints"})) node.taint_keys.push_back(GetString(taint, {"key"}));
  node.ready = HasCondition(object, "Ready");
  for (const Json& address : GetArray(object, {"status", "addresses"})) {
    if (GetString(address, {"type"}) == "InternalIP" && node.internal_ip.empty()) node.internal_ip = GetString(address, {"address"});
  }
  node.kernel_version = GetString(object, {"status", "nodeInfo", "kernelVersion"});
  node.runtime_version = GetString(object, {"status", "nodeInfo", "containerRuntimeVersion"});
  node.architecture = GetString(object, {"status", "nodeInfo", "architecture"});
  node.kubelet_port = GetInt32(object, {"status", "daemonEndpoints", "kubeletEndpoint", "Port"}, 10250);
  return node;
}

Namespace Namespace::FromJson(const Json& object) { return {ObjectMeta::FromJson(object)}; }

Workload Workload::Read(const Json& object) {
  Workload workload;
  workload.meta = ObjectMeta::FromJson(object);
  workload.replicas = GetInt(object, {"spec", "replicas"}, 1);
  workload.ready_replicas = GetInt(object, {"status", "readyReplicas"});
  const int64_t active = GetInt(object, {"status", "active"});
  workload.pods = GetInt(object, {"status", "replicas"}, active);
  workload.updated_pods = GetInt(object, {"status", "updatedReplicas"}, active);
  workload.observed_generation = GetInt(object, {"status", "observedGeneration"});
  workload.scaling_deletes_volumes = GetString(object, {"spec", "persistentVolumeClaimRetentionPolicy", "whenScaled"}) == "Delete";
  workload.template_annotations = ReadStrings(GetObject(object, {"spec", "template", "metadata", "annotations"}));
  workload.template_labels = ReadStrings(GetObject(object, {"spec", "template", "metadata", "labels"}));
  workload.first_ordinal = GetInt(object, {"spec", "ordinals", "start"});
  workload.revision = GetString(object, {"status", "updateRevision"});
  workload.backoff_limit = GetInt(object, {"spec", "backoffLimit"}, 6);
  workload.failed = GetInt(object, {"status", "failed"});
  workload.suspended = GetBool(object, {"spec", "suspend"});
  workload.finished = HasCondition(object, "Complete") || HasCondition(object, "Failed");
  // The first rule that matches decides, but a rule that only looks at exit codes cannot match a pod that was evicted while it ran.
  for (const Json& rule : GetArray(object, {"spec", "podFailurePolicy", "rules"})) {
    for (const Json& pattern : GetArray(rule, {"onPodConditions"})) {
      if (GetString(pattern, {"type"}) == "DisruptionTarget" && GetString(pattern, {"status"}, "True") == "True") {
        workload.ignores_disruption_target = GetString(rule, {"action"}) == "Ignore";
        return workload;
      }
    }
  }
  return workload;
}

ReplicaSet ReplicaSet::FromJson(const Json& object) { return ReadWorkload<ReplicaSet>(object); }
Deployment Deployment::FromJson(const Json& object) { return ReadWorkload<Deployment>(object); }
StatefulSet StatefulSet::FromJson(const Json& object) { return ReadWorkload<StatefulSet>(object); }
Job Job::FromJson(const Json& object) { return ReadWorkload<Job>(object); }

Service Service::FromJson(const Json& object) {
  const Json& spec = GetObject(object, {"spec"});
  Service service;
  service.meta = ObjectMeta::FromJson(object);
  service.type = GetString(spec, {"type"}, "ClusterIP");
  service.cluster_ip = GetString(spec, {"clusterIP"});
  service.family = service.cluster_ip.view().find(':') == std::string_view::npos ? "IPv4" : "IPv6";
  service.local_only = GetString(spec, {"internalTrafficPolicy"}) == "Local";
  service.selector = ReadStrings(GetObject(spec, {"selector"}));
  service.ports = ReadPorts(GetArray(spec, {"ports"}));
  return service;
}

EndpointSlice EndpointSlice::FromJson(const Json& object) {
  EndpointSlice slice;
  slice.meta = ObjectMeta::FromJson(object);
  slice.service = GetString(object, {"metadata", "labels", kServiceLabel});
  slice.managed_by = GetString(object, {"metadata", "labels", kManagerLabel});
  slice.address_type = GetString(object, {"addressType"});
  slice.ports = ReadPorts(GetArray(object, {"ports"}));
  for (const Json& endpoint : GetArray(object, {"endpoints"})) {
    const Json& addresses = GetArray(endpoint, {"addresses"});
    if (addresses.empty() || !addresses[0].is_string()) continue;  // the others are equivalent
    slice.endpoints.push_back({addresses[0].get<std::string>(), GetBool(endpoint, {"conditions", "ready"}, true)});
  }
  return slice;
}

void EndpointSlice::Share(StringPool* pool) {
  meta.Share(pool);
  ShareAll(pool, {&managed_by, &address_type});
  for (ServicePort& port : ports) ShareAll(pool, {&port.name, &port.protocol});
}

Secret Secret::FromJson(const Json& object) {
  Secret secret;
  secret.meta = ObjectMeta::FromJson(object);
  for (const auto& [key, value] : GetObject(object, {"data"}).items()) {
    if (!value.is_string()) continue;
    if (auto decoded = DecodeBase64(value.get<std::string>())) secret.data[key] = std::move(*decoded);
  }
  return secret;
}

}  // namespace holdfast::kube
