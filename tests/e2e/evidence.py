"""What a person needs who reads a failure: kept in HF_EVIDENCE/<test> as the cluster is at that moment. Never fails, and never takes long."""

import json
import os
import pathlib
import shutil
import time

import kit
import leaks
import local_cluster

FOLDER = os.environ.get("HF_EVIDENCE")
SECONDS = 60  # for all of it
TAIL_BYTES = 1 << 20  # of each log


def keep(test, said):
    """Says where it lies; nothing is kept where HF_EVIDENCE is not set."""
    if not FOLDER:
        return ""
    folder = pathlib.Path(FOLDER) / test
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "logs").mkdir(parents=True)
    (folder / "failure.txt").write_text(said)
    end = time.monotonic() + SECONDS

    def note(name, look):
        if time.monotonic() > end:
            return
        try:
            text = look()
        except Exception as error:  # noqa: BLE001: whatever is broken here broke the test, too
            text = f"could not be read: {error}\n"
        (folder / name).write_text(text)

    def kubectl(*words):
        return lambda: kit.kubectl(*words, "--request-timeout=10s", timeout=20, check=False)

    note("events.txt", kubectl("get", "events", "-A", "--sort-by=.lastTimestamp", "-o",
                               "custom-columns=AT:.metadata.creationTimestamp,ON:.involvedObject.name,REASON:.reason,NOTE:.message"))
    note("pods.txt", kubectl("get", "pods", "-A", "-o", "wide"))
    note("checkpoints.txt", kubectl("get", "checkpoints.holdfast.dev", "-A"))
    note("objects.yaml", kubectl("get", "pods,deployments,replicasets,checkpoints.holdfast.dev,restorepolicies,suspendedworkloads,nodes", "-A", "-o", "yaml"))
    note("nodes.txt", lambda: "\n".join(leaks.on_nodes()) + "\n")
    for node in (*kit.WORKERS, kit.SYSTEM_NODE):
        note(f"{node}.json", lambda node=node: json.dumps(leaks.node_state(node), indent=1))
    note("names.txt", kubectl("get", "pods", "-n", kit.SYSTEM, "-o", "name"))
    for pod in (folder / "names.txt").read_text().split():
        name = pod.removeprefix("pod/")
        if name.startswith("holdfast-"):
            note(f"logs/{name}.log", kubectl("logs", name, "-n", kit.SYSTEM, "--all-containers", "--tail=4000"))
            note(f"logs/{name}-previous.log", kubectl("logs", name, "-n", kit.SYSTEM, "--previous", "--tail=1000"))
    for log in [*local_cluster.RUN.glob("log/*.log"), *local_cluster.RUN.glob("node*/log/*.log")]:
        where = log.parent.parent.name
        note(f"logs/{where}-{log.name}", lambda log=log: _tail(log))
    return str(folder)


def _tail(log):
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        return file.read().decode(errors="replace")
