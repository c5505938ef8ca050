"""Groups of pods: a cut of all members while all stand still, or none; and all of them, or none, go on from it. The members are two
programs on two nodes that send each other numbered messages and know when their states are not of one moment (workloads/scripts/ring.py)."""

import json
import time

import pytest

import faults
import kit
import moving
import network
import workloads

LIMIT = 30  # seconds that a frozen member waits for the others, at most (agent/freezer.h)
POLICY = """
apiVersion: holdfast.dev/v1alpha1
kind: RestorePolicy
metadata: {name: ring}
spec:
  triggers: {interval: %s}
"""
CHECKPOINT = """
apiVersion: holdfast.dev/v1alpha1
kind: Checkpoint
metadata: {name: %s}
spec:
  podRef: {name: %s}
"""
MEMBERS = ("ring-a", "ring-b")


def member(name, image, command, extra=None):
    labels = {"app": name, "ring": "yes"}
    apart = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 100, "podAffinityTerm": {"labelSelector": {"matchLabels": {"ring": "yes"}}, "topologyKey": "kubernetes.io/hostname"}}]}}
    container = {"name": "main", "image": image, "imagePullPolicy": "IfNotPresent", "command": ["python3", "/w/ring.py", *command],
                 "volumeMounts": [{"name": "scripts", "mountPath": "/w"}]}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": labels, "annotations": {"holdfast.dev/policy": "ring"}},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels, "annotations": {"holdfast.dev/group": "ring"}},
            "spec": {"terminationGracePeriodSeconds": 1, "affinity": apart, "containers": [container],
                     "volumes": [{"name": "scripts", "configMap": {"name": "workloads"}}], **(extra or {})}}},
    }


SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "ring-a"},
           "spec": {"selector": {"app": "ring-a"}, "ports": [{"port": 9300}]}}


@pytest.fixture(scope="session")
def image(holdfast):
    return moving.Images()("common")


@pytest.fixture
def ring(clean_slate, image):
    """ring(interval): both members run, on two nodes, and their messages go on."""

    def start(interval="1h"):
        kit.apply(POLICY % interval)
        kit.apply(workloads.as_list([workloads.scripts(), SERVICE]))
        address = kit.get("service", "ring-a")["spec"]["clusterIP"]
        kit.apply(workloads.as_list([member("ring-a", image, ["listen", "9300"]), member("ring-b", image, ["call", address, "9300"])]))
        for name in MEMBERS:
            kit.ready_pod(f"app={name}", limit=90)
        assert len({pod(name)["spec"]["nodeName"] for name in MEMBERS}) == 2
        kit.wait("they speak to each other", lambda: all(says(name)["grows"]["received"] for name in MEMBERS))
        goes_on()

    yield start
    kit.kubectl("delete", "restorepolicy", "ring", "-n", "default", "--ignore-not-found")
    kit.kubectl("delete", "service", "ring-a", "-n", "default", "--ignore-not-found")


def pod(name):
    return kit.ready_pod(f"app={name}", limit=120)


def says(name):
    """What a member says of itself; errors are of states that are not of one moment."""
    its = pod(name)
    said = json.loads(moving.in_container(its["spec"]["nodeName"], kit.container_id(its), "cat /run/now"))
    assert not said["errors"], f"{name}: {said}"
    return said


def goes_on(limit=60):
    """Both send and receive from now on."""
    before = {name: says(name)["grows"] for name in MEMBERS}
    kit.wait("messages go on both ways", lambda: all(
        says(name)["grows"][key] > before[name][key] for name in MEMBERS for key in ("sent", "received")), limit)


def cuts():
    """{id: [Checkpoints]}"""
    found = {}
    for checkpoint in kit.checkpoints():
        if "cut" in checkpoint["spec"]:
            found.setdefault(checkpoint["spec"]["cut"]["id"], []).append(checkpoint)
    return found


def phases(cut):
    return sorted(c.get("status", {}).get("phase", "") for c in cut)


def whole():
    return [cut for cut in cuts().values() if phases(cut) == ["Ready", "Ready"]]


def ask(name="by-hand", of="ring-a"):
    kit.apply(CHECKPOINT % (name, pod(of)["metadata"]["name"]))


def ended(limit=90):
    """The Checkpoints of the only cut, once each has ended."""

    def look():
        found = list(cuts().values())
        return found[0] if len(found) == 1 and all(p in ("Ready", "Failed") for p in phases(found[0])) and len(found[0]) == 2 else None

    return kit.wait("the cut to end", look, limit)


def assert_failed(cut, culprit, says_why):
    """All of it failed; the others name the culprit."""
    assert phases(cut) == ["Failed", "Failed"], [c["status"] for c in cut]
    for checkpoint in cut:
        reason, message = kit.ready_reason(checkpoint)
        if not checkpoint["spec"]["podRef"]["name"].startswith(culprit):
            assert reason == "GroupMemberFailed", (reason, message)
            assert culprit in message and says_why in message, message


def assert_thawed_within_the_limit(stood):
    kit.wait("messages go on both ways", lambda: goes_on() or True, LIMIT)
    assert stood < LIMIT + 10, f"stood still for {stood:.1f} s"


def test_a_checkpoint_of_one_member_is_a_cut_of_all(ring):
    ring()
    ask()
    cut = ended()
    assert phases(cut) == ["Ready", "Ready"], [kit.ready_reason(c) for c in cut]
    assert {c["spec"]["trigger"] for c in cut} == {"Manual"}
    assert all(m["checkpoint"] in {c["metadata"]["name"] for c in cut} for m in cut[0]["spec"]["cut"]["members"])
    for checkpoint in cut:
        print(checkpoint["metadata"]["name"], checkpoint["status"]["timings"], checkpoint["status"]["barrier"])
        assert kit.get("pod", checkpoint["spec"]["podRef"]["name"])["status"]["containerStatuses"][0]["restartCount"] == 0
    goes_on()


def test_both_members_go_on_from_one_cut_when_both_are_gone(ring):
    ring("10s")
    kit.wait("two cuts", lambda: len(whole()) >= 2, limit=90)
    nonces = {name: says(name)["same"]["nonce"] for name in MEMBERS}
    old = {name: pod(name)["metadata"] for name in MEMBERS}
    kit.kubectl("delete", "pod", *(m["name"] for m in old.values()), "--wait=false")
    new = {name: kit.ready_pod(f"app={name}", not_uid=old[name]["uid"], limit=120) for name in MEMBERS}
    from_ids = set()
    for name in MEMBERS:
        source = kit.get("checkpoints.holdfast.dev", new[name]["metadata"]["annotations"]["holdfast.dev/restore"])
        from_ids.add(source["spec"]["cut"]["id"])
        assert says(name)["same"]["nonce"] == nonces[name], f"{name} started cold"
    assert len(from_ids) == 1, "the members went back to different cuts"
    goes_on()
    print({name: says(name) for name in MEMBERS})
    # The restored ones are a group as the first ones were.
    before = set(cuts())
    kit.wait("a cut of the restored members", lambda: [c for c in whole() if c[0]["spec"]["cut"]["id"] not in before], limit=90)
    goes_on()


def test_one_member_alone_does_not_go_back(ring):
    ring("10s")
    kit.wait("a cut", whole, limit=60)
    old = pod("ring-b")["metadata"]
    kit.kubectl("delete", "pod", old["name"], "--wait=false")
    successor = kit.wait("a successor", lambda: next((p for p in kit.pods("app=ring-b") if p["metadata"]["uid"] != old["uid"]), None))
    note = kit.wait_event(successor["metadata"]["name"], "WaitsForGroup")
    first = pod("ring-a")["metadata"]
    assert first["name"] in note and f"kubectl -n default delete pod {first['name']}" in note, note
    kit.kubectl("delete", "pod", first["name"], "--wait=false")
    for name, gone in (("ring-a", first), ("ring-b", old)):
        new = kit.ready_pod(f"app={name}", not_uid=gone["uid"], limit=120)
        assert new["metadata"]["annotations"]["holdfast.dev/restore"].startswith("interval-"), new["metadata"]["annotations"]
    goes_on()


def test_a_member_that_cannot_be_dumped_lets_all_go_on(ring, image):
    ring()
    kit.apply(workloads.as_list([{**workloads.bare_pod(next(r for r in workloads.REFUSALS if r.name == "io-uring"), image)}]))
    its = kit.ready_pod("app=io-uring", limit=90)
    kit.wait("it holds an io_uring", lambda: moving.in_container(its["spec"]["nodeName"], kit.container_id(its), "ls /run/holds"))
    kit.kubectl("annotate", "pod", "io-uring", "holdfast.dev/group=ring")
    ask()
    cut = kit.wait("the cut to end", lambda: next((c for c in cuts().values() if len(c) == 3 and phases(c) == ["Failed"] * 3), None), 90)
    reasons = {c["spec"]["podRef"]["name"]: kit.ready_reason(c) for c in cut}
    assert "io_uring" in reasons["io-uring"][1], reasons
    for name, (reason, message) in reasons.items():
        assert name == "io-uring" or (reason == "GroupMemberFailed" and "io-uring" in message), reasons
    goes_on()


def test_a_member_that_is_deleted_at_the_barrier_fails_the_cut(ring):
    ring()
    node = pod("ring-b")["spec"]["nodeName"]
    with faults.held(node, "agent.at_barrier") as hold:
        ask()
        hold.wait()
        began = time.monotonic()
        kit.kubectl("delete", "pod", pod("ring-b")["metadata"]["name"], "--wait=false")
        cut = ended()
        hold.go()
    stood = time.monotonic() - began
    assert_failed(cut, "ring-b", "being deleted")
    ring_a = pod("ring-a")  # its peer starts cold, which it notices
    container = kit.container_id(ring_a)

    def connections():
        return json.loads(moving.in_container(ring_a["spec"]["nodeName"], container, "cat /run/now"))["grows"]["connections"]

    before = connections()
    kit.wait("the other one runs on", lambda: connections() > before, LIMIT)
    assert stood < LIMIT, f"{stood:.1f} s"


def test_an_agent_that_dies_at_the_barrier_leaves_nobody_frozen(ring):
    ring()
    node = pod("ring-b")["spec"]["nodeName"]
    kit.arm_fault(node, "agent.at_barrier")
    began = time.monotonic()
    ask()
    kit.assert_fault_hit(node, "agent.at_barrier")
    cut = ended()  # it may be whole: the agent comes back, and its pod stood still all the time
    assert len(set(phases(cut))) == 1, [kit.ready_reason(c) for c in cut]
    print(phases(cut), [c["status"].get("timings") for c in cut])
    assert_thawed_within_the_limit(time.monotonic() - began)


def test_a_leader_that_dies_as_it_gives_the_word_leaves_no_half_cut(ring):
    ring()
    leader = faults.leader()
    kit.arm_fault(kit.SYSTEM_NODE, "controller.barrier")
    began = time.monotonic()
    ask()
    kit.assert_fault_hit(kit.SYSTEM_NODE, "controller.barrier")
    cut = ended()
    assert len(set(phases(cut))) == 1, [kit.ready_reason(c) for c in cut]
    print(leader, phases(cut), [c["status"].get("timings") for c in cut])
    assert_thawed_within_the_limit(time.monotonic() - began)


def test_without_an_api_server_the_members_thaw_by_themselves(ring):
    ring()
    ring_b = pod("ring-b")
    container, node = kit.container_id(ring_b), ring_b["spec"]["nodeName"]
    with faults.held(node, "agent.at_barrier") as hold:  # frozen, and nobody was told
        ask()
        hold.wait()
        began = time.monotonic()
        with network.broken(network.agent_api(node), network.CUT):
            hold.go()

            def count():
                return json.loads(moving.in_container(node, container, "cat /run/now"))["grows"]["connections"]

            before = count()
            kit.wait("the member runs on", lambda: count() > before, LIMIT + 15)
            stood = time.monotonic() - began
            time.sleep(max(0.0, 40 - stood))  # the fault itself
    print(f"stood still for {stood:.1f} s")
    assert stood < LIMIT + 5
    cut = ended(limit=120)
    assert phases(cut) == ["Failed", "Failed"], [kit.ready_reason(c) for c in cut]
    goes_on()


def test_a_drained_member_goes_on_from_where_it_was_beside_the_others(ring):
    ring("10s")
    kit.wait("a cut", whole, limit=60)
    old, stays = pod("ring-b"), pod("ring-a")["metadata"]["uid"]
    nonce = says("ring-b")["same"]["nonce"]
    kit.drain(old["spec"]["nodeName"])
    new = kit.ready_pod("app=ring-b", not_uid=old["metadata"]["uid"], limit=120)
    assert new["metadata"]["annotations"]["holdfast.dev/restore"].startswith("drain-")
    assert says("ring-b")["same"]["nonce"] == nonce and pod("ring-a")["metadata"]["uid"] == stays
    goes_on()
