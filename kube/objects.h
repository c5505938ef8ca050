// The built-in kinds that controllers read, projected to what they need. Each has kResource, FromJson (never throws, missing fields are
// empty) and meta; those of which a cluster has many have Share, which caches call to store equal texts once. Add a field when someone
// reads it.
#pragma once

#include <optional>

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
  bool has_pre_stop = false, restart_always = false;  // restart_always: a native sidecar among the init containers
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
  ObjectMeta meta;
  SharedString node_name, runtime_class, phase, pod_ip, host_ip, qos_class, restart_policy, service_account;
  SharedString status_reason, status_message;
  std::vector<std::string> pod_ips;
  std::vector<std::string> scheduling_gates;
  std::vector<Container> containers, init_containers;
  std::vector<ContainerStatus> container_statuses, init_container_statuses;
  std::vector<Volume> volumes;
  bool host_network = false, host_pid = false, host_users = true, share_process_namespace = false, ready = false;
  int64_t termination_grace_seconds = 30;
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
  StringMap template_annotations, template_labels;
  std::string revision;                      // StatefulSet: status.updateRevision
  int64_t backoff_limit = 6, failed = 0;     // Job: spec.backoffLimit, status.failed
  bool ignores_disruption_target = false;    // Job: its podFailurePolicy ignores DisruptionTarget
  bool suspended = false, finished = false;  // Job
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

struct Secret {
  static const Resource kResource;
  static Secret FromJson(const Json& object);
  ObjectMeta meta;
  std::map<std::string, std::string> data;  // decoded
};
extern const Resource kConfigMaps, kLeases, kEvents, kTokenReviews, kMutatingWebhooks, kValidatingWebhooks, kRuntimeClasses;

}  // namespace holdfast::kube
