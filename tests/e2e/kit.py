"""What the end-to-end tests and the demo do to the local cluster: kubectl, drains, the witness and faults.

Every wait has a limit and says what it waited for. What may be left behind: leaks.py; what may have gone wrong: judge.py.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import subprocess
import time
import urllib.request

import local_cluster
from api import get

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "tests" / "cluster"
WORKERS = ("node1", "node2")
SYSTEM_NODE = "node3"
SYSTEM = "holdfast-system"
SLOW = float(os.environ.get("HF_SLOW") or 1)  # how many times longer than on a quiet machine things take here; every limit is multiplied by it
LANDING_MEMORY = "/run/holdfast/memory"  # the agent's mount on a node; empty at rest


class Failure(AssertionError):
    """A condition that did not come true, or a command that failed."""


class Broken(Failure):
    """The promise was broken: state lost, repeated, or there twice. Such a test is not tried a second time (scripts/test.py)."""

    def __init__(self, what):
        super().__init__(f"PROMISE BROKEN: {what}")


def run(*args, check=True, timeout=120, stdin=None, env=None, cwd=None):
    """Runs a command and returns its stdout; Failure with both streams when it fails."""
    done = subprocess.run(
        [str(a) for a in args], input=stdin, capture_output=True, text=True, timeout=timeout * SLOW, env={**os.environ, **(env or {})}, cwd=cwd
    )
    if check and done.returncode != 0:
        raise Failure(f"{' '.join(map(str, args))}\nexit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def of_this_commit(steps, count):
    """In the gate so many of these steps, which change from commit to commit; else all."""
    if os.environ.get("HF_RING") != "gate":
        return steps
    few = sorted(steps, key=lambda step: hashlib.sha256(f"{os.environ.get('HF_SEED')} {step}".encode()).digest())[:count]
    return [step for step in steps if step in few]


def kubectl(*args, **kwargs):
    return run(CLUSTER / "kubectl", *args, **kwargs)


def kubectl_fails(*args, stdin=None):
    """Runs a kubectl command that must be refused, and returns what it said."""
    done = subprocess.run([str(CLUSTER / "kubectl"), *map(str, args)], input=stdin, capture_output=True, text=True, timeout=60)
    if done.returncode == 0:
        raise Failure(f"kubectl {' '.join(args)} was accepted:\n{done.stdout}")
    return done.stdout + done.stderr


def apply(text, ns="default"):
    return kubectl("apply", "-n", ns, "-f", "-", stdin=text)


def wait(what, condition, limit=60.0, every=0.1):
    """The first truthy value of condition(); Failure naming `what` after `limit` seconds (times SLOW). Errors of a single look count as not yet."""
    limit *= SLOW
    end = time.monotonic() + limit
    last = None
    while True:
        try:
            value = condition()
            if value:
                return value
            last = None
        except Broken:
            raise
        except (Failure, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
            last = error
        if time.monotonic() > end:
            raise Failure(f"not within {limit:.0f} s: {what}" + (f" (last error: {last})" if last else ""))
        time.sleep(every)


def stays(what, condition, seconds):
    """Failure as soon as condition() is not truthy, within so many seconds: for what must not come."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not condition():
            raise Failure(f"it did not stay so for {seconds} s: {what}")
        time.sleep(0.2)


def on_node(node, *command, check=True, timeout=60, stdin=None):
    """Runs a command inside a node: in its namespaces (what tests/cluster/node-exec does)."""
    spaces = ("--mount", "--net", "--pid", "--ipc", "--uts")
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    entered = ("nsenter", "-t", local_cluster.node_pid(node), *spaces, "--", "env", "-i", "HOME=/root", path)
    return run(*entered, *command, check=check, timeout=timeout, stdin=stdin)


def load_image(node, tar, reference):
    """Imports an image archive into a node, where it is not there yet."""
    if reference in on_node(node, "ctr", "-n", "k8s.io", "images", "ls", "-q", f"name=={reference}").split():
        return
    there = local_cluster.RUN / node / "images" / tar.name  # the node's /opt/images
    there.unlink(missing_ok=True)
    os.link(tar, there)
    try:
        on_node(node, "ctr", "-n", "k8s.io", "images", "import", f"/opt/images/{tar.name}", timeout=300)
    finally:
        there.unlink()


def node_path(node, path):
    """A file of a node, as this machine sees it."""
    return pathlib.Path(f"/proc/{local_cluster.node_pid(node)}/root{path}")


# --- pods ---------------------------------------------------------------------------------------------------------------------------


def pods(selector, ns="default"):
    return get("pods", ns=ns, selector=selector)


def live_pod(selector, ns="default"):
    """The single pod that is not terminating, or None."""
    found = [p for p in pods(selector, ns) if "deletionTimestamp" not in p["metadata"]]
    return found[0] if len(found) == 1 else None


def is_ready(pod):
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions", []))


def ready_pod(selector, ns="default", limit=60.0, not_uid=None):
    def look():
        pod = live_pod(selector, ns)
        if pod and is_ready(pod) and pod["metadata"]["uid"] != not_uid:
            return pod
        return None

    return wait(f"a ready pod with {selector} in {ns}", look, limit)


def events(about, ns="default"):
    """[(reason, note)] of the events on the object with this name."""
    found = [e for e in get("events.events.k8s.io", ns=ns) if e.get("regarding", {}).get("name") == about]
    return [(e.get("reason", ""), e.get("note", "")) for e in found]


def wait_event(about, reason, ns="default", limit=30.0):
    def look():
        return [note for r, note in events(about, ns) if r == reason]

    return wait(f"event {reason} on {about}", look, limit)[0]


def checkpoints(ns="default"):
    return get("checkpoints.holdfast.dev", ns=ns)


def ended(name, limit=60.0):
    """The Checkpoint of this name once it is Ready or Failed."""

    def look():
        checkpoint = get("checkpoints.holdfast.dev", name)
        return checkpoint if checkpoint.get("status", {}).get("phase") in ("Ready", "Failed") else None

    return wait(f"checkpoint {name} to end", look, limit)


def restores(name):
    """What came of the restores from this Checkpoint, once none is under way."""

    def look():
        found = get("checkpoints.holdfast.dev", name)["status"].get("restores", [])
        return found if found and all(r["outcome"] != "Started" for r in found) else None

    return wait("the outcome of the restore", look)


def ready_reason(checkpoint):
    conditions = checkpoint.get("status", {}).get("conditions", [])
    return next(((c["reason"], c.get("message", "")) for c in conditions if c["type"] == "Ready"), ("", ""))


# --- drains -------------------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Drain:
    node: str
    seconds: float
    output: str


def drain(node, *extra, limit=120):
    start = time.monotonic()
    draining = drain_in_background(node, *extra)
    try:
        output, _ = draining.communicate(timeout=limit * SLOW)
    finally:
        draining.kill()
    if draining.returncode != 0:
        raise Failure(f"kubectl drain {node}: exit {draining.returncode}\n{output}")
    return Drain(node, time.monotonic() - start, output)


def drain_in_background(node, *extra):
    """Starts a drain; communicate() on the returned process ends it."""
    return subprocess.Popen(
        [str(CLUSTER / "kubectl"), "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", *extra],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )


def uncordon_all():
    kubectl("uncordon", *WORKERS)


# --- the witness --------------------------------------------------------------------------------------------------------------------


class Witness:
    """The pod that counters report to. It judges; logs do not."""

    def __init__(self, ns="default"):
        self.ns = ns
        pod = ready_pod("app=witness", ns)
        self.url = f"http://{pod['status']['podIP']}:8080"

    def _call(self, path, method="GET"):
        request = urllib.request.Request(self.url + path, method=method)
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.read().decode()

    def report(self):
        return json.loads(self._call("/report"))["nonces"]

    def reset(self):
        self._call("/reset", "POST")

    def only(self):
        """The report on the one counter that exists."""
        found = self.report()
        if len(found) != 1:
            raise Failure(f"the witness knows {len(found)} counters, not 1: a counter started cold. {json.dumps(found)}")
        return next(iter(found.values()))

    def wait_progress(self, limit=30.0):
        """Waits until every counter has gone on by at least one count from now."""
        before = {n: r["last"] for n, r in self.report().items()}
        if not before:
            wait("the first count at the witness", self.report, limit)
            before = {n: r["last"] for n, r in self.report().items()}
        standing = []

        def all_go_on():
            now = self.report()
            standing[:] = [n for n, last in before.items() if now[n]["last"] <= last]
            return not standing

        try:
            wait("counts going on", all_go_on, limit)
        except Failure as failure:
            cold = {e["regarding"]["name"]: e.get("note") for e in get("events.events.k8s.io", ns=self.ns) if e.get("reason") == "ColdStart"}
            raise Failure(f"{failure}. Of {len(before)} counters {len(standing)} stand still: {standing}; cold starts: {json.dumps(cold)}") from None


def assert_nothing_lost(report):
    """What the promise says of one counter's history at the witness."""
    for key in ("lost", "repeated", "monotonic_jumps", "hash_mismatches", "loopback_broken", "share_broken", "two_copies"):
        if report[key]:
            raise Broken(f"{key} = {report[key]}: {json.dumps(report)}")


def assert_own_clock_stood_still(report, moves):
    """Of the gap of each of its moves, the longest ones that there are, a process lives through its stop, its start and the reset of its outside
    connection, by its own CLOCK_MONOTONIC, and not through the time in between. (One that was thawed instead lives through all of it.)"""
    longest = sorted(report["gaps"], key=lambda gap: -gap["ms"])[:moves]
    if not longest or any(gap["monotonic_ms"] > 0.7 * gap["ms"] for gap in longest):
        raise Failure(f"CLOCK_MONOTONIC went on while the process was away, or its outside connection was not reset at once: {json.dumps(report)}")


# --- the counter --------------------------------------------------------------------------------------------------------------------


def counter_yaml(mib=30):
    """The example counter and its witness, with less memory: what is about faults and not about size shall not take its time."""
    text = (ROOT / "examples" / "counter.yaml").read_text()
    return text.replace('value: "300"', f'value: "{mib}"').replace("memory: 330Mi", f"memory: {mib + 30}Mi")


def start_counter(text):
    """Applies counter and witness, and waits until it counts: its witness."""
    apply(text)
    ready_pod("app=witness")
    ready_pod("app=counter", limit=90)
    witness = Witness()
    witness.wait_progress()
    return witness


# --- faults -------------------------------------------------------------------------------------------------------------------------


def component_pods(component):
    return pods(f"app.kubernetes.io/component={component}", SYSTEM)


def kill_component(component, node=None, name=None):
    """kill -9 of the processes of a Holdfast component (on one node, of one pod)."""
    for pod in component_pods(component):
        where = pod["spec"].get("nodeName")
        if (node and where != node) or (name and pod["metadata"]["name"] != name):
            continue
        for status in pod["status"].get("containerStatuses", []):
            pid = init_pid(where, status.get("containerID", "").removeprefix("containerd://"))
            if pid:
                on_node(where, "kill", "-9", pid, check=False)


def arm_fault(node, point, order="kill"):
    """Makes the named fault point on a node act once (base/fault_point.h)."""
    folder = "/run/holdfast/faults"
    on_node(node, "sh", "-c", f"mkdir -p {folder} && chmod 777 {folder} && printf '%s' '{order}' > {folder}/.new && mv {folder}/.new {folder}/{point}")


def assert_fault_hit(node, point):
    """The fault point acted: a process that reaches it takes its order away."""
    wait(f"a process reaches the fault point {point} on {node}", lambda: not node_path(node, f"/run/holdfast/faults/{point}").exists(), 30)


def assert_fault_not_hit(node, point):
    """Nobody came to the fault point since it was armed."""
    if not node_path(node, f"/run/holdfast/faults/{point}").exists():
        raise Failure(f"a process reached the fault point {point} on {node}")


def disarm_faults():
    for node in (*WORKERS, SYSTEM_NODE):
        on_node(node, "sh", "-c", "rm -rf /run/holdfast/faults/*", check=False)


def cut_off(node):
    """Nothing goes in or out of the node any more; what runs there runs on."""
    run("ip", "link", "set", f"{local_cluster.BRIDGE}-{node.removeprefix('node')}", "down")


def connect_again(node):
    run("ip", "link", "set", f"{local_cluster.BRIDGE}-{node.removeprefix('node')}", "up")


def node_is_ready(node):
    conditions = get("node", node)["status"]["conditions"]
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def reboot(node):
    """Takes the node's power away and starts it again. Returns when its kubelet and its agent are back."""

    def agent():
        pod = next(p for p in component_pods("agent") if p["spec"]["nodeName"] == node)
        return pod["metadata"]["uid"], pod["status"]["containerStatuses"][0].get("containerID"), is_ready(pod)

    before = agent()[:2]
    run(CLUSTER / "boot.sh", node)
    wait(f"{node} and its agent are back", lambda: agent()[:2] != before and agent()[2] and node_is_ready(node), limit=120, every=0.5)


OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def container_id(pod):
    return pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")


def init_pid(node, container):
    """The container's first process as its node sees it; nothing when containerd has no such task."""
    try:
        return int(node_path(node, f"/run/containerd/io.containerd.runtime.v2.task/k8s.io/{container}/init.pid").read_text())
    except (OSError, ValueError):
        return None


def runs(node, container):
    """Whether a process of this container is alive on the node, as the kernel has it."""
    pid = init_pid(node, container)
    try:
        return pid is not None and node_path(node, f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def remove_everything():
    """Workloads, Checkpoints and events of the namespace that tests use; also what a demo left there."""
    for kinds in (("suspendedworkloads",), ("poddisruptionbudgets", "deployments", "statefulsets", "jobs", "pods"), ("checkpoints",)):
        there = [kind for kind in kinds if get(kind)]
        if there:
            kubectl("delete", ",".join(there), "--all", "-n", "default", "--wait=true", "--timeout=90s", timeout=120)
    kubectl("delete", "--raw", "/apis/events.k8s.io/v1/namespaces/default/events")
