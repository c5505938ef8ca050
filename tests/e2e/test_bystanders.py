"""Pods that did not opt in are not touched, and a drain works as always when Holdfast cannot help."""

import json
import shlex

import pytest

import kit
import releases

PLAIN = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: plain}
spec:
  selector: {matchLabels: {app: plain}}
  template:
    metadata: {labels: {app: plain}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: pause, image: "registry.k8s.io/pause:3.10"}]
"""


def test_a_pod_without_the_annotation_is_not_touched(clean_slate):
    kit.apply(PLAIN)
    pod = kit.ready_pod("app=plain")
    assert "runtimeClassName" not in pod["spec"]
    assert not pod["spec"].get("schedulingGates") and not pod["spec"].get("initContainers")
    assert not [a for a in pod["metadata"].get("annotations", {}) if a.startswith("holdfast.dev/")]
    done = kit.drain(pod["spec"]["nodeName"])
    assert "will retry" not in done.output, done.output
    assert kit.checkpoints() == []


def test_a_drain_works_as_always_while_the_controller_is_down(counter, scaled_down):
    old = kit.ready_pod("app=counter")
    scaled_down("deployment", "holdfast-controller")
    kit.drain(old["spec"]["nodeName"], "--timeout=60s")
    new = kit.ready_pod("app=counter", not_uid=old["metadata"]["uid"])
    assert new["spec"]["nodeName"] != old["spec"]["nodeName"]


def test_a_drain_lets_go_after_the_deadline_when_the_store_is_down_and_says_so(counter, scaled_down):
    old = kit.ready_pod("app=counter")
    name = old["metadata"]["name"]
    scaled_down("statefulset", "holdfast-store")
    draining = kit.drain_in_background(old["spec"]["nodeName"])
    output, _ = draining.communicate(timeout=240 * kit.SLOW)
    assert draining.returncode == 0, output
    failed = kit.checkpoints()[0]
    assert failed["status"]["phase"] == "Failed", failed["status"]
    assert kit.ready_reason(failed)[0] in ("StoreUnavailable", "Deadline"), failed["status"]
    notes = [note for reason, note in kit.events(name) if "state" in note.lower()]
    assert notes, f"no event says that the state was not kept: {kit.events(name)}"
    kit.ready_pod("app=counter", not_uid=old["metadata"]["uid"])


def test_a_full_store_lets_the_pod_go_with_an_event_that_says_so(counter):
    store = kit.get("statefulset", "holdfast-store", ns=kit.SYSTEM)
    args = store["spec"]["template"]["spec"]["containers"][0]["args"]
    small = [a for a in args if not a.startswith("--max-bytes")] + ["--max-bytes=10000000"]

    def set_args(value):
        patch = [{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": value}]
        kit.kubectl("patch", "statefulset/holdfast-store", "-n", kit.SYSTEM, "--type=json", "-p", json.dumps(patch))
        kit.kubectl("rollout", "status", "statefulset/holdfast-store", "-n", kit.SYSTEM, "--timeout=90s")

    old = kit.ready_pod("app=counter")
    set_args(small)
    try:
        draining = kit.drain_in_background(old["spec"]["nodeName"])
        output, _ = draining.communicate(timeout=150 * kit.SLOW)
        assert draining.returncode == 0, output
    finally:
        set_args(args)
    failed = kit.checkpoints()[0]
    assert kit.ready_reason(failed)[0] == "StoreFull", failed["status"]
    assert [n for _, n in kit.events(old["metadata"]["name"]) if "state" in n.lower()], kit.events(old["metadata"]["name"])


def test_a_pod_admitted_while_the_webhook_was_down_is_reported_as_a_cold_start(counter, scaled_down):
    old = kit.ready_pod("app=counter")
    kit.apply("""
apiVersion: holdfast.dev/v1alpha1
kind: Checkpoint
metadata: {name: last-words}
spec: {podRef: {name: %s}, final: true}
""" % old["metadata"]["name"])
    kit.wait("the checkpoint", lambda: kit.get("checkpoints.holdfast.dev", "last-words").get("status", {}).get("phase") == "Ready")
    nonce, last = next((n, r["last"]) for n, r in counter.report().items())
    back_up = scaled_down("deployment", "holdfast-controller")
    kit.kubectl("delete", "pod", old["metadata"]["name"], "--wait=true")
    cold = kit.ready_pod("app=counter", not_uid=old["metadata"]["uid"])
    assert "holdfast.dev/restore" not in cold["metadata"].get("annotations", {})
    back_up()
    note = kit.wait_event(cold["metadata"]["name"], "ColdStart", limit=60)
    assert "last-words" in note, note
    assert kit.wait_event("last-words", "ColdStart")
    kit.wait("the checkpoint is pinned", lambda: kit.get("checkpoints.holdfast.dev", "last-words")["spec"].get("pinned"))
    # By itself nothing brings it back: what the cold pod did since would be undone.
    kit.kubectl("delete", "pod", cold["metadata"]["name"], "--wait=true")
    next_one = kit.ready_pod("app=counter", not_uid=cold["metadata"]["uid"])
    assert "holdfast.dev/restore" not in next_one["metadata"].get("annotations", {})
    assert "passed over" in kit.wait_event(next_one["metadata"]["name"], "ColdStart")
    # The command that the event names does.
    command = shlex.split(note[note.index("kubectl "):])
    kit.kubectl(*command[1:])
    kit.wait("a pod that has the state", lambda: [p for p in kit.pods("app=counter")
                                                  if p["metadata"].get("annotations", {}).get("holdfast.dev/restore") == "last-words"])
    kit.wait("the first counter goes on", lambda: counter.report()[nonce]["last"] > last)


def test_a_drain_works_as_always_after_holdfast_was_uninstalled(counter):
    """`helm uninstall` with protected pods running: drains go on, pods start anew, and it can be installed again."""
    old = kit.ready_pod("app=counter")
    kit.run(kit.CLUSTER / "helm", "uninstall", "holdfast", "-n", kit.SYSTEM, "--wait", timeout=180)
    try:
        assert kit.ready_pod("app=counter")["metadata"]["uid"] == old["metadata"]["uid"], "uninstalling touched a pod"
        kit.drain(old["spec"]["nodeName"], "--timeout=60s")
        kit.ready_pod("app=counter", not_uid=old["metadata"]["uid"])
        for node in kit.WORKERS:
            assert kit.LANDING_MEMORY not in kit.on_node(node, "cat", "/proc/self/mountinfo"), "the agent's mount stayed"
    finally:
        releases.install_again()
