"""Drains of other workloads than one Deployment, beside budgets and beside users who change their mind meanwhile."""

import json

import kit

COUNTER = kit.counter_yaml()
BUDGET = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: counter}
spec: {%s, selector: {matchLabels: {app: counter}}}
"""


def start(text, counters=1):
    """Applies a variant of the example and waits until all its counters count."""
    kit.apply(text)
    kit.ready_pod("app=witness")
    witness = kit.Witness()
    kit.wait(f"{counters} counters at the witness", lambda: len(witness.report()) == counters, limit=120)
    witness.wait_progress()
    return witness


def with_counter(change):
    """The example with the counter's object changed by a function of its parts."""
    parts = COUNTER.split("\n---\n")
    return "\n---\n".join([change(parts[0]), *parts[1:]])


def assert_all_kept(witness, counters=1):
    report = witness.report()
    assert len(report) == counters, f"{len(report)} counters instead of {counters}: one started cold\n{json.dumps(report, indent=1)}"
    for counter in report.values():
        kit.assert_nothing_lost(counter)


def drain_and_return(node):
    done = kit.drain(node)
    kit.kubectl("uncordon", node)
    return done


def test_a_budget_that_allows_none_holds_the_drain_and_freezes_nothing(counter):
    kit.apply(BUDGET % "minAvailable: 1")
    pod = kit.ready_pod("app=counter")
    node = pod["spec"]["nodeName"]
    kit.wait("the budget is computed", lambda: kit.get("poddisruptionbudget", "counter")["status"].get("observedGeneration"))
    kit.arm_fault(node, "runtime.frozen", "delay 1")
    draining = kit.drain_in_background(node, "--timeout=12s")
    output, _ = draining.communicate(timeout=60 * kit.SLOW)
    assert draining.returncode != 0, output
    waiting = kit.checkpoints()[0]
    assert waiting["status"]["phase"] == "Pending", waiting["status"]
    assert "PodDisruptionBudget" in kit.ready_reason(waiting)[1], waiting["status"]
    kit.assert_fault_not_hit(node, "runtime.frozen")  # nothing is frozen for a budget that would not let it go
    kit.kubectl("delete", "poddisruptionbudget", "counter")
    drain_and_return(node)
    kit.ready_pod("app=counter", not_uid=pod["metadata"]["uid"])
    counter.wait_progress()
    assert_all_kept(counter)


def test_a_budget_that_allows_one_moves_two_pods_one_after_the_other(clean_slate):
    kit.kubectl("cordon", "node2")  # both on node1
    witness = start(with_counter(lambda text: text.replace("replicas: 1", "replicas: 2")), counters=2)
    kit.kubectl("uncordon", "node2")
    kit.apply(BUDGET % "maxUnavailable: 1")
    kit.wait("the budget allows one", lambda: kit.get("poddisruptionbudget", "counter")["status"]["disruptionsAllowed"] == 1)
    drain_and_return("node1")
    kit.wait("both are on node2", lambda: [p["spec"].get("nodeName") for p in kit.pods("app=counter") if kit.is_ready(p)] == ["node2", "node2"])
    witness.wait_progress(60)
    assert_all_kept(witness, 2)
    started = sorted(c["status"]["startedAt"] for c in kit.checkpoints())
    ended = sorted(c["status"]["completedAt"] for c in kit.checkpoints())
    assert len(started) == 2 and started[1] >= ended[0], f"frozen at the same time, beside a budget of one: {started} {ended}"


def test_six_pods_of_one_node_all_move(clean_slate):
    kit.kubectl("cordon", "node2")
    witness = start(with_counter(lambda text: text.replace("replicas: 1", "replicas: 6")),
                    counters=6)
    kit.kubectl("uncordon", "node2")
    drain_and_return("node1")
    kit.wait("all are on node2", lambda: [p["spec"].get("nodeName") for p in kit.pods("app=counter") if kit.is_ready(p)] == 6 * ["node2"], limit=90)
    witness.wait_progress(60)
    assert_all_kept(witness, 6)


def test_a_stateful_set_keeps_its_pods_name_and_state(clean_slate):
    witness = start(with_counter(lambda text: text.replace("kind: Deployment", "kind: StatefulSet").replace("replicas: 1", "replicas: 1\n  serviceName: counter")))
    old = kit.ready_pod("app=counter")
    assert old["metadata"]["name"] == "counter-0"
    drain_and_return(old["spec"]["nodeName"])
    new = kit.ready_pod("app=counter", not_uid=old["metadata"]["uid"])
    assert new["metadata"]["name"] == "counter-0" and new["spec"]["nodeName"] != old["spec"]["nodeName"]
    witness.wait_progress()
    assert_all_kept(witness)
    # kubectl asks by name and again: the pod of the same name that took the old one's place is not to be evicted for it.
    assert len(kit.checkpoints()) == 1 and kit.ready_pod("app=counter")["metadata"]["uid"] == new["metadata"]["uid"]
    born = old["metadata"]["creationTimestamp"]
    seen = {e["regarding"]["uid"] for e in kit.get("events.events.k8s.io")
            if e["regarding"].get("kind") == "Pod" and e["regarding"].get("name") == "counter-0" and e["metadata"]["creationTimestamp"] >= born}
    assert seen <= {old["metadata"]["uid"], new["metadata"]["uid"]}, f"a third pod came and went: {seen}"


def job(spec):
    def change(text):
        head, pod = text.split("  template:\n")
        pod = pod.replace("    spec:\n", "    spec:\n      restartPolicy: Never\n", 1)
        head = head.replace("apps/v1", "batch/v1").replace("kind: Deployment", "kind: Job").split("spec:\n")[0]
        return f"{head}spec:\n{spec}  template:\n{pod}"

    return with_counter(change)


def test_a_job_that_ignores_disruptions_goes_on_from_where_it_was(clean_slate):
    witness = start(job("  backoffLimit: 0\n"
                        "  podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}\n"))
    old = kit.ready_pod("app=counter")
    drain_and_return(old["spec"]["nodeName"])
    kit.ready_pod("app=counter", not_uid=old["metadata"]["uid"], limit=120)  # the Job controller's own back-off begins at 10 s
    witness.wait_progress(60)
    assert_all_kept(witness)


def test_a_job_that_an_eviction_would_fail_is_refused_before_it_is_frozen(clean_slate):
    witness = start(job("  backoffLimit: 0\n"))
    old = kit.ready_pod("app=counter")
    kit.arm_fault(old["spec"]["nodeName"], "runtime.frozen", "delay 1")
    draining = kit.drain_in_background(old["spec"]["nodeName"], "--timeout=20s")
    draining.communicate(timeout=60 * kit.SLOW)
    note = kit.wait_event(old["metadata"]["name"], "Unsupported")
    assert "backoffLimit" in note, note
    kit.assert_fault_not_hit(old["spec"]["nodeName"], "runtime.frozen")
    kit.assert_nothing_lost(witness.only())


def test_a_bare_pod_is_kept_and_can_be_made_again(clean_slate):
    def bare(text):
        head, pod = text.split("  template:\n")
        spec = "\n".join(line[4:] for line in pod.split("    spec:\n")[1].splitlines())
        return ("apiVersion: v1\nkind: Pod\nmetadata:\n  name: counter\n  labels: {app: counter}\n  annotations:\n"
                '    holdfast.dev/protect: "true"\nspec:\n' + spec)

    text = with_counter(bare)
    witness = start(text)
    old = kit.ready_pod("app=counter")
    drain_and_return(old["spec"]["nodeName"])
    kept = kit.checkpoints()
    assert len(kept) == 1 and kept[0]["status"]["phase"] == "Ready", kept
    again = text.replace("  annotations:\n", f"  annotations:\n    holdfast.dev/from-checkpoint: {kept[0]['metadata']['name']}\n", 1)
    kit.apply(again)
    kit.ready_pod("app=counter", not_uid=old["metadata"]["uid"])
    witness.wait_progress()
    assert_all_kept(witness)


def test_a_node_that_is_uncordoned_in_mid_drain_still_gets_nothing_lost(counter):
    old = kit.ready_pod("app=counter")
    node = old["spec"]["nodeName"]
    draining = kit.drain_in_background(node)
    kit.wait("the checkpoint is under way", lambda: [c for c in kit.checkpoints() if c["status"].get("phase") not in (None, "Pending")], every=0.02)
    kit.kubectl("uncordon", node)
    output, _ = draining.communicate(timeout=120 * kit.SLOW)
    assert draining.returncode == 0, output
    kit.ready_pod("app=counter", not_uid=old["metadata"]["uid"])
    counter.wait_progress()
    assert_all_kept(counter)


def test_a_drain_that_gives_up_leaves_the_pod_moved_or_running(counter):
    """`kubectl drain --timeout` ends in mid-checkpoint: what was begun comes to its end without it."""
    old = kit.ready_pod("app=counter")
    draining = kit.drain_in_background(old["spec"]["nodeName"], "--timeout=1s")
    draining.communicate(timeout=60 * kit.SLOW)
    kit.wait("the checkpoint has ended", lambda: [c for c in kit.checkpoints() if c["status"].get("phase") in ("Ready", "Failed")])
    counter.wait_progress(60)
    kit.ready_pod("app=counter")
    assert_all_kept(counter)


def test_scaled_to_nothing_in_mid_drain_and_back_the_state_comes_back(counter):
    old = kit.ready_pod("app=counter")
    draining = kit.drain_in_background(old["spec"]["nodeName"])
    kit.wait("the checkpoint is under way", lambda: [c for c in kit.checkpoints() if c["status"].get("phase") not in (None, "Pending")], every=0.02)
    kit.kubectl("scale", "deployment/counter", "--replicas=0")
    output, _ = draining.communicate(timeout=120 * kit.SLOW)
    assert draining.returncode == 0, output
    kit.wait("no pod", lambda: not kit.pods("app=counter"), limit=60)
    ready = [c for c in kit.checkpoints() if c["status"]["phase"] == "Ready"]
    kit.kubectl("scale", "deployment/counter", "--replicas=1")
    kit.ready_pod("app=counter")
    counter.wait_progress()
    if ready:  # the scale-down came after the freeze: nothing may be lost
        assert_all_kept(counter)


def test_a_roll_out_in_mid_drain_does_not_restore_the_old_templates_state(counter):
    old = kit.ready_pod("app=counter")
    draining = kit.drain_in_background(old["spec"]["nodeName"])
    kit.wait("the checkpoint is under way", lambda: [c for c in kit.checkpoints() if c["status"].get("phase") not in (None, "Pending")], every=0.02)
    kit.kubectl("set", "env", "deployment/counter", "ROLLED=out")
    output, _ = draining.communicate(timeout=120 * kit.SLOW)
    assert draining.returncode == 0, output

    def rolled():
        pod = kit.live_pod("app=counter")
        return pod and kit.is_ready(pod) and any(e["name"] == "ROLLED" for e in pod["spec"]["containers"][0]["env"]) and pod

    new = kit.wait("a ready pod of the new template", rolled, limit=90)
    assert "holdfast.dev/restore" not in new["metadata"].get("annotations", {})
    assert not any(r["two_copies"] for r in counter.report().values())
