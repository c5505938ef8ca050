"""Requests that wake: a Service whose workload sleeps leads to the activator, which wakes it, holds what was asked, and forwards it to the very
process that slept."""

import json
import pathlib
import subprocess
import time

import pytest

import kit
import moving
from test_suspend import condition, status, wait_phase, want

HERE = pathlib.Path(__file__).parent / "on_request"
PAGE = "text/html,application/xhtml+xml"


@pytest.fixture(scope="session")
def image(holdfast):
    return moving.Images()("common")


def container(image, command, **more):
    return {"name": "main", "image": image, "imagePullPolicy": "IfNotPresent", "command": command, "volumeMounts": [{"name": "w", "mountPath": "/w"}], **more}


def pod(image, command, **more):
    return {"terminationGracePeriodSeconds": 1, "containers": [container(image, command, **more)], "volumes": [{"name": "w", "configMap": {"name": "on-request"}}]}


def objects(image):
    labels = {"app": "server"}
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "on-request"}, "data": {f.name: f.read_text() for f in HERE.glob("*.py")}}
    yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "client", "labels": {"app": "client"}}, "spec": pod(image, ["sleep", "infinity"])}
    yield {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "server", "labels": labels, "annotations": {"holdfast.dev/protect": "true"}},
           "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod(
               image, ["python3", "/w/server.py"], resources={"requests": {"cpu": "50m", "memory": "64Mi"}},
               readinessProbe={"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1})}}}
    yield {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "server"},
           "spec": {"selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": 8080}, {"name": "lines", "port": 9000}, {"name": "welcome", "port": 9001}]}}


def sleeper(**on_request):
    spec = {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "server"}, "resume": {"onRequest": {"service": "server", **on_request}}}
    kit.apply(json.dumps({"apiVersion": "holdfast.dev/v1alpha1", "kind": "SuspendedWorkload", "metadata": {"name": "nb"}, "spec": spec}))
    kit.wait("the activator is told", lambda: condition("OnRequest")[0] == "Ready", limit=30)


def ask_in_background(*words):
    client = kit.CLUSTER / "kubectl"
    return subprocess.Popen([str(client), "exec", "client", "--", "python3", "/w/client.py", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def answers(asking, limit=180):
    out, err = asking.communicate(timeout=limit * kit.SLOW)
    assert asking.returncode == 0, out + err
    return json.loads(out)


def ask(*words):
    return answers(ask_in_background(*words))


def state_of(answer):
    assert answer["status"] == 200, answer
    return json.loads(answer["body"])


def slices(ours=True):
    return [s for s in kit.get("endpointslices", selector="kubernetes.io/service-name=server")
            if (s["metadata"]["labels"].get("endpointslice.kubernetes.io/managed-by") == "holdfast.dev") == ours]


def fall_asleep():
    want("Suspended")
    wait_phase("Suspended")
    kit.wait("its Service leads to the activator", lambda: slices() and slices()[0]["endpoints"], limit=30)
    # The pod's address may be dead already while the client's node still knows it: until then connections fail, as with any scale to 0.
    kit.wait("its pod is no endpoint any more", lambda: not any(s.get("endpoints") for s in slices(ours=False)), limit=30)
    kit.wait("the client's node has heard", lambda: all("holdfast-state" in a["headers"] for a in ask("http", "server", "/.holdfast/status", "8")), limit=180)


def wait_awake():
    wait_phase("Running", limit=120)
    kit.wait("its Service leads to the activator no more", lambda: not slices(), limit=30)


def wakes():
    """How often this very object was woken by a request."""
    uid = kit.get("suspendedworkloads", "nb")["metadata"]["uid"]
    said = [e for e in kit.get("events.events.k8s.io") if e["reason"] == "ResumedOnRequest" and e["regarding"]["uid"] == uid]
    return sum(e.get("series", {}).get("count", 1) for e in said)


@pytest.fixture
def server(clean_slate, image):
    """Running, asked once: what it said then."""
    kit.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects(image))}))
    kit.ready_pod("app=client", limit=90)
    kit.ready_pod("app=server", limit=90)
    sleeper()
    yield state_of(kit.wait("it answers", lambda: [a for a in ask("http", "server", "/") if a["status"] == 200])[0])
    for kind, name in (("service", "server"), ("configmap", "on-request")):
        kit.kubectl("delete", kind, name)


def test_a_request_wakes_the_workload_and_is_answered_by_the_very_process_that_slept(server):
    last, seconds = server, []
    for _ in range(3):
        fall_asleep()
        assert kit.get("deployment", "server")["spec"]["replicas"] == 0
        answer = ask("http", "server", "/")[0]
        state = state_of(answer)
        assert (state["born"], state["count"]) == (server["born"], last["count"] + 1), (last, state)
        last = state
        seconds.append(round(answer["seconds"], 2))
        wait_awake()
    print(f"request to answer, asleep: {seconds} s")
    assert "a request to Service server wakes it" in kit.wait_event("nb", "ResumedOnRequest")
    assert kit.get("suspendedworkloads", "nb")["spec"]["state"] == "Running"
    assert condition("Restored")[0] == "Restored", status()
    awake = ask("http", "server", "/")[0]
    assert state_of(awake)["count"] == last["count"] + 1, awake


def test_of_fifty_requests_at_the_same_time_none_is_lost(server):
    fall_asleep()
    found = ask("http", "server", "/", "50")
    states = [state_of(answer) for answer in found]
    assert {s["born"] for s in states} == {server["born"]}, states
    assert sorted(s["count"] for s in states) == list(range(server["count"] + 1, server["count"] + 51)), states
    print(f"50 requests: {min(a['seconds'] for a in found):.2f} to {max(a['seconds'] for a in found):.2f} s")
    wait_awake()
    assert wakes() == 1, kit.events("nb")


def test_a_request_with_a_body_comes_through_whole(server):
    fall_asleep()
    state = state_of(ask("post", "server", "3000000")[0])
    assert state["sum"] == 3000000 and state["born"] == server["born"], state
    wait_awake()


def test_a_browser_gets_a_page_that_waits_and_is_told_how_far_it_is(server):
    fall_asleep()
    slept = ask("http", "server", "/.holdfast/status")[0]
    assert slept["status"] == 200 and json.loads(slept["body"])["phase"] == "Suspended", slept
    kit.stays("to ask how far it is wakes nobody", lambda: status()["phase"] == "Suspended", seconds=2)
    page = ask("http", "server", "/lab", "1", PAGE)[0]
    assert page["status"] == 503 and page["headers"]["content-type"].startswith("text/html") and "retry-after" in page["headers"], page
    assert page["headers"]["cache-control"] == "no-store" and "Deployment server" in page["body"] and page["seconds"] < 7.5, page  # at once, not held as others are
    seen = []

    def ready():
        answer = ask("http", "server", "/.holdfast/status")[0]
        seen.append(answer)
        # The server itself knows no such path: it answers 200 with its own state, and not as the activator.
        return "holdfast-state" not in answer["headers"] or json.loads(answer["body"])["ready"]

    kit.wait("it says that it is ready", ready, limit=60)
    phases = [json.loads(a["body"])["phase"] for a in seen if "holdfast-state" in a["headers"]]
    assert "Resuming" in phases, seen
    wait_awake()
    state = state_of(ask("http", "server", "/lab", "1", PAGE)[0])
    assert state["born"] == server["born"]


@pytest.mark.parametrize("who", ("client-first", "server-first"))
def test_another_protocol_is_held_and_forwarded_too(server, who):
    fall_asleep()
    found = ask(who, "server")[0]
    said = ["one", "two"] if who == "client-first" else ["welcome"]
    assert [line["line"] for line in found["lines"]] == said, found
    assert {line["born"] for line in found["lines"]} == {server["born"]}, found
    wait_awake()


def test_what_cannot_resume_answers_503_in_time_and_says_why_and_wakes_later(server):
    sleeper(holdFor="8s")
    fall_asleep()
    kit.kubectl("cordon", *kit.WORKERS)
    answer = ask("http", "server", "/")[0]
    assert answer["status"] == 503 and "retry-after" in answer["headers"] and 7.5 < answer["seconds"] < 8 + 15 * kit.SLOW, answer
    assert "not awake in time" in answer["body"] and "is Pending" in answer["body"] and answer["body"].count("\n") == 1, answer
    raw = ask("client-first", "server")[0]
    assert raw["lines"] == [] and "error" not in raw and 7.5 < raw["seconds"] < 8 + 15 * kit.SLOW, raw
    kit.uncordon_all()
    assert state_of(ask("http", "server", "/")[0])["born"] == server["born"]
    wait_awake()


def test_a_health_check_that_is_to_be_ignored_wakes_nobody(server):
    sleeper(ignore={"userAgents": ["kube-probe/", "GoogleHC/"], "paths": ["/healthz"]})
    fall_asleep()
    for words in (("/healthz",), ("/", "1", "*/*", "GoogleHC/1.0")):
        answer = ask("http", "server", *words)[0]
        assert (answer["status"], answer["body"]) == (200, "asleep\n"), answer
    kit.stays("it sleeps on", lambda: status()["phase"] == "Suspended", seconds=3)
    assert state_of(ask("http", "server", "/")[0])["born"] == server["born"]
    wait_awake()


def test_an_activator_that_dies_in_the_middle_loses_only_what_it_held(server):
    fall_asleep()
    kit.kubectl("cordon", *kit.WORKERS)
    held = ask_in_background("http", "server", "/")
    kit.wait("it is being woken", lambda: status()["phase"] == "Resuming", limit=30)
    kit.kill_component("activator")
    assert answers(held)[0]["status"] == 0, "its connection was cut"
    kit.uncordon_all()

    def again():
        found = ask("http", "server", "/")[0]
        return found if found["status"] == 200 else None

    state = state_of(kit.wait("a new connection is answered", again, limit=60))
    assert (state["born"], state["count"]) == (server["born"], server["count"] + 1), (server, state)
    wait_awake()


def test_with_two_activators_requests_find_one_while_another_is_replaced(server):
    kit.kubectl("scale", "deployment/holdfast-activator", "--replicas=2", "-n", kit.SYSTEM)
    try:
        kit.kubectl("rollout", "status", "deployment/holdfast-activator", "-n", kit.SYSTEM, "--timeout=60s")
        fall_asleep()
        kit.wait("it leads to both", lambda: len(slices()[0]["endpoints"]) == 2, limit=30)
        kit.kubectl("delete", "pod", kit.component_pods("activator")[0]["metadata"]["name"], "-n", kit.SYSTEM, "--wait=false")
        states = [state_of(answer) for answer in ask("http", "server", "/", "20")]
        assert {s["born"] for s in states} == {server["born"]}, states
        wait_awake()
        assert wakes() == 1, kit.events("nb")
    finally:
        kit.kubectl("scale", "deployment/holdfast-activator", "--replicas=1", "-n", kit.SYSTEM)


def test_a_service_that_cannot_lead_elsewhere_is_refused_with_what_to_do(server):
    def refused(change, reason, text):
        kit.kubectl("delete", "service", "server")
        service = next(o for o in objects("") if o["kind"] == "Service")
        change(service["spec"])
        kit.apply(json.dumps(service))
        kit.wait(f"{reason}: {text}", lambda: condition("OnRequest")[0] == reason and text in condition("OnRequest")[1], limit=30)

    refused(lambda spec: spec.update(clusterIP="None"), "ServiceUnsupported", "name one with a cluster IP")
    refused(lambda spec: spec.update(internalTrafficPolicy="Local"), "ServiceUnsupported", "set it to Cluster")
    refused(lambda spec: spec.update(selector={"app": "other"}), "NotSelected", "does not select the pods of Deployment server")
    refused(lambda spec: None, "Ready", "wake it")


def test_what_is_not_to_wake_on_request_any_more_leads_nowhere(server):
    fall_asleep()
    kit.kubectl("patch", "sw", "nb", "--type=merge", "-p", json.dumps({"spec": {"resume": None}}))
    kit.wait("its Service leads nowhere", lambda: not slices() and "onRequest" not in status(), limit=30)
    assert condition("OnRequest") == ("", "")
    start = time.monotonic()
    assert ask("http", "server", "/")[0]["status"] == 0 and time.monotonic() - start < 10 * kit.SLOW
    assert status()["phase"] == "Suspended"
    want("Running")
    wait_phase("Running")
