"""A restore that fails for good, on a real cluster: what happens then is what the policy's restore.onFailure says."""

import pytest

import faults
import judge
import kit

POLICY = """
apiVersion: holdfast.dev/v1alpha1
kind: RestorePolicy
metadata: {name: careful}
spec:
  restore: {onFailure: Fail}
"""
COUNTER = kit.counter_yaml().replace('holdfast.dev/protect: "true"', "holdfast.dev/policy: careful")
PACKS = "/var/lib/holdfast-store/packs"


@pytest.fixture
def careful(clean_slate):
    """A small counter whose policy says onFailure: Fail, and the witness."""
    kit.apply(POLICY)
    yield kit.start_counter(COUNTER)
    kit.kubectl("delete", "restorepolicy", "careful", "-n", "default", "--ignore-not-found")


def turn_bits():
    """Turns one byte in a hundred of each pack; a second time makes them whole again."""
    packs = [path for path in kit.node_path(kit.SYSTEM_NODE, PACKS).rglob("*") if path.is_file()]
    assert packs, f"no packs in {PACKS}"
    for path in packs:
        with open(path, "r+b") as pack:
            content = bytearray(pack.read())
            for i in range(4096, len(content), 100):
                content[i] ^= 1
            pack.seek(0)
            pack.write(content)


def test_a_pod_that_must_not_start_cold_is_held_while_its_checkpoint_is_damaged_and_goes_on_when_it_is_whole(careful):
    old = kit.ready_pod("app=counter")
    with faults.held(kit.SYSTEM_NODE, "controller.claimed") as hold, faults.draining(old["spec"]["nodeName"]):
        hold.wait()
        turn_bits()
        hold.go()
    kit.wait("a successor", lambda: [p for p in kit.pods("app=counter") if p["metadata"]["uid"] != old["metadata"]["uid"]])
    held = next(p for p in kit.pods("app=counter") if p["metadata"]["uid"] != old["metadata"]["uid"])["metadata"]
    note = kit.wait_event(held["name"], "RestoreFailed", limit=60)
    assert "damaged" in note and "Delete the pod to try once more" in note, note
    kit.stays("the pod is held", lambda: not kit.is_ready(kit.get("pod", held["name"])), 5)
    assert not any(reason == "ColdStart" for reason, _ in kit.events(held["name"])), kit.events(held["name"])
    turn_bits()
    kit.kubectl("delete", "pod", held["name"])
    kit.ready_pod("app=counter", limit=90, not_uid=held["uid"])
    judge.assert_all_is_well(careful)
    kit.assert_nothing_lost(careful.only())
