"""The validating policies: an agent writes for its own node only, nobody but the controller writes holdfast.dev/restore, and the controller
changes nothing of a workload but how many pods it has."""

import itertools
import json
import subprocess

import pytest
from conftest import CHART, SYSTEM, eventually

UNIQUE = itertools.count()
NODE_KEY = "authentication.kubernetes.io/node-name"


def agent(node):
    who = [f"--as=system:serviceaccount:{SYSTEM}:holdfast-agent", "--as-group=system:serviceaccounts", "--as-group=system:authenticated"]
    return who + ([f"--as-user-extra={NODE_KEY}={node}"] if node else [])


CONTROLLER = [f"--as=system:serviceaccount:{SYSTEM}:holdfast-controller", "--as-group=system:serviceaccounts", "--as-group=system:authenticated"]
ACTIVATOR = [f"--as=system:serviceaccount:{SYSTEM}:holdfast-activator", "--as-group=system:serviceaccounts", "--as-group=system:authenticated"]
POD_UID = "uid-of-the-old-pod"
THEIRS = [{"key": "theirs", "effect": "NoSchedule"}, {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]  # the API server adds the second
NODE_SPEC = {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"], "taints": THEIRS}

TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
WORKLOADS = [
    {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}, "annotations": {"theirs": "1"}},
     "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE}}
    for kind in ("Deployment", "StatefulSet")
] + [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "web", "namespace": "default"},
      "spec": {"template": {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}}}]


@pytest.fixture(scope="module")
def guarded(installed, objects):
    """Two nodes, and the policies in force: they are, once an agent is refused what only they refuse."""
    for name in ("node1", "node2"):
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"role": "worker"}, "annotations": {"theirs": "1"}}, "spec": NODE_SPEC}
        assert objects.apply("create", node) == ""
    seen = []
    assert objects.create("Checkpoint", {"podRef": {"name": "probe"}}, name="probe", dry=False) == ""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "namespace": "default"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert objects.apply("create", pod) == ""
    for workload in WORKLOADS:
        assert objects.apply("create", workload) == ""

    def in_force():
        answers = (objects.patch("node", "node2", {"metadata": {"labels": {"holdfast.dev/runtime": "ready"}}}, who=agent("node1"), dry=True),
                   objects.status("probe", {"phase": "Ready"}, who=agent("node1"), dry=True),
                   objects.patch("pod", "probe", {"metadata": {"annotations": {"holdfast.dev/restore": "x"}}}, dry=True),
                   objects.patch("deployment", "web", {"spec": {"paused": True}}, who=CONTROLLER, dry=True))
        seen[:] = answers
        return all("denied request" in answer for answer in answers)

    try:
        eventually("all policies are in force", in_force, 60)
    except AssertionError as late:
        raise AssertionError(f"{late}; the last answers: {seen}") from None
    return objects


def checkpoint(objects, **status):
    name = f"guarded-{next(UNIQUE)}"
    assert objects.create("Checkpoint", {"podRef": {"name": "web-0"}}, name=name, dry=False) == ""
    before = {"phase": "Assigned", "nodeName": "node1", "podUID": POD_UID, "owner": {"kind": "Deployment", "name": "web"}, **status}
    assert objects.status(name, before, who=CONTROLLER) == ""
    return name


RESTORED = {"podName": "web-1", "node": "node2", "outcome": "Restored", "seconds": 0.5}
THEIRS_RAN = {"podName": "web-1", "node": "node1", "outcome": "Failed", "ran": True}


def numbered(of):
    return {**THEIRS_RAN, "podName": f"web-{of}"}


T = "2026-01-02T03:04:05Z"
CASES = [
    # agent's node, status before, status patch, refused with ("" means accepted)
    ("node1", {}, {"phase": "Freezing", "startedAt": "2026-01-02T03:04:05Z"}, ""),
    ("node1", {"phase": "Storing"}, {"phase": "Ready", "size": {"memory": 1}, "manifest": {"id": "m"}, "containers": [{"name": "c"}], "platform": {"arch": "amd64"}}, ""),
    ("node1", {}, {"phase": "Failed"}, ""),
    ("node1", {}, {"phase": "Freezing", "barrier": {"frozenAt": T}}, ""),
    ("node1", {"barrier": {"frozenAt": T}}, {"barrier": {"allFrozenAt": T}}, "barrier.allFrozenAt is the controller's"),
    ("node1", {}, {"barrier": {"frozenAt": T, "allFrozenAt": T}}, "barrier.allFrozenAt is the controller's"),
    ("node1", {"barrier": {"frozenAt": T, "allFrozenAt": T}}, {"barrier": {"dumpedAt": T}}, ""),
    ("node1", {"barrier": {"frozenAt": T, "allFrozenAt": T}}, {"barrier": {"dumpedAt": T, "allDumpedAt": T}}, "barrier.allDumpedAt is the controller's"),
    ("node2", {"phase": "Freezing"}, {"barrier": {"frozenAt": T}}, 'an agent of node "node2" may record only restores'),
    ("node1", {"phase": "Storing"}, {"claim": {"podUID": POD_UID, "podName": "web-0"}}, ""),
    ("node1", {"phase": "Storing"}, {"claim": {"podUID": "another"}}, "may claim a checkpoint only for the very pod"),
    ("node1", {"phase": "Ready", "claim": {"podUID": "new"}}, {"claim": None}, "may claim a checkpoint only for the very pod"),
    ("node1", {}, {"phase": "Deleting"}, "Pending, Assigned and Deleting are the controller's"),
    ("node1", {}, {"owner": {"name": "other"}}, "nodeName, podUID, owner, policy, security and term are the controller's"),
    ("node1", {}, {"deadlineAt": "2100-01-01T00:00:00Z"}, "and so are deadlineAt and queue"),  # hole 5
    ("node1", {}, {"policy": "another"}, "nodeName, podUID, owner, policy, security and term are the controller's"),
    ("node1", {}, {"nodeName": None}, "nodeName"),
    ("node2", {}, {"phase": "Freezing"}, 'an agent of node "node2" may record only restores'),
    ("node2", {"phase": "Storing"}, {"phase": "Ready", "manifest": {"id": "m"}}, 'an agent of node "node2" may record only restores'),
    ("node2", {"phase": "Ready"}, {"claim": {"podUID": "mine"}}, 'an agent of node "node2" may record only restores'),
    ("node2", {"phase": "Ready", "claim": {"podUID": "u"}}, {"restores": [RESTORED]}, ""),
    ("node2", {"phase": "Ready"}, {"restores": [{**RESTORED, "node": "node1"}]}, "restores of its own node only"),
    ("node2", {"phase": "Ready", "restores": [{**RESTORED, "node": "node1"}]}, {"restores": [{**RESTORED, "node": "node1"}, RESTORED]}, ""),
    # Hole 9: what a pod was allowed is the controller's word, so a stolen node cannot make a privileged pod's state pass for another one's.
    ("node1", {"security": {"containers": [{"name": "main", "privileged": True}]}}, {"security": None}, "security and term are the controller's"),
    ("node1", {}, {"security": {"containers": [{"name": "main", "image": "any"}]}}, "security and term are the controller's"),
    # Hole 18: entries of other nodes can be neither taken away nor changed nor put into another order, with or without one of its own.
    ("node2", {"phase": "Ready", "restores": [THEIRS_RAN]}, {"restores": []}, "leaves those of others as they are"),
    ("node2", {"phase": "Ready", "restores": [THEIRS_RAN]}, {"restores": None}, "leaves those of others as they are"),
    ("node2", {"phase": "Ready", "restores": [THEIRS_RAN]}, {"restores": [RESTORED]}, "leaves those of others as they are"),
    ("node2", {"phase": "Ready", "restores": [THEIRS_RAN]}, {"restores": [{**THEIRS_RAN, "node": "node2"}]}, "leaves those of others as they are"),
    ("node2", {"phase": "Ready", "restores": [THEIRS_RAN]}, {"restores": [{**THEIRS_RAN, "outcome": "Restored"}, RESTORED]}, "leaves those of others as they are"),
    ("node2", {"phase": "Ready", "restores": [numbered(0), numbered(1)]}, {"restores": [numbered(1), numbered(0)]}, "leaves those of others as they are"),
    ("node2", {"phase": "Ready", "restores": [numbered(0), numbered(0)]}, {"restores": [numbered(0)]}, "leaves those of others as they are"),
    ("node1", {"phase": "Ready", "restores": [RESTORED]}, {"restores": []}, "leaves those of others as they are"),
    ("node2", {"phase": "Ready", "restores": [THEIRS_RAN, RESTORED]}, {"restores": [THEIRS_RAN, {**RESTORED, "seconds": 1}]}, ""),
    ("node2", {"phase": "Ready", "restores": [RESTORED, THEIRS_RAN]}, {"restores": [THEIRS_RAN]}, ""),
    ("", {}, {"phase": "Freezing"}, "token names no node"),
]


@pytest.mark.parametrize("node,before,patch,message", CASES, ids=str)
def test_what_an_agent_may_write_into_a_checkpoint(guarded, node, before, patch, message):
    answer = guarded.status(checkpoint(guarded, **before), patch, who=agent(node))
    assert (message in answer) if message else (answer == ""), answer


# As many as are kept (kMaxRestores in agent/kube_cluster.cc): the oldest makes room, and only that one, and only for another.
FULL = [numbered(of) for of in range(20)]
ROOM_CASES = {
    "one more": ([*FULL[1:], RESTORED], ""),
    "none for it": (FULL[1:], "leaves those of others as they are"),
    "the newest goes": ([*FULL[:-1], RESTORED], "leaves those of others as they are"),
    "two go": ([*FULL[2:], RESTORED, RESTORED], "leaves those of others as they are"),
}


@pytest.mark.parametrize("case", ROOM_CASES)
def test_hole_18_the_oldest_restore_makes_room_where_the_list_is_full(guarded, case):
    restores, message = ROOM_CASES[case]
    answer = guarded.status(checkpoint(guarded, phase="Ready", restores=FULL), {"restores": restores}, who=agent("node2"))
    assert (message in answer) if message else (answer == ""), answer


def test_an_agent_of_no_node_cannot_use_a_checkpoint_that_has_none(guarded):
    name = f"guarded-{next(UNIQUE)}"
    assert guarded.create("Checkpoint", {"podRef": {"name": "web-0"}}, name=name, dry=False) == ""
    assert "may record only restores" in guarded.status(name, {"phase": "Ready", "nodeName": "node1"}, who=agent("node1"))


def test_the_controller_writes_what_is_its_own(guarded):
    name = checkpoint(guarded, phase="Ready")
    assert guarded.status(name, {"claim": {"podUID": "new", "podName": "web-1"}}, who=CONTROLLER) == ""
    assert guarded.status(name, {"phase": "Deleting"}, who=CONTROLLER) == ""


NODE_CASES = [
    ("node1", {"metadata": {"labels": {"holdfast.dev/runtime": "ready"}, "annotations": {"holdfast.dev/probe": "{}"}}}, ""),
    ("node1", {"metadata": {"labels": {"holdfast.dev/runtime": None}}}, ""),
    ("node1", {"spec": {"taints": [*THEIRS, {"key": "holdfast.dev/reclaim", "effect": "NoSchedule"}]}}, ""),
    ("node1", {"spec": {"taints": THEIRS}}, ""),
    ("node2", {"metadata": {"labels": {"holdfast.dev/runtime": "ready"}}}, 'an agent of node "node2" may not change node "node1"'),
    ("", {"metadata": {"labels": {"holdfast.dev/runtime": "ready"}}}, "may not change node"),
    ("node1", {"metadata": {"labels": {"role": "master"}}}, "only labels under holdfast.dev/"),
    ("node1", {"metadata": {"labels": {"role": None}}}, "only labels under holdfast.dev/"),
    ("node1", {"metadata": {"labels": {"evil-holdfast.dev/x": "1"}}}, "only labels under holdfast.dev/"),
    ("node1", {"metadata": {"annotations": {"theirs": "2"}}}, "only annotations under holdfast.dev/"),
    ("node1", {"metadata": {"finalizers": ["example.org/mine"]}}, "finalizers and owners"),
    ("node1", {"spec": {"unschedulable": True}}, "nothing in a node's spec but taints under holdfast.dev/"),
    ("node1", {"spec": {"taints": None}}, "nothing in a node's spec but taints under holdfast.dev/"),
    ("node1", {"spec": {"taints": [*THEIRS, {"key": "mine", "effect": "NoExecute"}]}}, "nothing in a node's spec but taints under holdfast.dev/"),
]


@pytest.mark.parametrize("node,patch,message", NODE_CASES, ids=str)
def test_what_an_agent_may_change_on_a_node(guarded, node, patch, message):
    answer = guarded.patch("node", "node1", patch, who=agent(node))
    assert (message in answer) if message else (answer == ""), answer


def test_an_agent_applies_its_label_to_its_own_node_and_makes_none(guarded):
    def label(name, uid):
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": uid, "labels": {"holdfast.dev/runtime": "ready"}}}
        flags = ("--server-side", "--force-conflicts", "--field-manager=holdfast-agent")
        return guarded.apply("apply", node, who=(*agent("node1"), *flags))

    uid = guarded.get("node", "node1")["metadata"]["uid"]
    assert label("node1", uid) == ""
    assert guarded.get("node", "node1")["metadata"]["labels"] == {"role": "worker", "holdfast.dev/runtime": "ready"}
    assert "may not change node" in label("node2", guarded.get("node", "node2")["metadata"]["uid"])
    assert label("gone", uid) != ""
    assert "not found" in guarded.patch("node", "gone", {})


def test_others_change_nodes_as_always(guarded):
    assert guarded.patch("node", "node1", {"metadata": {"labels": {"role": "worker"}}, "spec": {"unschedulable": True}}) == ""
    assert guarded.patch("node", "node1", {"spec": {"unschedulable": None}}) == ""


def test_the_restore_annotation_is_the_controllers(guarded):
    def annotate(value, key="holdfast.dev/restore", who=(), **options):
        return guarded.patch("pod", "probe", {"metadata": {"annotations": {key: value}}}, who=who, **options)

    assert "holdfast.dev/restore is set by Holdfast with the claim" in annotate("mine")
    assert annotate("mine", key="holdfast.dev/protect") == ""
    assert annotate("drain-web-0", who=CONTROLLER) == ""
    assert annotate("anything", key="example.org/note") == ""
    assert "is set by Holdfast" in annotate("another")
    assert "is set by Holdfast" in annotate(None)
    assert "is set by Holdfast" in annotate("another", subresource="status")


IDLE = {"type": "holdfast.dev/Idle", "status": "True", "reason": "Idle", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}
POD_CASES = [
    ("node1", {"status": {"conditions": [IDLE]}}, ""),
    ("node1", {"status": {"conditions": [{**IDLE, "status": "Unknown", "message": "why"}]}}, ""),
    ("node2", {"status": {"conditions": [IDLE]}}, 'an agent of node "node2" may write only the status of pods on its own node'),
    ("", {"status": {"conditions": [IDLE]}}, "may write only the status of pods on its own node"),
    ("node1", {"status": {"conditions": [READY]}}, "only the condition holdfast.dev/Idle"),
    ("node1", {"status": {"conditions": [IDLE, {**IDLE, "type": "holdfast.dev/Other"}]}}, "only the condition holdfast.dev/Idle"),
    ("node1", {"status": {"phase": "Failed"}}, "only the condition holdfast.dev/Idle"),
    ("node1", {"status": {"podIP": "10.0.0.1"}}, "only the condition holdfast.dev/Idle"),
    ("node1", {"metadata": {"annotations": {"holdfast.dev/idle-watch": "{}"}}, "status": {"conditions": [IDLE]}}, "labels, annotations, finalizers and owners"),
    ("node1", {"metadata": {"labels": {"app": "web"}}, "status": {"conditions": [IDLE]}}, "labels, annotations, finalizers and owners"),
]


@pytest.fixture(scope="module")
def on_node1(guarded):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "on-node1", "namespace": "default"},
           "spec": {"nodeName": "node1", "containers": [{"name": "c", "image": "i"}]}}
    assert guarded.apply("create", pod) == ""
    return guarded


@pytest.mark.parametrize("node,patch,message", POD_CASES, ids=str)
def test_what_an_agent_may_say_of_a_pod(on_node1, node, patch, message):
    pod = {"apiVersion": "v1", "kind": "Pod", **patch, "metadata": {"name": "on-node1", "namespace": "default", **patch.get("metadata", {})}}
    flags = ("--server-side", "--force-conflicts", "--field-manager=holdfast-agent", "--subresource=status")
    answer = on_node1.apply("apply", pod, who=(*agent(node), *flags), dry=True)
    assert (message in answer) if message else (answer == ""), answer


IMAGE = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "evil"}]}}}}
ONLY_SIZE = "may change only replicas (of a Job: suspend)"
WORKLOAD_CASES = [
    ("deployment", {"spec": {"replicas": 0}, "metadata": {"annotations": {"holdfast.dev/asleep": "{}"}}}, ""),
    ("deployment", {"spec": {"replicas": 3}, "metadata": {"annotations": {"holdfast.dev/asleep": None}}}, ""),
    ("deployment", {"metadata": {"annotations": {"holdfast.dev/suspend-undone": "x"}}}, ""),
    ("statefulset", {"spec": {"replicas": 0}}, ""),
    ("job", {"spec": {"suspend": True}}, ""),
    ("job", {"spec": {"suspend": False}}, ""),
    ("deployment", IMAGE, "may change only replicas (of a Job: suspend), not: template"),
    ("statefulset", IMAGE, ONLY_SIZE),
    ("deployment", {"spec": {"paused": True}}, ONLY_SIZE),
    ("job", {"spec": {"parallelism": 9}}, ONLY_SIZE),
    ("deployment", {"metadata": {"annotations": {"theirs": "2"}}}, "only its own annotations"),
    ("deployment", {"metadata": {"annotations": {"theirs": None}}}, "only its own annotations"),
    ("deployment", {"metadata": {"annotations": {"holdfast.dev/protect": "false"}}}, "only its own annotations"),
    ("deployment", {"metadata": {"labels": {"app": "other"}}}, "labels, finalizers and owners"),
    ("deployment", {"metadata": {"finalizers": ["example.org/mine"]}}, "labels, finalizers and owners"),
    ("deployment", {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u"}]}}, "labels, finalizers and owners"),
]


@pytest.mark.parametrize("kind,patch,message", WORKLOAD_CASES, ids=str)
def test_what_the_controller_may_change_on_a_workload(guarded, kind, patch, message):
    answer = guarded.patch(kind, "web", patch, who=CONTROLLER)
    assert (message in answer) if message else (answer == ""), answer


def test_others_change_workloads_as_always(guarded):
    assert guarded.patch("deployment", "web", {"spec": {"paused": True}}, dry=True) == ""


def bare_pod(name, runtime_class="holdfast", **meta):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", **meta},
            "spec": {**({"runtimeClassName": runtime_class} if runtime_class else {}), "containers": [{"name": "c", "image": "i"}]}}


def test_the_controller_makes_and_deletes_only_bare_pods_of_ours(guarded, installed):
    only = ("--show-only", "templates/policies.yaml", "--set", "suspend.barePods=true")
    policies = installed.helm("template", "holdfast", str(CHART), "--namespace", SYSTEM, *only).stdout
    mine = "\n---\n".join(p for p in policies.split("\n---\n") if "name: holdfast-controller-pods" in p)
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "bare-pods"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "holdfast-controller", "namespace": SYSTEM}]}
    assert installed.kubectl("apply", "-f", "-", stdin=mine).returncode == 0
    assert guarded.apply("create", role) == ""
    ours = {"annotations": {"holdfast.dev/resumed-by": "nb"}}
    owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "u"}]
    try:
        eventually("the policy is in force", lambda: "RuntimeClass holdfast" in guarded.apply("create", bare_pod("x", None, **ours), who=CONTROLLER, dry=True))
        assert "resumed-by" in guarded.apply("create", bare_pod("x"), who=CONTROLLER, dry=True)
        assert "that nothing owns" in guarded.apply("create", bare_pod("x", ownerReferences=owner, **ours), who=CONTROLLER, dry=True)
        assert guarded.apply("create", bare_pod("lab", **ours), who=CONTROLLER) == ""
        assert guarded.apply("create", bare_pod("theirs", None)) == "", "others make pods as always"
        done = installed.kubectl("delete", "pod", "theirs", *CONTROLLER)
        assert done.returncode != 0 and "RuntimeClass holdfast" in done.stderr, done.stderr
        assert installed.kubectl("delete", "pod", "lab", *CONTROLLER).returncode == 0
    finally:
        installed.kubectl("delete", "-f", "-", stdin=mine)
        installed.kubectl("delete", "clusterrolebinding", "bare-pods")
        installed.kubectl("delete", "pod", "theirs", "--ignore-not-found")


def endpoint_slice(name, manager="holdfast.dev", owner="SuspendedWorkload", port=20001):
    owners = [{"apiVersion": "holdfast.dev/v1alpha1", "kind": owner, "name": "nb", "uid": "uid-of-nb", "controller": True}]
    return {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": name, "namespace": "default", "ownerReferences": owners,
                         "labels": {"kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": manager}},
            "endpoints": [{"addresses": ["10.1.0.7"]}], "ports": [{"name": "http", "port": port, "protocol": "TCP"}]}


def test_the_controller_writes_only_slices_that_lead_to_the_activator(guarded, installed):
    eventually("the policy is in force", lambda: "denied request" in guarded.apply("create", endpoint_slice("x", manager="me"), who=CONTROLLER, dry=True))
    assert guarded.apply("create", endpoint_slice("web-holdfast"), who=CONTROLLER) == ""
    assert guarded.patch("endpointslice", "web-holdfast", {"endpoints": [{"addresses": ["10.1.0.8"]}]}, who=CONTROLLER) == ""
    assert "owned by a SuspendedWorkload" in guarded.apply("create", endpoint_slice("x", owner="Checkpoint"), who=CONTROLLER, dry=True)
    assert "only to the activator's ports" in guarded.apply("create", endpoint_slice("x", port=6443), who=CONTROLLER, dry=True)
    relabel = {"metadata": {"labels": {"endpointslice.kubernetes.io/managed-by": "me"}}}
    assert "managed-by: holdfast.dev" in guarded.patch("endpointslice", "web-holdfast", relabel, who=CONTROLLER)
    assert guarded.apply("create", endpoint_slice("theirs", manager="me")) == "", "others write slices as always"
    steal = {"endpoints": [{"addresses": ["10.1.0.8"]}], **relabel, "metadata": {"labels": {"endpointslice.kubernetes.io/managed-by": "holdfast.dev"}}}
    assert "managed-by: holdfast.dev" in guarded.patch("endpointslice", "theirs", steal, who=CONTROLLER)
    done = installed.kubectl("delete", "endpointslice", "theirs", *CONTROLLER)
    assert done.returncode != 0 and "managed-by: holdfast.dev" in done.stderr
    assert installed.kubectl("delete", "endpointslice", "web-holdfast", *CONTROLLER).returncode == 0


def test_the_activator_wakes_and_changes_nothing_else(guarded):
    spec = {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "state": "Suspended"}
    assert guarded.create("SuspendedWorkload", spec, name="waker", dry=False) == ""

    def patch(change, **more):
        return guarded.patch("suspendedworkloads.holdfast.dev", "waker", change, who=ACTIVATOR, **more)

    eventually("the policy is in force", lambda: "denied request" in patch({"spec": {"onDelete": "Keep"}}, dry=True))
    for change in ({"spec": {"state": "Running", "onDelete": "Keep"}}, {"spec": {"schedule": {"suspend": "0 20 * * *"}}}, {"spec": {"state": "Suspended"}, "metadata": {"labels": {"a": "b"}}}):
        assert "nothing of a SuspendedWorkload but spec.state" in patch(change, dry=True), change
    for change in ({"labels": {"a": "b"}}, {"annotations": {"a": "b"}}, {"finalizers": ["a.b/c"]}):
        assert "labels, annotations, finalizers and owners" in patch({"metadata": change, "spec": {"state": "Running"}}, dry=True), change
    assert patch({"spec": {"state": "Running"}}) == ""
    assert "nothing of a SuspendedWorkload but spec.state" in patch({"spec": {"state": "Suspended"}}), "to put to sleep is not its to do"


def test_a_real_agent_token_carries_its_node(guarded, installed):
    """Not impersonated: a token bound to a pod, as the kubelet mounts it, says its node under the very key that the policies read."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "holdfast-agent-x", "namespace": SYSTEM},
           "spec": {"nodeName": "node1", "serviceAccountName": "holdfast-agent", "containers": [{"name": "c", "image": "i"}]}}
    assert guarded.apply("create", pod) == ""
    done = installed.kubectl("create", "token", "holdfast-agent", "-n", SYSTEM, "--bound-object-kind=Pod", "--bound-object-name=holdfast-agent-x")
    assert done.returncode == 0, done.stderr
    config = installed.work / "agent.kubeconfig"
    config.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                                  "clusters": [{"name": "c", "cluster": {"server": installed.url, "certificate-authority": str(installed.work / "ca.crt")}}],
                                  "users": [{"name": "u", "user": {"token": done.stdout.strip()}}]}))

    def label(node):
        return subprocess.run([installed.bin / "kubectl", "--kubeconfig", config, "label", "--overwrite", "node", node, "holdfast.dev/runtime=ready"],
                              capture_output=True, text=True, timeout=60)

    assert label("node1").returncode == 0
    refused = label("node2")
    assert refused.returncode != 0 and 'may not change node "node2"' in refused.stderr
