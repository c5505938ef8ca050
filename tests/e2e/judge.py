"""The judge of a fault: whatever broke, each counter is somewhere exactly once, and no count is lost or repeated without an event that
says so. It looks at the witness, the API and the processes and freezers of the nodes, never at logs."""

import dataclasses
import json
import time

import kit
import leaks

TOLD = ("ColdStart", "RestartedCold", "NotProtected")  # events that say that a pod's state was not brought along


@dataclasses.dataclass
class Seen:
    """One look at everything. before, after: the witness' reports, some counts apart."""

    before: dict
    after: dict
    pods: list
    checkpoints: list
    events: list  # of the namespace
    nodes: dict  # node: leaks.node_state


def look(witness, selector, ns="default"):
    before = witness.report()
    nodes = {node: leaks.node_state(node) for node in kit.WORKERS}
    end = time.monotonic() + 3 * kit.SLOW
    while time.monotonic() < end and not _moving(before, witness.report()):
        time.sleep(0.1)
    return Seen(before, witness.report(), kit.pods(selector, ns), kit.checkpoints(ns), kit.get("events.events.k8s.io", ns=ns), nodes)


def _moving(before, after):
    return {nonce for nonce, report in after.items() if report["last"] > before.get(nonce, {"last": 0})["last"]}


def _processes(seen, program):
    """[(node, container id, pod uid)] of the containers in which this program lives, also of such that containerd does not know."""
    return sorted({(node, p["container"][:12], p["pod"]) for node, state in seen.nodes.items() for p in state["processes"] if p["name"] == program and p["state"] != "Z"})


def _untold_restores(seen, live):
    """Checkpoints whose restored pod runs, and whose status does not say how it went."""
    running = {p["metadata"]["uid"]: p["metadata"]["name"] for p in live if kit.is_ready(p)}
    for checkpoint in seen.checkpoints:
        status = checkpoint.get("status", {})
        claimant = status.get("claim", {}).get("podUID")
        told = any(r["podName"] == running.get(claimant) and r["outcome"] != "Started" for r in status.get("restores", []))
        if claimant in running and claimant != status.get("podUID") and not told:
            yield f"Checkpoint {checkpoint['metadata']['name']} does not say how the restore into {running[claimant]} went"


def faults_found(seen, program="counter"):
    """What is wrong, a line each; nothing: each pod counts exactly once, and what was lost was told. Pure."""
    found = []
    for nonce, report in seen.after.items():
        for key in ("lost", "repeated", "monotonic_jumps", "hash_mismatches", "loopback_broken", "share_broken", "two_copies"):
            if report[key]:
                found.append(f"counter {nonce}: {key} = {report[key]}: {json.dumps(report)}")
    live = [p for p in seen.pods if "deletionTimestamp" not in p["metadata"]]
    moving = _moving(seen.before, seen.after)
    if len(moving) != len(live):
        found.append(f"{len(live)} pods {[p['metadata']['name'] for p in live]}, but {len(moving)} counters count: {sorted(moving)}")
    processes = _processes(seen, program)
    if len(processes) != len(live):
        found.append(f"{len(live)} pods, but processes in {len(processes)} containers: {processes}")
    silent = set(seen.after) - moving
    told = [e for e in seen.events if e.get("reason") in TOLD]
    if len(silent) > len(told):
        notes = [e.get("reason", "") + ": " + e.get("note", "") for e in seen.events]
        found.append(f"counters {sorted(silent)} have ended, and only {len(told)} events say so: {notes[-12:]}")
    found += _untold_restores(seen, live)
    for node, state in seen.nodes.items():
        found += [f"{node}: frozen: {path}" for path in state["frozen"]]
    for pod in live:
        if pod["spec"].get("schedulingGates"):
            found.append(f"pod {pod['metadata']['name']} is still gated")
    for checkpoint in seen.checkpoints:
        phase = checkpoint.get("status", {}).get("phase", "Pending")
        if phase not in ("Ready", "Failed"):
            found.append(f"Checkpoint {checkpoint['metadata']['name']} is still {phase}: {kit.ready_reason(checkpoint)}")
    return found


def _state_of(pod, events):
    """What keeps a pod from running, for whoever reads the failure."""
    name, status = pod["metadata"]["name"], pod.get("status", {})
    said = [f"{e.get('reason', '')}: {e.get('note', '')}"[:300] for e in events if e.get("regarding", {}).get("uid") == pod["metadata"]["uid"]]
    states = {s["name"]: s.get("state", {}) for s in status.get("initContainerStatuses", []) + status.get("containerStatuses", [])}
    gates = [g["name"] for g in pod["spec"].get("schedulingGates", [])]
    return f"pod {name} on {pod['spec'].get('nodeName')}: {status.get('phase')}, gates {gates}, {json.dumps(states)}; its events: {said[-8:]}"


def assert_all_is_well(witness, selector="app=counter", limit=60):
    """Waits until nothing is wrong. What cannot become right again (a lost or repeated count, two copies) fails at once."""
    last = []
    seen = None

    def settled():
        nonlocal seen
        seen = look(witness, selector)
        last[:] = faults_found(seen)
        return not last or any(line.startswith("counter ") for line in last)

    try:
        kit.wait("the cluster to settle", settled, limit, every=0.3)
    except kit.Failure as failure:
        states = [_state_of(pod, seen.events) for pod in seen.pods] if seen else []
        orphans = any(": frozen: " in line for line in last)
        raise (kit.Broken if orphans else kit.Failure)("\n".join([str(failure), *last, *states])) from None
    if last:
        raise kit.Broken("\n".join(last))
