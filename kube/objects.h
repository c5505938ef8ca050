// The built-in kinds that controllers read, projected to what they need. Each has kResource, FromJson (never throws, missing fields are
// empty) and meta; those of which a cluster has many have Share, which caches call to store equal texts once. Add a field when someone
// reads it.
#pragma once

#include <optional>

#include "kube/conditions.h"
#include "kube/resource.h"

namespace holdfast::kube {

struct ContainerStatus {
  SharedString name, container_id, image, image_id;  // container_id: "containerd://…"
  bool running = false, terminated = false, ready = false;
  int restart_count = 0;
  int exit_code = 0;
  SharedString reason;  // of waiting or terminated
};

struct VolumeMount {
  SharedString name, mount_path;
  bool read_only = false;
};

struct Container {
  SharedString name, image;
  StringMap limits, requests;
  std::vector<VolumeMount> mounts;
  // What of its security context, and of its pod's, decides what its processes may do: JSON in Kubernetes' words, equal for equal contexts.
  // Empty: nothing is said.
  SharedString security;
  bool has_pre_stop = false, has_post_start = false;
  bool restart_always = false;   // a native sidecar among the init containers
  int32_t liveness_seconds = 0;  // so long it may leave its liveness probe without an answer and is not restarted; 0: it has none
};

struct Volume {
  SharedString name;
  SharedString type;        // key of the volume source: "emptyDir", "persistentVolumeClaim", "projected", …
  SharedString medium;      // emptyDir
  SharedString claim_name;  // persistentVolumeClaim
};

// Any object reduced to its metadata: Informer<Metadata>(client, Pod::kResource, {}).
struct Metadata {
  static constexpr bool kMetadataOnly = true;
  static Metadata FromJson(const Json& object) { return {ObjectMeta::FromJson(object)}; }
  ObjectMeta meta;
};

struct Pod {
  static const Resource kResource;
  static Pod FromJson(const Json& object);
  void Share(StringPool* pool);
  // Those that run as long as the pod does: native sidecars, in the order in which they start, then the regular ones.
  std::vector<const Container*> LastingContainers() const;
  const ContainerStatus* StatusOf(std::string_view container) const;  // also of an init container; null: none yet
  ObjectMeta meta;
  SharedString node_name, runtime_class, phase, pod_ip, host_ip, qos_class, restart_policy, service_account;
  SharedString status_reason, status_message;
  SharedString unscheduled;  // why no node took it: message of the condition PodScheduled while that is False
  std::vector<std::string> pod_ips;
  std::vector<std::string> scheduling_gates;
  std::vector<Container> containers, init_containers;
  std::vector<ContainerStatus> container_statuses, init_container_statuses;
  std::vector<Volume> volumes;
  std::vector<Condition> conditions;  // not Kubernetes' own: their types have a prefix, as in example.com/Type
  bool host_network = false, host_pid = false, host_ipc = false, host_users = true, share_process_namespace = false, ready = false;
  int64_t termination_grace_seconds = 30;  // a terminating one: what its deletion gives it
  int32_t priority = 0;
};

struct Node {
  static const Resource kResource;
  static Node FromJson(const Json& object);
  ObjectMeta meta;
  bool unschedulable = false, ready = false;
  std::string internal_ip, kernel_version, runtime_version, architecture;
  int32_t kubelet_port = 10250;
  std::vector<std::string> taint_keys;
};

struct Namespace {
  static const Resource kResource;
  static Namespace FromJson(const Json& object);
  ObjectMeta meta;
};

// ReplicaSet, Deployment, StatefulSet and Job look alike to us: metadata, replicas, the pod template's metadata.
struct Workload {
  ObjectMeta meta;
  int64_t replicas = 1, ready_replicas = 0;
  int64_t pods = 0, updated_pods = 0;  // that exist, and of them those of the newest template. Job: status.active, both
  int64_t observed_generation = 0;     // of the status. Job: none
  StringMap template_annotations, template_labels;
  std::string revision;                      // StatefulSet: status.updateRevision
  int64_t backoff_limit = 6, failed = 0;     // Job: spec.backoffLimit, status.failed
  bool ignores_disruption_target = false;    // Job: its podFailurePolicy ignores DisruptionTarget
  bool suspended = false, finished = false;  // Job
  int64_t first_ordinal = 0;                 // StatefulSet: spec.ordinals.start
  bool scaling_deletes_volumes = false;      // StatefulSet: persistentVolumeClaimRetentionPolicy.whenScaled is Delete
  static Workload Read(const Json& object);
};
struct ReplicaSet : Workload {
  static const Resource kResource;
  static ReplicaSet FromJson(const Json& object);
};
struct Deployment : Workload {
  static const Resource kResource;
  static Deployment FromJson(const Json& object);
};
struct StatefulSet : Workload {
  static const Resource kResource;
  static StatefulSet FromJson(const Json& object);
};
struct Job : Workload {
  static const Resource kResource;
  static Job FromJson(const Json& object);
};

struct ServicePort {
  SharedString name, protocol;  // name: empty for a single one
  int32_t port = 0;
};

struct Service {
  static const Resource kResource;
  static Service FromJson(const Json& object);
  ObjectMeta meta;
  SharedString type, cluster_ip, family;  // cluster_ip: "None" when headless; family: of cluster_ip, IPv4 or IPv6
  bool local_only = false;                // internalTrafficPolicy: Local
  StringMap selector;
  std::vector<ServicePort> ports;
};

struct EndpointSlice {
  static const Resource kResource;
  static constexpr char kServiceLabel[] = "kubernetes.io/service-name", kManagerLabel[] = "endpointslice.kubernetes.io/managed-by";
  static EndpointSlice FromJson(const Json& object);
  void Share(StringPool* pool);
  struct Endpoint {
    std::string address;
    bool ready = false;
    bool operator==(const Endpoint&) const = default;
  };
  ObjectMeta meta;
  SharedString service, managed_by;  // from its labels
  SharedString address_type;         // IPv4, IPv6, FQDN
  std::vector<ServicePort> ports;
  std::vector<Endpoint> endpoints;
};

struct Secret {
  static const Resource kResource;
  static Secret FromJson(const Json& object);
  ObjectMeta meta;
  std::map<std::string, std::string> data;  // decoded
};
extern const Resource kConfigMaps, kLeases, kEvents, kTokenReviews, kMutatingWebhooks, kValidatingWebhooks, kRuntimeClasses;

}  // namespace holdfast::kube
