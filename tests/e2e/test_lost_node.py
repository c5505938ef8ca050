"""A node that is cut off for good: its pods go on elsewhere from their last interval checkpoint, once somebody confirmed that it is out of
service; and what still runs there when it comes back is ended at once."""

import json
import re
import time

import pytest

import kit

POLICY = """
apiVersion: holdfast.dev/v1alpha1
kind: RestorePolicy
metadata: {name: often}
spec:
  triggers: {interval: 10s}
"""
COUNTER = kit.counter_yaml().replace('holdfast.dev/protect: "true"', "holdfast.dev/policy: often")


def interval_checkpoints(phase="Ready"):
    found = [c for c in kit.checkpoints() if c["spec"]["trigger"] == "Interval" and c.get("status", {}).get("phase") == phase]
    return sorted(found, key=lambda c: c["status"].get("completedAt", ""))


def just_checkpointed(witness):
    """Returns soon after a checkpoint was completed, when some counts have come after it that it does not have."""
    seen = {c["metadata"]["name"] for c in interval_checkpoints()}
    kit.wait("a new checkpoint", lambda: any(c["metadata"]["name"] not in seen for c in interval_checkpoints()), limit=60)
    witness.wait_progress()


@pytest.fixture
def often(clean_slate):
    """The counter under a policy with an interval of 10 s, on node1, and the witness."""
    kit.apply(POLICY)
    kit.kubectl("cordon", "node2")
    witness = kit.start_counter(COUNTER)
    kit.kubectl("uncordon", "node2")
    yield witness
    kit.kubectl("delete", "restorepolicy", "often", "-n", "default", "--ignore-not-found")


def kubelet_does(signal):
    kit.on_node("node1", "sh", "-c", f"kill -{signal} $(pgrep -x kubelet)")


@pytest.fixture
def lost():
    """Cuts node1 off; afterwards it is in service again."""

    def cut():
        kit.cut_off("node1")
        kit.wait("node1 counts as lost", lambda: not kit.node_is_ready("node1"), limit=90, every=0.5)

    yield cut
    kubelet_does("CONT")
    kit.connect_again("node1")
    kit.kubectl("taint", "node", "node1", kit.OUT_OF_SERVICE + "-", check=False)
    kit.wait("node1 is back", lambda: kit.node_is_ready("node1"), limit=90, every=0.5)
    kit.kubectl("rollout", "status", "daemonset/holdfast-agent", "-n", kit.SYSTEM, "--timeout=90s", timeout=120)


def test_an_interval_makes_checkpoints_and_keeps_the_newest(often):
    pod = kit.ready_pod("app=counter")
    seen = set()

    def five_were_made():
        seen.update(c["metadata"]["name"] for c in interval_checkpoints())
        return len(seen) >= 5

    kit.wait("five checkpoints were made", five_were_made, limit=120, every=0.5)
    def few():  # keepLast: 3, and one that is about to go
        return 2 <= len(interval_checkpoints()) <= 4 and interval_checkpoints()

    kept = kit.wait("two to four of them are kept", few)
    assert all(c["spec"]["podRef"]["uid"] == pod["metadata"]["uid"] and not c["spec"].get("final") for c in kept)
    kit.assert_nothing_lost(often.only())
    # A drain is what it always was.
    kit.drain("node1")
    new = kit.ready_pod("app=counter", not_uid=pod["metadata"]["uid"])
    assert new["metadata"]["annotations"]["holdfast.dev/restore"].startswith("drain-")
    often.wait_progress()
    kit.assert_nothing_lost(often.only())


def test_a_deleted_pod_goes_on_from_its_last_interval_checkpoint(often):
    old = kit.ready_pod("app=counter")
    just_checkpointed(often)
    kit.kubectl("delete", "pod", old["metadata"]["name"], "--wait=false")
    new = kit.ready_pod("app=counter", not_uid=old["metadata"]["uid"], limit=90)
    assert new["metadata"]["annotations"]["holdfast.dev/restore"].startswith("interval-")
    often.wait_progress()
    report = often.only()
    assert report["repeated"] > 0 and not report["lost"] and not report["two_copies"] and not report["hash_mismatches"], report


def test_a_lost_nodes_pod_goes_on_elsewhere_only_after_the_node_is_out_of_service(often, lost):
    old = kit.ready_pod("app=counter")
    container = kit.container_id(old)
    kit.wait("a checkpoint", interval_checkpoints, limit=60)
    just_checkpointed(often)  # the second one
    lost()
    last = often.only()["last"]
    kit.kubectl("delete", "pod", old["metadata"]["name"], "--wait=false")  # what the taint manager does after its five minutes

    # Nobody confirmed it: the successor waits, and says for what.
    def successor():
        return next((p for p in kit.pods("app=counter") if p["metadata"]["uid"] != old["metadata"]["uid"]), None)

    waiting = kit.wait("a successor", successor)
    note = kit.wait_event(waiting["metadata"]["name"], "WaitsForNode")
    command = re.search(r"kubectl taint node node1 \S+", note)
    assert command, note
    gate = [{"name": "holdfast.dev/claim"}]
    kit.stays("the successor waits behind its gate", lambda: successor()["spec"].get("schedulingGates") == gate, 5)
    assert kit.runs("node1", container), "the old copy runs on, where nobody hears it"
    assert often.only()["last"] == last

    newest = interval_checkpoints()[-1]
    kit.run(kit.CLUSTER / "kubectl", *command.group(0).split()[1:])  # the command that the event names
    new = kit.ready_pod("app=counter", not_uid=old["metadata"]["uid"], limit=90)
    assert new["spec"]["nodeName"] == "node2"
    assert new["metadata"]["annotations"]["holdfast.dev/restore"] == newest["metadata"]["name"]
    note = kit.wait_event(new["metadata"]["name"], "StateIsOlder")
    assert newest["metadata"]["name"] in note and newest["status"]["startedAt"][:16] in note, note
    kit.wait("counts go on", lambda: often.only()["last"] > last, limit=60)
    report = often.only()
    assert report["repeated"] > 0 and not report["lost"] and not report["two_copies"] and not report["hash_mismatches"], report
    print(f"repeated {report['repeated']} counts since the checkpoint of {newest['status']['completedAt']}")

    # The node comes back with the old copy in it. Its kubelet, which would end it too, is busy.
    assert kit.runs("node1", container)
    kubelet_does("STOP")
    kit.connect_again("node1")
    back = time.monotonic()
    kit.wait("the old copy is ended", lambda: not kit.runs("node1", container), limit=20, every=0.05)
    print(f"the old copy was ended {time.monotonic() - back:.1f} s after the network was back; heard in between: {often.only()['two_copies']}")
    assert kit.wait_event(old["metadata"]["name"], "Fenced")
    kubelet_does("CONT")
    often.reset()
    often.wait_progress()
    first = often.only()
    kit.stays("one copy counts", lambda: not often.only()["two_copies"], 10)
    report = often.only()
    assert report["last"] > first["last"] and report["connections_now"] == 1, report
    assert not report["two_copies"] and not report["lost"] and not report["repeated"], json.dumps(report)
    assert not kit.runs("node1", container)
