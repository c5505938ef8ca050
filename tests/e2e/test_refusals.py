"""What cannot work is refused before anything is frozen, and says what to do."""

import pytest

import kit

POD = """
apiVersion: v1
kind: Pod
metadata:
  name: %(name)s
  annotations: {holdfast.dev/protect: "true"}
spec:
  terminationGracePeriodSeconds: 1
  %(extra)s
  containers: [{name: pause, image: "registry.k8s.io/pause:3.10"}]
"""

CHECKPOINT = """
apiVersion: holdfast.dev/v1alpha1
kind: Checkpoint
metadata: {name: %(name)s}
spec: %(spec)s
"""


def test_a_pod_with_user_namespaces_is_unsupported_with_the_reason(clean_slate):
    kit.apply(POD % {"name": "usernsed", "extra": "hostUsers: false"})
    kit.wait("the pod exists", lambda: kit.get("pod", "usernsed")["spec"].get("nodeName"))
    kit.apply(CHECKPOINT % {"name": "no-userns", "spec": "{podRef: {name: usernsed}, final: true}"})
    failed = kit.ended("no-userns")
    reason, message = kit.ready_reason(failed)
    assert reason in ("Unsupported", "Waiting"), failed["status"]
    assert "user namespace" in message.lower(), message
    assert kit.wait_event("usernsed", "Unsupported")


def test_a_final_checkpoint_of_a_pod_under_another_runtime_class_is_unsupported(clean_slate):
    kit.apply(POD.replace('annotations: {holdfast.dev/protect: "true"}', "labels: {app: other}") % {"name": "other", "extra": ""})
    kit.ready_pod("app=other")
    kit.apply(CHECKPOINT % {"name": "not-ours", "spec": "{podRef: {name: other}, final: true}"})
    reason, message = kit.ready_reason(kit.ended("not-ours"))
    assert reason == "Unsupported" and "restart" in message, message


def test_an_unknown_pod_fails_with_pod_gone(clean_slate):
    kit.apply(CHECKPOINT % {"name": "nobody", "spec": "{podRef: {name: no-such-pod}}"})
    assert kit.ready_reason(kit.ended("nobody"))[0] == "PodGone"


def test_a_wrong_uid_fails_with_pod_replaced(clean_slate):
    kit.apply(POD.replace("annotations: {", "labels: {app: p}\n  annotations: {") % {"name": "p", "extra": ""})
    kit.ready_pod("app=p")
    kit.apply(CHECKPOINT % {"name": "wrong-uid", "spec": "{podRef: {name: p, uid: 00000000-0000-0000-0000-000000000000}}"})
    assert kit.ready_reason(kit.ended("wrong-uid"))[0] == "PodReplaced"


@pytest.mark.parametrize("spec, says", [
    ("{podRef: {name: p}, deadline: -5s}", "deadline"),
    ("{podRef: {name: p}, deadline: soon}", "deadline"),
    ("{podRef: {name: p}, ttl: -1h}", "ttl"),
    ("{podRef: {name: 'Not A Name'}}", "podRef.name"),
    ("{podRef: {}}", "name"),
    ("{podRef: {name: p}, trigger: Whenever}", "trigger"),
])
def test_the_api_server_refuses_bad_input(clean_slate, spec, says):
    assert says in kit.kubectl_fails("apply", "-f", "-", stdin=CHECKPOINT % {"name": "bad", "spec": spec})


@pytest.mark.parametrize("pod, annotation, says", [
    ("odd-value", 'holdfast.dev/protect: "maybe"', 'write "true" or "false"'),
    ("odd-policy", "holdfast.dev/policy: no-such-policy", "there is no RestorePolicy of that name"),
])
def test_a_malformed_annotation_is_named_with_what_to_write(clean_slate, pod, annotation, says):
    kit.apply(POD.replace('holdfast.dev/protect: "true"', annotation) % {"name": pod, "extra": ""})
    assert says in kit.wait_event(pod, "Misconfigured")
    assert "runtimeClassName" not in kit.get("pod", pod)["spec"]


def test_another_namespaces_checkpoint_is_not_restored(counter):
    """The annotation names a Checkpoint of the pod's own namespace only; there is none of that name there."""
    kit.kubectl("create", "namespace", "elsewhere")
    try:
        kit.apply(CHECKPOINT % {"name": "mine", "spec": "{podRef: {name: %s}}" % kit.ready_pod("app=counter")["metadata"]["name"]})
        assert kit.ended("mine")["status"]["phase"] == "Ready"
        pod = POD.replace('{holdfast.dev/protect: "true"}', '{holdfast.dev/protect: "true", holdfast.dev/from-checkpoint: mine}')
        kit.apply(pod % {"name": "thief", "extra": ""}, ns="elsewhere")
        note = kit.wait("an event that says what to do", lambda: [n for _, n in kit.events("thief", ns="elsewhere") if "mine" in n])[0]
        assert "elsewhere" in note, note
        assert not kit.get("checkpoints.holdfast.dev", "mine")["status"].get("claim")
    finally:
        kit.kubectl("delete", "namespace", "elsewhere", "--wait=true", "--timeout=60s", timeout=90)


def test_no_secret_in_any_log_line(counter):
    """Tokens and keys are three base64 words joined by dots, or PEM blocks."""
    import re

    for component in ("controller", "agent", "store"):
        for pod in kit.component_pods(component):
            log = kit.kubectl("logs", pod["metadata"]["name"], "-n", kit.SYSTEM)
            assert not re.search(r"eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}", log), pod["metadata"]["name"]
            assert "PRIVATE KEY" not in log
