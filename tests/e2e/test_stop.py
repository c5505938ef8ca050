"""Pods that something else than a drain stops: dumped in place of their signal, when their owner makes them anew."""

import contextlib

import pytest

import kit
import leaks
import releases
from test_workloads import assert_all_kept


@pytest.fixture
def on_stop(clean_slate):
    with releases.switched("checkpointOnStop", True, False):
        yield


def stopped(uid):
    """The checkpoint that was made of this pod because it was stopped."""
    return [c for c in kit.checkpoints() if c["spec"]["trigger"] == "Stop" and c["spec"]["podRef"]["uid"] == uid]


def goes_on(witness, old, limit=90):
    new = kit.ready_pod("app=counter", not_uid=old["metadata"]["uid"], limit=limit)
    witness.wait_progress(60)
    assert_all_kept(witness)
    made = stopped(old["metadata"]["uid"])
    assert len(made) == 1 and made[0]["status"]["phase"] == "Ready", made
    assert made[0]["status"]["claim"]["podUID"] == new["metadata"]["uid"], made[0]["status"]
    return new


PREEMPTOR = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent}
value: 1000
---
apiVersion: v1
kind: Pod
metadata: {name: urgent}
spec:
  priorityClassName: urgent
  nodeSelector: {kubernetes.io/hostname: %(node)s}
  containers:
    - name: main
      image: registry.k8s.io/pause:3.10
      resources: {requests: {cpu: %(milli)dm}}
"""


def millis(cpu):
    return int(cpu.removesuffix("m")) if cpu.endswith("m") else int(float(cpu) * 1000)


@contextlib.contextmanager
def preempted_by_another(pod):
    """A pod of higher priority comes that fits on this one's node only without it."""
    node = pod["spec"]["nodeName"]
    here = [p for p in kit.get("pods", ns=None) if p["spec"].get("nodeName") == node and p["status"]["phase"] == "Running"]
    asked = sum(millis(c.get("resources", {}).get("requests", {}).get("cpu", "0")) for p in here for c in p["spec"]["containers"])
    free = millis(kit.get("nodes", node)["status"]["allocatable"]["cpu"]) - asked
    kit.apply(PREEMPTOR % {"node": node, "milli": free + 10})
    try:
        yield
        kit.wait("the other one runs in its place", lambda: kit.get("pods", "urgent")["spec"].get("nodeName") == node)
    finally:
        kit.kubectl("delete", "pod/urgent", "priorityclass/urgent", "--ignore-not-found", "--wait=false")


def test_a_stopped_pod_goes_on_in_the_one_that_its_owner_makes_in_its_place(on_stop):
    witness = kit.start_counter(kit.counter_yaml())
    pod = kit.ready_pod("app=counter")
    kit.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")
    pod = goes_on(witness, pod)
    node = pod["spec"]["nodeName"]
    kit.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--disable-eviction", timeout=150)
    pod = goes_on(witness, pod)
    kit.kubectl("uncordon", node)
    node = pod["spec"]["nodeName"]
    kit.kubectl("taint", "node", node, "example.com/maintenance=now:NoExecute")
    try:
        pod = goes_on(witness, pod)
    finally:
        kit.kubectl("taint", "node", node, "example.com/maintenance-")
    with preempted_by_another(pod):
        pod = goes_on(witness, pod)
    # The agent dies with its intents written: holdfast-runc waits for the dump of the next one.
    node = pod["spec"]["nodeName"]
    kit.arm_fault(node, "agent.intent_written")
    kit.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")
    pod = goes_on(witness, pod, limit=120)
    kit.assert_fault_hit(node, "agent.intent_written")
    # Nobody wants it back.
    kit.kubectl("scale", "deployment/counter", "--replicas=0")
    kit.wait("the pod is gone", lambda: not kit.pods("app=counter"), limit=40)
    assert not stopped(pod["metadata"]["uid"])
    kit.wait("nothing is left on the nodes", lambda: not leaks.on_nodes(), limit=30)


def test_without_a_store_a_stopped_pod_gets_its_signal_and_its_successor_says_so(on_stop, scaled_down):
    kit.start_counter(kit.counter_yaml())
    old = kit.ready_pod("app=counter")
    scaled_down("statefulset", "holdfast-store")
    kit.kubectl("delete", "pod", old["metadata"]["name"], "--wait=false")
    new = kit.ready_pod("app=counter", not_uid=old["metadata"]["uid"], limit=120)
    note = kit.wait_event(new["metadata"]["name"], "ColdStart")
    assert "store" in note, note
