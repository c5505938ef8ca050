"""Workloads that sleep: their pods are gone, their node has the room back, and what comes back goes on from where it was."""

import datetime
import json
import os

import pytest

import kit
import releases

OBJECT = """
apiVersion: holdfast.dev/v1alpha1
kind: SuspendedWorkload
metadata: {name: %(name)s}
spec:
  targetRef: {apiVersion: %(api)s, kind: %(kind)s, name: counter}
  state: %(state)s
  onDelete: %(on_delete)s
"""


def suspend(kind="Deployment", name="nb", state="Suspended", on_delete="Resume"):
    kit.apply(OBJECT % {"name": name, "api": {"Job": "batch/v1", "Pod": "v1"}.get(kind, "apps/v1"), "kind": kind, "state": state, "on_delete": on_delete})


def want(state, name="nb"):
    kit.kubectl("patch", "sw", name, "--type=merge", "-p", json.dumps({"spec": {"state": state}}))


def status(name="nb"):
    return kit.get("suspendedworkloads", name).get("status", {})


def condition(kind="Suspended", name="nb"):
    found = [c for c in status(name).get("conditions", []) if c["type"] == kind]
    return (found[0]["reason"], found[0]["message"]) if found else ("", "")


def wait_phase(phase, limit=90.0):
    try:
        kit.wait(f"phase {phase}", lambda: status().get("phase") == phase, limit)
    except kit.Failure as failure:
        raise kit.Failure(f"{failure}\n{json.dumps(status(), indent=1)}") from None


def wait_asleep(limit=90.0):
    wait_phase("Suspended", limit)
    assert not kit.pods("app=counter"), "asleep, but it has pods"


def assert_all_kept(witness, counters=1):
    report = witness.report()
    assert len(report) == counters, f"{len(report)} counters instead of {counters}: one started cold\n{json.dumps(report, indent=1)}"
    for counter in report.values():
        kit.assert_nothing_lost(counter)


def wait_counting(witness, counters=1):
    kit.wait("all of them count", lambda: sum(r["connections_now"] for r in witness.report().values()) == counters, limit=90)
    witness.wait_progress(60)
    assert_all_kept(witness, counters)


def counters(change):
    """The example with the counter's object changed."""
    first, *rest = kit.counter_yaml().split("\n---\n")
    return "\n---\n".join([change(first), *rest])


def start(text, count):
    kit.apply(text)
    kit.ready_pod("app=witness")
    witness = kit.Witness()
    kit.wait(f"{count} counters at the witness", lambda: len(witness.report()) == count, limit=120)
    witness.wait_progress()
    return witness


def test_a_suspended_counter_frees_its_node_and_loses_no_count(counter):
    for _ in range(2):
        pod = kit.ready_pod("app=counter")
        node, container = pod["spec"]["nodeName"], kit.container_id(pod)
        suspend()
        wait_asleep()
        assert not kit.runs(node, container), "its process still holds the node's memory"
        assert kit.get("deployment", "counter")["spec"]["replicas"] == 0
        now = status()
        assert (now["freed"]["cpu"], now["freed"]["memory"]) == ("50m", "60Mi") and now["replicas"] == 1 and now["suspendedAt"], now
        assert [c["pod"] for c in now["checkpoints"]] == [pod["metadata"]["name"]], now
        assert counter.only()["connections_now"] == 0
        columns = kit.kubectl("get", "sw", "nb").splitlines()
        assert columns[1].split()[:7] == ["nb", "Deployment", "counter", "Suspended", "Suspended", "50m", "60Mi"], columns
        want("Running")
        wait_phase("Running")
        wait_counting(counter)
        assert condition("Restored")[0] == "Restored", status()
        assert status()["checkpoints"] == [] and "freed" not in status(), status()
        kit.kubectl("delete", "sw", "nb")
    claims = [c["status"]["claim"]["podUID"] for c in kit.checkpoints()]
    assert len(claims) == 2 and len(set(claims)) == 2, claims


def test_three_replicas_go_on_each_from_a_checkpoint_of_its_own(clean_slate):
    witness = start(counters(lambda text: text.replace("replicas: 1", "replicas: 3")), 3)
    suspend()
    wait_asleep()
    assert len(status()["checkpoints"]) == 3
    want("Running")
    wait_phase("Running", limit=120)
    wait_counting(witness, 3)
    assert condition("Restored") == ("Restored", "3 of 3 pods went on from their checkpoints")


def test_a_bare_pod_is_deleted_to_sleep_and_goes_on_under_its_name(clean_slate):
    def bare(text):
        head, template = text.split("  template:\n")
        lines = template.split("\n")
        at = next(i for i, line in enumerate(lines) if line.startswith("    spec:"))
        pod = [line[4:] for line in lines[at:]]
        return ('apiVersion: v1\nkind: Pod\nmetadata:\n  name: counter\n  labels: {app: counter}\n  annotations: {holdfast.dev/protect: "true"}\n' + "\n".join(pod))

    witness = start(counters(bare), 1)
    for _ in range(2):
        pod = kit.ready_pod("app=counter")
        node, container = pod["spec"]["nodeName"], kit.container_id(pod)
        suspend("Pod")
        wait_asleep()
        assert not kit.runs(node, container), "its process still holds the node's memory"
        assert status()["sealedPod"] and status()["freed"]["cpu"] == "50m", status()
        want("Running")
        wait_phase("Running")
        wait_counting(witness)
        assert condition("Restored")[0] == "Restored", status()
        again = kit.ready_pod("app=counter")
        assert again["metadata"]["name"] == "counter" and again["metadata"]["uid"] != pod["metadata"]["uid"]
        assert "sealedPod" not in status()
    # Whoever makes it anew while it sleeps gets it as it was.
    suspend("Pod")
    wait_asleep()
    kit.apply(counters(bare))
    wait_phase("Running")
    wait_counting(witness)
    assert condition()[0] == "Overridden", status()


def test_pods_of_a_stateful_set_go_on_each_under_its_ordinal(clean_slate):
    witness = start(counters(lambda text: text.replace("kind: Deployment", "kind: StatefulSet").replace("replicas: 1", "replicas: 2\n  serviceName: counter")), 2)
    suspend("StatefulSet")
    wait_asleep()
    assert sorted(c["ordinal"] for c in status()["checkpoints"]) == ["0", "1"]
    taken_of = {c["checkpoint"]: c["pod"] for c in status()["checkpoints"]}
    want("Running")
    wait_phase("Running", limit=120)
    wait_counting(witness, 2)
    for pod in kit.pods("app=counter"):
        assert taken_of[pod["metadata"]["annotations"]["holdfast.dev/restore"]] == pod["metadata"]["name"]


def test_a_job_is_suspended_and_goes_on(clean_slate):
    def job(text):
        head, pod = text.split("  template:\n")
        head = head.replace("apps/v1", "batch/v1").replace("kind: Deployment", "kind: Job").split("spec:\n")[0]
        return f"{head}spec:\n  backoffLimit: 0\n  template:\n" + pod.replace("    spec:\n", "    spec:\n      restartPolicy: Never\n", 1)

    witness = start(counters(job), 1)
    suspend("Job")
    wait_asleep()
    assert kit.get("job", "counter")["spec"]["suspend"] is True
    want("Running")
    wait_phase("Running", limit=120)
    wait_counting(witness)
    assert not kit.get("job", "counter")["status"].get("failed"), "to be suspended is no failure"


def test_a_store_that_is_down_suspends_nothing_and_says_so(counter, scaled_down):
    pod = kit.ready_pod("app=counter")
    bring_back = scaled_down("statefulset", "holdfast-store")
    suspend()
    kit.wait("the status to say that the store is down", lambda: condition()[0] == "StoreUnavailable" and status()["phase"] == "Running", limit=180)
    assert kit.get("deployment", "counter")["spec"]["replicas"] == 1
    counter.wait_progress(60)
    assert kit.ready_pod("app=counter")["metadata"]["uid"] == pod["metadata"]["uid"]
    assert_all_kept(counter)
    bring_back()
    wait_asleep(limit=240)
    want("Running")
    wait_phase("Running")
    wait_counting(counter)


def test_a_checkpoint_that_fails_leaves_the_pod_running_and_is_tried_again(clean_slate, small_landing):
    kit.kubectl("cordon", "node2")
    witness = kit.start_counter(kit.counter_yaml())
    pod = kit.ready_pod("app=counter")
    suspend()
    kit.wait("a second failure", lambda: status().get("attempt", {}).get("failures", 0) >= 2, limit=120)
    reason, message = condition()
    assert reason == "DumpFailed" or "space" in message.lower(), (reason, message)
    assert "its pods run on" in kit.wait_event("nb", "NotSuspended")
    want("Running")
    kit.wait("it gives up", lambda: condition()[0] == "Running")
    witness.wait_progress(60)
    assert kit.ready_pod("app=counter")["metadata"]["uid"] == pod["metadata"]["uid"]
    assert_all_kept(witness)


def test_a_users_own_scale_wins_and_loses_nothing(counter):
    suspend()
    wait_asleep()
    kit.kubectl("scale", "deployment/counter", "--replicas=1")
    wait_phase("Running")
    wait_counting(counter)
    assert condition()[0] == "Overridden" and "last word" in kit.wait_event("nb", "Overridden")
    kit.stays("it is left alone", lambda: kit.get("deployment", "counter")["spec"]["replicas"] == 1, seconds=5)
    want("Running")
    kit.wait("the user's word", lambda: condition()[0] == "Running")
    want("Suspended")
    wait_asleep()
    want("Running")
    wait_phase("Running")
    wait_counting(counter)


@pytest.mark.parametrize("on_delete", ("Resume", "Keep"))
def test_deleted_while_it_sleeps_it_resumes_or_sleeps_on(counter, on_delete):
    suspend(on_delete=on_delete)
    wait_asleep()
    kit.kubectl("delete", "sw", "nb", "--timeout=60s")
    if on_delete == "Keep":
        kit.stays("it sleeps on", lambda: kit.get("deployment", "counter")["spec"]["replicas"] == 0, seconds=3)
        kit.kubectl("scale", "deployment/counter", "--replicas=1")
    kit.ready_pod("app=counter", limit=90)
    wait_counting(counter)


def test_another_template_starts_cold_and_says_so(counter):
    suspend()
    wait_asleep()
    kit.kubectl("set", "env", "deployment/counter", "COUNTER_NEW=1")
    want("Running")
    wait_phase("Running")
    assert condition("Restored")[0] == "ColdStart", status()
    assert "0 of 1 pods went on" in kit.wait_event("nb", "ColdStart")


def test_a_leader_that_dies_after_a_write_loses_nothing(counter):
    """Three deaths on the way to sleep, three on the way back."""
    for state, phase in (("Suspended", "Suspended"), ("Running", "Running")):
        if state == "Suspended":
            suspend()
        else:
            want(state)
        deaths = 0

        def there(phase=phase):
            nonlocal deaths
            if status().get("phase") == phase and condition()[0] == phase:
                return True
            if deaths < 3 and not kit.node_path(kit.SYSTEM_NODE, "/run/holdfast/faults/controller.wrote").exists():
                kit.arm_fault(kit.SYSTEM_NODE, "controller.wrote")
                deaths += 1
            return False

        kit.wait(f"phase {phase}", there, limit=240)
        kit.disarm_faults()
        assert deaths > 1, "the controller did not die"
    wait_counting(counter)
    assert len(kit.checkpoints()) == 1, kit.checkpoints()


def test_a_schedule_suspends_and_resumes(counter):
    now = datetime.datetime.now(datetime.timezone.utc)
    first, second = (now + datetime.timedelta(minutes=1 + (now.second > 50) + i) for i in (0, 1))
    # The clock that counts is not the machine's.
    zone = datetime.timezone(datetime.timedelta(hours=5, minutes=30))
    cron = {key: f"{at.astimezone(zone).minute} {at.astimezone(zone).hour} * * *" for key, at in (("suspend", first), ("resume", second))}
    suspend(state="Running")
    kit.kubectl("patch", "sw", "nb", "--type=merge", "-p", json.dumps({"spec": {"schedule": {**cron, "timeZone": "Asia/Kolkata"}}}))
    kit.wait("the schedule is understood", lambda: f"to be suspended at {first:%Y-%m-%dT%H:%M}:00Z" in condition("Scheduled")[1])
    wait_asleep(limit=150)
    wait_phase("Running", limit=150)
    wait_counting(counter)
    assert condition("Restored")[0] == "Restored", status()


def test_a_drain_of_the_node_while_it_sleeps_concerns_nobody_and_it_resumes_elsewhere(counter):
    node = kit.ready_pod("app=counter")["spec"]["nodeName"]
    suspend()
    wait_asleep()
    assert "checkpointing" not in kit.drain(node).output
    want("Running")
    wait_phase("Running")
    assert kit.ready_pod("app=counter")["spec"]["nodeName"] != node
    wait_counting(counter)


def has_room_to_keep(node):
    """The node's disk is more than a fifth free: on one that is not, its cache keeps nothing."""
    disk = os.statvfs(kit.node_path(node, "/var/lib/holdfast"))
    return disk.f_bavail > 0.2 * disk.f_blocks


def kept_on(node):
    return kit.on_node(node, "ls", "/var/lib/holdfast/cache").split()


def test_a_pod_that_comes_back_to_its_node_goes_on_from_what_the_node_kept(clean_slate):
    if not has_room_to_keep("node1"):
        pytest.skip("this machine's disk is less than a fifth free: a node's cache keeps nothing there")
    with releases.switched("agent.cacheBytes", "2Gi", "0"):
        kit.kubectl("cordon", "node2")
        witness = kit.start_counter(kit.counter_yaml())
        suspend()
        wait_asleep()
        uid = kit.checkpoints()[0]["metadata"]["uid"]
        kit.wait("the node keeps it", lambda: f"{uid}.json" in kept_on("node1"), limit=40)
        want("Running")
        wait_counting(witness)
        assert not kept_on("node1"), "the pod has taken it"
