#include "kube/objects.h"

#include <gtest/gtest.h>

namespace holdfast::kube {
namespace {

TEST(Objects, APodKeepsTheConditionsThatOthersThanKubernetesWrite) {
  const Json ours = {{"type", "example.com/Used"}, {"status", "False"}, {"message", "it is not"}},
             ready = {{"type", "Ready"}, {"status", "True"}};
  const Pod pod = Pod::FromJson({{"status", {{"conditions", {ready, ours}}}}});
  ASSERT_EQ(pod.conditions.size(), 1u);
  EXPECT_EQ(pod.conditions[0].type, "example.com/Used");
  EXPECT_EQ(pod.conditions[0].message, "it is not");
  EXPECT_TRUE(pod.ready);
}

TEST(Objects, ReadAPod) {
  Json json = *ParseJson(R"({
    "metadata": {"name": "web-0", "namespace": "ns", "uid": "u", "resourceVersion": "5", "labels": {"a": "b"},
      "ownerReferences": [{"kind": "X", "name": "x"}, {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "s", "controller": true}],
      "deletionTimestamp": "2026-01-02T03:04:05Z"},
    "spec": {"nodeName": "n", "runtimeClassName": "holdfast", "hostUsers": false, "schedulingGates": [{"name": "holdfast.dev/claim"}],
      "containers": [{"name": "main", "image": "i", "resources": {"limits": {"cpu": 2, "memory": "1Gi"}}, "lifecycle": {"preStop": {}},
        "volumeMounts": [{"name": "v", "mountPath": "/data", "readOnly": true}]}],
      "initContainers": [{"name": "side", "restartPolicy": "Always"}],
      "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "emptyDir": {"medium": "Memory"}}]},
    "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
      "conditions": [{"type": "Ready", "status": "True"}],
      "containerStatuses": [{"name": "main", "containerID": "containerd://abc", "ready": true, "restartCount": 2, "state": {"running": {}}},
        {"name": "old", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]}})");
  Pod pod = Pod::FromJson(json);
  EXPECT_EQ(pod.meta.Key(), "ns/web-0");
  ASSERT_NE(pod.meta.Controller(), nullptr);
  EXPECT_EQ(pod.meta.Controller()->name, "web");
  EXPECT_TRUE(pod.meta.terminating());
  EXPECT_FALSE(pod.host_users);
  EXPECT_TRUE(pod.ready);
  EXPECT_EQ(pod.pod_ips.size(), 2u);
  EXPECT_EQ(pod.scheduling_gates, std::vector<std::string>{"holdfast.dev/claim"});
  ASSERT_EQ(pod.containers.size(), 1u);
  EXPECT_EQ(pod.containers[0].limits.at("cpu"), "2");
  EXPECT_TRUE(pod.containers[0].has_pre_stop);
  EXPECT_TRUE(pod.containers[0].mounts[0].read_only);
  EXPECT_TRUE(pod.init_containers[0].restart_always);
  EXPECT_EQ(pod.volumes[0].type, "persistentVolumeClaim");
  EXPECT_EQ(pod.volumes[0].claim_name, "c");
  EXPECT_EQ(pod.volumes[1].medium, "Memory");
  EXPECT_TRUE(pod.container_statuses[0].running);
  EXPECT_EQ(pod.container_statuses[0].container_id, "containerd://abc");
  EXPECT_EQ(pod.container_statuses[1].exit_code, 137);
  EXPECT_EQ(pod.container_statuses[1].reason, "OOMKilled");
}

TEST(Objects, AreEmptyWhenTheInputHasOtherTypes) {
  for (const char* text : {"null", "[]", "1", R"({"metadata": 1, "spec": [], "status": "x"})",
                           R"({"metadata": {"name": 5, "labels": [1], "ownerReferences": {"a": 1}, "finalizers": [1]},
                               "spec": {"containers": [1, null, {"name": {}, "volumeMounts": [null], "resources": 1}], "volumes": [1, {"name": 2, "x": 3}],
                                        "schedulingGates": [1], "taints": ["x"], "podFailurePolicy": {"rules": [1]}},
                               "status": {"conditions": [1, "x"], "containerStatuses": [7], "addresses": [null], "podIPs": [1]},
                               "data": {"a": 1, "b": "not base64 *"}})"}) {
    Json json = *ParseJson(text);
    EXPECT_EQ(Pod::FromJson(json).meta.name, "");
    EXPECT_EQ(Node::FromJson(json).kubelet_port, 10250);
    EXPECT_EQ(Deployment::FromJson(json).replicas, 1);
    EXPECT_FALSE(Job::FromJson(json).finished);
    EXPECT_TRUE(Secret::FromJson(json).data.empty());
    EXPECT_EQ(Namespace::FromJson(json).meta.uid, "");
  }
}

TEST(Objects, ReadAJobsFailurePolicy) {
  Json job = *ParseJson(R"({"spec": {"suspend": true, "backoffLimit": 0, "podFailurePolicy": {"rules": [
    {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}},
    "status": {"conditions": [{"type": "Complete", "status": "True"}]}})");
  Job read = Job::FromJson(job);
  EXPECT_TRUE(read.ignores_disruption_target);
  EXPECT_TRUE(read.suspended);
  EXPECT_TRUE(read.finished);
  EXPECT_EQ(read.backoff_limit, 0);
}

TEST(Objects, DecodeASecret) { EXPECT_EQ(Secret::FromJson({{"data", {{"tls.crt", "aGVsbG8="}}}}).data.at("tls.crt"), "hello"); }

TEST(ObjectKey, GoesThereAndBack) {
  EXPECT_EQ(ObjectKey::Parse("ns/name").ns, "ns");
  EXPECT_EQ(ObjectKey::Parse("name").ToString(), "name");
}

}  // namespace
}  // namespace holdfast::kube
