"""Big drains: many pods, several nodes, and people who do other things meanwhile. The counters are small here (10 MB)."""


import json

import pytest

import kit
import leaks
from test_workloads import assert_all_kept, start, with_counter


def small(replicas=1, change=lambda text: text):
    return with_counter(
        lambda text: change(
            text.replace("replicas: 1", f"replicas: {replicas}").replace('value: "30"', 'value: "10"').replace("cpu: 50m, memory: 60Mi", "cpu: 10m, memory: 30Mi")
        )
    )


def start_on(node, text, counters=1):
    """The counters all on this node."""
    other = next(n for n in kit.WORKERS if n != node)
    kit.kubectl("cordon", other)
    witness = start(text, counters)
    kit.kubectl("uncordon", other)
    return witness


def finish(draining, limit=240):
    output, _ = draining.communicate(timeout=limit * kit.SLOW)
    assert draining.returncode == 0, output
    return output


def all_ready_on(node, count, limit=120):
    kit.wait(f"{count} ready pods on {node}", lambda: [p["spec"].get("nodeName") for p in kit.pods("app=counter") if kit.is_ready(p)] == count * [node], limit)


def under_way(phases=("Assigned", "Freezing", "Dumping", "Storing", "Ready")):
    return kit.wait("the checkpoint is under way", lambda: [c for c in kit.checkpoints() if c.get("status", {}).get("phase") in phases], every=0.02)


PRIORITIES = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: dear}
value: 1000
"""


def test_twenty_pods_of_one_node_move_the_dear_ones_first_and_a_few_at_a_time(clean_slate):
    kit.kubectl("apply", "-f", "-", stdin=PRIORITIES)
    try:
        kit.kubectl("cordon", "node2")
        kit.apply(small(15))
        dear = small(5, lambda text: text.replace("metadata:\n  name: counter", "metadata:\n  name: dear").replace("    spec:\n", "    spec:\n      priorityClassName: dear\n", 1))
        witness = start(dear.split("\n---\n")[0].replace("app: counter", "app: counter, tier: dear"), counters=20)
        kit.kubectl("uncordon", "node2")
        names = {p["metadata"]["name"] for p in kit.pods("app=counter")}
        dear_names = {p["metadata"]["name"] for p in kit.pods("tier=dear")}
        output = finish(kit.drain_in_background("node1"))
        kit.kubectl("uncordon", "node1")
        unheard = [n for n in names if f"holdfast: checkpointing default/{n}" not in output]
        assert not unheard, f"no progress was shown for {unheard}"
        all_ready_on("node2", 20)
        witness.wait_progress(60)
        # Not its clocks: so many processes at a time are late with everything.
        report = witness.report()
        broken = {n: r for n, r in report.items() if r["lost"] or r["repeated"] or r["hash_mismatches"] or r["two_copies"] or r["loopback_broken"]}
        assert len(report) == 20 and not broken, json.dumps(broken)
        drains = [c for c in kit.checkpoints() if c["spec"]["trigger"] == "Drain"]
        spans = [(c["status"]["startedAt"], c["status"]["completedAt"]) for c in drains]
        at_once = max(sum(1 for b, e in spans if b <= begin < e) for begin, _ in spans)
        assert len(drains) == 20 and at_once <= 4 + 1, f"{at_once} at the same time"  # times are whole seconds
        order = sorted(drains, key=lambda c: c["status"]["startedAt"])
        late = [c["spec"]["podRef"]["name"] for c in order[12:] if c["spec"]["podRef"]["name"] in dear_names]
        assert not late, f"of higher priority, but among the last: {late}"
    finally:
        kit.kubectl("delete", "priorityclass", "dear", "--ignore-not-found")


def test_two_nodes_drained_at_once_keep_everything_until_there_is_room(clean_slate):
    spread = "      topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: counter}}}]\n"
    witness = start(small(4, lambda text: text.replace("    spec:\n", "    spec:\n" + spread, 1)), counters=4)
    both = [kit.drain_in_background(node) for node in kit.WORKERS]
    for draining in both:
        finish(draining)
    kit.wait("the successors wait for a node, not for a checkpoint",
             lambda: [p.get("spec", {}).get("schedulingGates") for p in kit.pods("app=counter") if "deletionTimestamp" not in p["metadata"]] == 4 * [None], limit=60)
    assert not any(p["spec"].get("nodeName") for p in kit.pods("app=counter"))
    kit.uncordon_all()
    kit.wait("all are back", lambda: sum(kit.is_ready(p) for p in kit.pods("app=counter")) == 4, limit=90)
    witness.wait_progress(60)
    assert_all_kept(witness, 4)


def drain_system_node(*extra):
    """Only Holdfast's own pods: the witness judges."""
    return kit.drain_in_background(kit.SYSTEM_NODE, "--pod-selector=app.kubernetes.io/name=holdfast", *extra)


@pytest.fixture
def system_node(clean_slate):
    """One controller: two have a budget, and here is no other node for them to go to."""

    def controllers(count):
        kit.kubectl("scale", "deployment/holdfast-controller", f"--replicas={count}", "-n", kit.SYSTEM)
        kit.wait("the controllers", lambda: [kit.is_ready(p) for p in kit.component_pods("controller")] == count * [True], limit=90)

    controllers(1)
    yield
    kit.kubectl("uncordon", kit.SYSTEM_NODE)
    controllers(2)
    for what in ("deployment/holdfast-controller", "statefulset/holdfast-store"):
        kit.kubectl("rollout", "status", what, "-n", kit.SYSTEM, "--timeout=120s", timeout=150)


def test_the_store_and_the_controller_leave_last(clean_slate, system_node):
    witness = start_on("node1", small())
    old = kit.ready_pod("app=counter")
    kit.arm_fault(kit.SYSTEM_NODE, "store.put", "delay 4000")
    worker = kit.drain_in_background("node1")
    under_way(("Freezing", "Dumping", "Storing"))
    system = drain_system_node()
    finish(worker)
    output = finish(system)
    assert "holdfast: the store leaves after" in output and "holdfast: the controller leaves after" in output, output
    kit.kubectl("uncordon", kit.SYSTEM_NODE)
    kit.kubectl("uncordon", "node1")
    new = kit.ready_pod("app=counter", not_uid=old["metadata"]["uid"], limit=120)
    assert new["spec"]["nodeName"] == "node2"
    witness.wait_progress(60)
    assert_all_kept(witness)


def test_all_nodes_in_turn_as_an_upgrade_does_it(clean_slate, system_node):
    witness = start(small(2), counters=2)
    for node in kit.WORKERS:
        finish(kit.drain_in_background(node))
        kit.kubectl("uncordon", node)
        kit.wait("both are ready", lambda: sum(kit.is_ready(p) for p in kit.pods("app=counter")) == 2, limit=90)
    finish(drain_system_node())
    kit.kubectl("uncordon", kit.SYSTEM_NODE)
    kit.kubectl("rollout", "status", "deployment/holdfast-controller", "-n", kit.SYSTEM, "--timeout=120s", timeout=150)
    kit.kubectl("rollout", "status", "statefulset/holdfast-store", "-n", kit.SYSTEM, "--timeout=120s", timeout=150)
    finish(kit.drain_in_background("node1"))
    kit.kubectl("uncordon", "node1")
    all_ready_on("node2", 2)
    witness.wait_progress(60)
    assert_all_kept(witness, 2)


def test_an_owner_deleted_in_mid_drain_leaves_nothing_frozen(clean_slate):
    start_on("node1", small())
    kit.arm_fault("node1", "agent.before_commit", "delay 2000")
    draining = kit.drain_in_background("node1")
    under_way(("Storing",))
    kit.kubectl("delete", "deployment", "counter", "--wait=false")
    finish(draining)
    kit.wait("no pod is left", lambda: not kit.pods("app=counter"), limit=60)
    kit.wait("the checkpoint has ended", lambda: all(c["status"]["phase"] in ("Ready", "Failed") for c in kit.checkpoints()))
    kit.wait("nothing is left on the nodes", lambda: not leaks.on_nodes(), limit=30)


def test_a_pod_deleted_by_force_in_mid_drain_goes_on_from_its_checkpoint(clean_slate):
    witness = start_on("node1", small())
    old = kit.ready_pod("app=counter")
    kit.arm_fault("node1", "agent.before_commit", "delay 2000")
    draining = kit.drain_in_background("node1")
    under_way(("Storing",))
    kit.kubectl("delete", "pod", old["metadata"]["name"], "--grace-period=0", "--force")
    finish(draining)
    kit.ready_pod("app=counter", not_uid=old["metadata"]["uid"], limit=90)
    witness.wait_progress(60)
    assert_all_kept(witness)
    kit.wait("nothing is left on the nodes", lambda: not leaks.on_nodes(), limit=45)


def test_a_drain_without_evictions_says_that_the_state_was_not_kept(clean_slate):
    start_on("node1", small())
    old = kit.ready_pod("app=counter")
    finish(kit.drain_in_background("node1", "--disable-eviction"))
    new = kit.ready_pod("app=counter", not_uid=old["metadata"]["uid"], limit=90)
    note = kit.wait_event(new["metadata"]["name"], "ColdStart")
    assert "without its predecessor's state" in note, note
    kit.wait("nothing is left on the nodes", lambda: not leaks.on_nodes(), limit=30)


def test_scaled_up_in_mid_drain_one_goes_on_and_the_others_begin(clean_slate):
    witness = start_on("node1", small())
    nonce = next(iter(witness.report()))
    draining = kit.drain_in_background("node1")
    under_way()
    kit.kubectl("scale", "deployment/counter", "--replicas=3")
    finish(draining)
    kit.wait("three are ready", lambda: sum(kit.is_ready(p) for p in kit.pods("app=counter")) == 3, limit=120)
    kit.wait("three count", lambda: len(witness.report()) == 3, limit=60)
    witness.wait_progress(60)
    kit.assert_nothing_lost(witness.report()[nonce])
    assert not any(r["two_copies"] for r in witness.report().values())


def test_a_budget_of_one_half_moves_one_half_at_a_time(clean_slate):
    witness = start_on("node1", small(4), counters=4)
    kit.apply("""
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: counter}
spec: {maxUnavailable: "50%", selector: {matchLabels: {app: counter}}}
""")
    kit.wait("the budget allows two", lambda: kit.get("poddisruptionbudget", "counter")["status"]["disruptionsAllowed"] == 2)
    finish(kit.drain_in_background("node1"))
    kit.kubectl("uncordon", "node1")
    all_ready_on("node2", 4)
    witness.wait_progress(60)
    assert_all_kept(witness, 4)
    spans = [(c["status"]["startedAt"], c["status"]["completedAt"]) for c in kit.checkpoints()]
    first_half = sorted(spans)[:2]
    third = sorted(spans)[2][0]
    assert all(third >= end for _, end in first_half), f"more than two were frozen at once: {sorted(spans)}"


def test_a_full_landing_area_lets_the_pod_go_and_says_so(clean_slate, small_landing):
    start_on("node1", small())
    old = kit.ready_pod("app=counter")
    finish(kit.drain_in_background("node1"))
    failed = kit.checkpoints()[0]
    # Hole 10: what does not fit is known before the pod is frozen.
    assert failed["status"]["phase"] == "Failed" and kit.ready_reason(failed)[0] == "NodeFull", failed["status"]
    assert "nothing was frozen" in kit.ready_reason(failed)[1], kit.ready_reason(failed)
    assert "space" in kit.ready_reason(failed)[1].lower(), kit.ready_reason(failed)
    assert [n for _, n in kit.events(old["metadata"]["name"]) if "without its state" in n], kit.events(old["metadata"]["name"])
    new = kit.ready_pod("app=counter", not_uid=old["metadata"]["uid"], limit=90)
    assert "space" in kit.wait_event(new["metadata"]["name"], "ColdStart").lower()


def test_a_store_that_answers_slowly_is_waited_for(clean_slate):
    witness = start_on("node1", small())
    old = kit.ready_pod("app=counter")
    kit.arm_fault(kit.SYSTEM_NODE, "store.put", "delay 7000")  # longer than one call may take
    finish(kit.drain_in_background("node1"))
    kit.ready_pod("app=counter", not_uid=old["metadata"]["uid"], limit=90)
    witness.wait_progress(60)
    assert_all_kept(witness)


SHORT = """
apiVersion: holdfast.dev/v1alpha1
kind: Checkpoint
metadata: {name: short}
spec: {podRef: {name: %(name)s, uid: %(uid)s}, final: true, trigger: Drain, deadline: %(deadline)ds}
"""


# The last one has time for everything before the point on a busy machine.
@pytest.mark.parametrize("phase, node, point, deadline, ready", [
    ("frozen", "node1", "runtime.frozen", 5, False),
    ("storing", kit.SYSTEM_NODE, "store.put", 5, False),
    ("before_the_eviction", kit.SYSTEM_NODE, "controller.before_evict", 15, True),
])
def test_a_deadline_that_passes(clean_slate, phase, node, point, deadline, ready):
    """Until the commit the pod is thawed and lives through it; after the commit it moves, however late."""
    deadline = int(deadline * kit.SLOW)
    witness = start_on("node1", small())
    old = kit.ready_pod("app=counter")
    kit.arm_fault(node, point, f"delay {(deadline + 3) * 1000}")
    kit.apply(SHORT % {**old["metadata"], "deadline": deadline})
    ended = kit.ended("short")
    kit.assert_fault_hit(node, point)
    if ready:
        assert ended["status"]["phase"] == "Ready", ended["status"]
        kit.ready_pod("app=counter", not_uid=old["metadata"]["uid"], limit=90)
    else:
        assert kit.ready_reason(ended)[0] in ("Deadline", "StoreUnavailable"), ended["status"]
        witness.wait_progress()
        assert kit.ready_pod("app=counter")["metadata"]["uid"] == old["metadata"]["uid"]
        kit.wait("nothing is left on the nodes", lambda: not leaks.on_nodes(), limit=30)
    witness.wait_progress(60)
    assert_all_kept(witness)
