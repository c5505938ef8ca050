"""The validating policies: an agent writes for its own node only, and nobody but the controller writes holdfast.dev/restore."""

import itertools
import json
import subprocess

import pytest
from conftest import SYSTEM, eventually

UNIQUE = itertools.count()
NODE_KEY = "authentication.kubernetes.io/node-name"


def agent(node):
    who = [f"--as=system:serviceaccount:{SYSTEM}:holdfast-agent", "--as-group=system:serviceaccounts", "--as-group=system:authenticated"]
    return who + ([f"--as-user-extra={NODE_KEY}={node}"] if node else [])


CONTROLLER = [f"--as=system:serviceaccount:{SYSTEM}:holdfast-controller", "--as-group=system:serviceaccounts", "--as-group=system:authenticated"]
POD_UID = "uid-of-the-old-pod"
THEIRS = [{"key": "theirs", "effect": "NoSchedule"}, {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]  # the API server adds the second
NODE_SPEC = {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"], "taints": THEIRS}


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

    def in_force():
        answers = (objects.patch("node", "node2", {"metadata": {"labels": {"holdfast.dev/runtime": "ready"}}}, who=agent("node1"), dry=True),
                   objects.status("probe", {"phase": "Ready"}, who=agent("node1"), dry=True),
                   objects.patch("pod", "probe", {"metadata": {"annotations": {"holdfast.dev/restore": "x"}}}, dry=True))
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
CASES = [
    # agent's node, status before, status patch, refused with ("" means accepted)
    ("node1", {}, {"phase": "Freezing", "startedAt": "2026-01-02T03:04:05Z"}, ""),
    ("node1", {"phase": "Storing"}, {"phase": "Ready", "size": {"memory": 1}, "manifest": {"id": "m"}, "containers": [{"name": "c"}], "platform": {"arch": "amd64"}}, ""),
    ("node1", {}, {"phase": "Failed"}, ""),
    ("node1", {"phase": "Storing"}, {"claim": {"podUID": POD_UID, "podName": "web-0"}}, ""),
    ("node1", {"phase": "Storing"}, {"claim": {"podUID": "another"}}, "may claim a checkpoint only for the very pod"),
    ("node1", {"phase": "Ready", "claim": {"podUID": "new"}}, {"claim": None}, "may claim a checkpoint only for the very pod"),
    ("node1", {}, {"phase": "Deleting"}, "Pending, Assigned and Deleting are the controller's"),
    ("node1", {}, {"owner": {"name": "other"}}, "nodeName, podUID, owner and term are the controller's"),
    ("node1", {}, {"nodeName": None}, "nodeName"),
    ("node2", {}, {"phase": "Freezing"}, 'an agent of node "node2" may record only restores'),
    ("node2", {"phase": "Storing"}, {"phase": "Ready", "manifest": {"id": "m"}}, 'an agent of node "node2" may record only restores'),
    ("node2", {"phase": "Ready"}, {"claim": {"podUID": "mine"}}, 'an agent of node "node2" may record only restores'),
    ("node2", {"phase": "Ready", "claim": {"podUID": "u"}}, {"restores": [RESTORED]}, ""),
    ("node2", {"phase": "Ready"}, {"restores": [{**RESTORED, "node": "node1"}]}, "restores of its own node only"),
    ("node2", {"phase": "Ready", "restores": [{**RESTORED, "node": "node1"}]}, {"restores": [{**RESTORED, "node": "node1"}, RESTORED]}, ""),
    ("", {}, {"phase": "Freezing"}, "token names no node"),
]


@pytest.mark.parametrize("node,before,patch,message", CASES, ids=str)
def test_what_an_agent_may_write_into_a_checkpoint(guarded, node, before, patch, message):
    answer = guarded.status(checkpoint(guarded, **before), patch, who=agent(node))
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
