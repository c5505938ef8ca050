"""Retention on a real cluster: a dry run says what would go and why; what goes leaves nothing in the store; what is left can be restored."""

import json

import pytest

import kit

POLICY = """
apiVersion: holdfast.dev/v1alpha1
kind: RestorePolicy
metadata: {name: tidy}
spec:
  retention: {keepLast: 1, dryRun: true}
"""
COUNTER = (
    (kit.ROOT / "examples" / "counter.yaml").read_text().replace('holdfast.dev/protect: "true"', "holdfast.dev/policy: tidy").replace('value: "300"', 'value: "30"')
)
CHECKPOINT = """
apiVersion: holdfast.dev/v1alpha1
kind: Checkpoint
metadata: {name: %(name)s}
spec:
  podRef: {name: %(pod)s}
"""


@pytest.fixture
def tidy(clean_slate):
    """A small counter under a policy that keeps one checkpoint, on dry run, and the witness."""
    kit.apply(POLICY)
    kit.apply(COUNTER)
    kit.ready_pod("app=witness")
    kit.ready_pod("app=counter", limit=90)
    witness = kit.Witness()
    witness.wait_progress()
    yield witness
    kit.kubectl("delete", "restorepolicy", "tidy", "-n", "default", "--ignore-not-found")


def retention(name="tidy"):
    return kit.get("restorepolicies.holdfast.dev", name).get("status", {}).get("retention", {})


def set_retention(**rules):
    kit.kubectl("patch", "restorepolicy", "tidy", "--type=merge", "-p", json.dumps({"spec": {"retention": rules}}))


def stored(uid):
    return uid in kit.on_node(kit.SYSTEM_NODE, "find", "/var/lib/holdfast-store/manifests", "-type", "f")


def test_what_a_policy_does_not_keep_goes_with_all_that_the_store_has_of_it(tidy):
    pod = kit.ready_pod("app=counter")
    names = ["first", "second", "third"]
    for name in names:
        kit.apply(CHECKPOINT % {"name": name, "pod": pod["metadata"]["name"]})
        assert kit.ended(name)["status"]["phase"] == "Ready"
    uids = {c["metadata"]["name"]: c["metadata"]["uid"] for c in kit.checkpoints()}

    kit.wait("the dry run to say what would go", lambda: retention().get("deleted") == 2)
    said = retention()
    assert [d["checkpoint"] for d in said["deletes"]] == ["first", "second"], said
    assert all(d["reason"] == "Superseded" and "keepLast 1" in d["message"] for d in said["deletes"]), said
    assert [(k["checkpoint"], k["reason"]) for k in said["keeps"]] == [("third", "LastGood")], said
    kit.stays("all of them are there", lambda: len(kit.checkpoints()) == 3, seconds=5)

    set_retention(dryRun=False)
    kit.wait("two of them to go", lambda: [c["metadata"]["name"] for c in kit.checkpoints()] == ["third"])
    assert not stored(uids["first"]) and not stored(uids["second"])
    assert stored(uids["third"])
    assert "Superseded" in [reason for reason, _ in kit.events("first")]

    # A limit that only the last good one could meet is not met, and the policy says so.
    set_retention(maxBytes=1)
    kit.wait("the policy to say that it cannot be met", lambda: retention().get("overBytes", 0) > 0)
    assert kit.get("checkpoints.holdfast.dev", "third") and stored(uids["third"])

    nonce = next(iter(tidy.report()))
    kit.kubectl("scale", "deployment/counter", "--replicas=0")
    kit.wait("the old pod is gone", lambda: not kit.pods("app=counter"))
    kit.kubectl("patch", "deployment/counter", "--type=merge", "-p",
                '{"spec":{"replicas":1,"template":{"metadata":{"annotations":{"holdfast.dev/from-checkpoint":"third"}}}}}')
    kit.ready_pod("app=counter", not_uid=pod["metadata"]["uid"])
    kit.wait("the old nonce counts again", lambda: tidy.report()[nonce]["connections_now"] == 1)
    assert list(tidy.report()) == [nonce], "a counter started cold"


def test_checkpoints_of_a_workload_that_is_gone_say_so_and_stay(tidy):
    pod = kit.ready_pod("app=counter")
    kit.apply(CHECKPOINT % {"name": "only", "pod": pod["metadata"]["name"]})
    assert kit.ended("only")["status"]["phase"] == "Ready"
    kit.kubectl("delete", "deployment", "counter")
    kit.wait("the pod is gone", lambda: not kit.pods("app=counter"))

    def orphaned():
        conditions = kit.get("checkpoints.holdfast.dev", "only")["status"]["conditions"]
        return next((c["message"] for c in conditions if c["type"] == "Orphaned" and c["status"] == "True"), None)

    message = kit.wait("the mark of an orphan", orphaned, limit=90)
    assert "Deployment counter does not exist any more" in message
    assert stored(kit.get("checkpoints.holdfast.dev", "only")["metadata"]["uid"])
