"""Workloads that sleep because nobody uses them, as their nodes' agents measure it: what computes stays, what is idle goes, and goes on later."""

import json

import kit
from test_suspend import condition, status, wait_asleep, wait_counting, wait_phase, want

AFTER = 30  # s
IDLE = {"after": f"{AFTER}s", "signals": {"cpu": {"below": "200m"}}}  # the counter uses 10m, more while it is restored


def sleeper(idle=None, name="nb"):
    spec = {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "counter"}, "idle": idle or IDLE}
    kit.apply(json.dumps({"apiVersion": "holdfast.dev/v1alpha1", "kind": "SuspendedWorkload", "metadata": {"name": name}, "spec": spec}))


def said_of_the_pod():
    """The agent's condition: status, reason and message."""
    pod = kit.ready_pod("app=counter")
    found = [c for c in pod["status"].get("conditions", []) if c["type"] == "holdfast.dev/Idle"]
    return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else ("", "", "")


def state(name="nb"):
    return kit.get("suspendedworkloads", name)["spec"]["state"]


def test_what_is_idle_is_suspended_goes_on_when_asked_and_is_suspended_again(counter):
    sleeper()
    kit.wait("the status says since when", lambda: condition("Idle")[0] == "Idle" and status().get("lastActivity"), limit=90)
    assert "to be suspended at" in condition("Idle")[1], status()
    wait_asleep(limit=150)
    assert state() == "Suspended" and status()["lastActivity"] < status()["suspendedAt"], status()
    assert [c["spec"]["trigger"] for c in kit.checkpoints()] == ["Idle"]
    assert "counter was idle for 30s: to be suspended" in kit.wait_event("nb", "Idle")
    assert "of idleness" in kit.wait_event("nb", "Suspended")
    kit.kubectl("scale", "deployment/counter", "--replicas=1")
    wait_phase("Running")
    kit.wait("its time begins anew", lambda: state() == "Running", limit=30)
    wait_counting(counter)
    wait_asleep(limit=150)
    want("Running")
    wait_phase("Running")
    wait_counting(counter)


def test_what_computes_stays_until_it_is_done(counter):
    pod = kit.ready_pod("app=counter")["metadata"]
    sleeper({**IDLE, "signals": {"cpu": {"below": "1m"}}})
    kit.wait("its use is seen", lambda: said_of_the_pod()[:2] == ("False", "Active"), limit=90)
    assert "of CPU, and not less than 1m" in said_of_the_pod()[2]
    kit.wait("the status says so", lambda: condition("Idle")[0] == "Active", limit=30)
    kit.stays("it runs", lambda: state() == "Running" and status().get("phase") == "Running", seconds=2 * AFTER)
    assert kit.ready_pod("app=counter")["metadata"]["uid"] == pod["uid"]
    counter.wait_progress(30)
    # What is no use by another limit is none then.
    kit.kubectl("patch", "sw", "nb", "--type=merge", "-p", json.dumps({"spec": {"idle": {"signals": {"cpu": {"below": "500m"}}}}}))
    wait_asleep(limit=150)
    want("Running")
    wait_phase("Running")
    wait_counting(counter)


def test_what_cannot_be_measured_runs_on_and_the_status_says_why(counter):
    sleeper({"after": "10s", "signals": {"jupyter": {}}})
    kit.wait("the status to say why", lambda: condition("Idle")[0] == "NotMeasured" and "Jupyter" in condition("Idle")[1], limit=120)
    kit.stays("it runs", lambda: state() == "Running", seconds=15)
    counter.wait_progress(30)
    kit.kubectl("patch", "sw", "nb", "--type=json", "-p", json.dumps([{"op": "remove", "path": "/spec/idle"}]))
    kit.wait("nothing of it is left", lambda: condition("Idle") == ("", "") and said_of_the_pod() == ("", "", ""), limit=30)


def test_an_annotation_is_enough_and_its_end_resumes_what_sleeps(counter):
    kit.kubectl("annotate", "deployment/counter", f"holdfast.dev/suspend-when-idle={AFTER}s")
    kit.wait("an object of its own", lambda: (kit.get("suspendedworkloads", "counter") or {}).get("spec", {}).get("idle", {}).get("after") == f"{AFTER}s", limit=30)
    kit.wait("it sleeps", lambda: status("counter").get("phase") == "Suspended", limit=150)
    kit.kubectl("annotate", "deployment/counter", "holdfast.dev/suspend-when-idle-")
    kit.ready_pod("app=counter", limit=90)
    wait_counting(counter)
    kit.wait("the object is gone", lambda: "counter" not in kit.kubectl("get", "sw", "-o", "name"), limit=60)
