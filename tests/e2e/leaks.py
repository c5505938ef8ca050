"""What Holdfast and its pods must not leave behind, on nodes, in the store and in the API."""

import json
import pathlib
import re

import kit
import local_cluster

SCRIPT = (pathlib.Path(__file__).parent / "node_state.py").read_text()
OURS = ("criu", "runc", "holdfast-runc", "holdfast-wait")
POD_MOUNT = re.compile(r"^/var/lib/kubelet/pods/([0-9a-f-]{36})/")
TASK_MOUNT = re.compile(r"^/run/containerd/io\.containerd\.(?:runtime\.v2\.task/k8s\.io|grpc\.v1\.cri/sandboxes)/([0-9a-f]{64})")


def node_state(node):
    return json.loads(kit.on_node(node, "python3", "-", f"{local_cluster.BRIDGE}-{node}", stdin=SCRIPT))


def uids(objects):
    return {o["metadata"]["uid"] for o in objects}


def _of_node(node, state, pods, checkpoints):
    """Lines about one node. pods, checkpoints: the uids of all that the API server has."""
    tasks = state["tasks"]
    for process in state["processes"]:
        what = f"process {process['pid']} ({process['args'] or process['name']})"
        if process["pod"] and process["pod"] not in pods:
            yield f"{what} of pod {process['pod']}, which is gone"
        elif process["state"] == "Z":
            yield f"{what}: a zombie"
        elif process["name"] in OURS and not process["container"]:
            yield f"{what} without a pod"
    yield from (f"container {name} of pod {task['pod']}, which is gone" for name, task in tasks.items() if task["pod"] not in pods)
    yield from (f"runc's state of container {name}, which containerd does not have" for name in state["runc"] if name not in tasks)
    yield from (f"cgroup of pod {uid}, which is gone" for uid in state["cgroups"] if uid not in pods)
    yield from (f"frozen: {path}" for path in state["frozen"])
    yield from (f"address on lo: {address}" for address in state["addresses"])
    used = {task["netns"] for task in tasks.values()}
    yield from (f"network namespace {path} without a sandbox" for path in state["netns"] if path not in used)
    for mount in state["mounts"]:
        if mount.endswith("/pinned-namespaces/user"):
            continue  # containerd's own: it stays when a pod with hostUsers: false goes while its sandbox is made
        of_pod, of_task = POD_MOUNT.match(mount), TASK_MOUNT.match(mount)
        if (of_pod and of_pod.group(1) not in pods) or (of_task and of_task.group(1) not in tasks):
            yield f"mount {mount} of a pod that is gone"
        if mount != kit.LANDING_MEMORY and mount.startswith(("/run/holdfast", "/var/lib/holdfast", "/run/containerd/runc/")):
            yield f"mount {mount}"
    owners = {"pod": pods, "checkpoint": checkpoints, "container": set(tasks)}
    for file in state["files"]:
        kept = file["path"].startswith(("/var/lib/holdfast-store/manifests", "/var/lib/holdfast/cache")) or file["of"] in ("pod", "container")
        if not kept or file["id"] not in owners[file["of"]]:
            yield file["path"]


def on_nodes():
    """What lies on the nodes and in the store of pods and Checkpoints that are gone, and what no pod at rest has. Lines."""
    pods, checkpoints = uids(kit.get("pods", ns=None)), uids(kit.checkpoints(ns=None))
    return [f"{node}: {line}" for node in (*kit.WORKERS, kit.SYSTEM_NODE) for line in _of_node(node, node_state(node), pods, checkpoints)]


def in_the_api():
    """Promises in the API that nobody will keep: gates without a Checkpoint to wait for, claims of pods that are gone. Lines."""
    pods, found = kit.get("pods", ns=None), []
    all_checkpoints = kit.checkpoints(ns=None)
    waiting = any(c.get("status", {}).get("phase") not in ("Ready", "Failed") for c in all_checkpoints)
    for pod in pods:
        gates = [g["name"] for g in pod["spec"].get("schedulingGates", [])]
        if "holdfast.dev/claim" in gates and not waiting and "deletionTimestamp" not in pod["metadata"]:
            found.append(f"pod {pod['metadata']['name']} is gated, and no Checkpoint is being made")
    alive = uids(pods)
    for checkpoint in all_checkpoints:
        status, name = checkpoint.get("status", {}), checkpoint["metadata"]["name"]
        claim = status.get("claim")
        told = claim and any(r["podName"] == claim["podName"] for r in status.get("restores", []))
        if claim and claim["podUID"] not in alive and not told and claim["podUID"] != status.get("podUID"):
            found.append(f"Checkpoint {name} is claimed by {claim['podName']}, which is gone without an outcome")
        if "deletionTimestamp" in checkpoint["metadata"]:
            found.append(f"Checkpoint {name} does not go away")
    return found
