"""The same process under Holdfast: moved by `kubectl drain` from node2 to node1, and then one checkpoint of it as it runs on."""

import json
import threading
import time

import kit
import meter

FROM, TO = "node2", "node1"
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: bench-holdfast, annotations: {holdfast.dev/protect: "true"}}
spec:
  selector: {matchLabels: {app: bench-holdfast}}
  template:
    metadata: {labels: {app: bench-holdfast}}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 30
      containers: [{name: holder, image: "%(image)s", imagePullPolicy: IfNotPresent, args: %(args)s}]
"""
CHECKPOINT = """
apiVersion: holdfast.dev/v1alpha1
kind: Checkpoint
metadata: {name: bench}
spec: {podRef: {name: %s}}
"""
SELECTOR = "app=bench-holdfast"


class Phases(threading.Thread):
    """When the only Checkpoint was first seen in each phase; looks 50 times a second."""

    def __init__(self):
        super().__init__(daemon=True)
        self.seen, self.landing, self._over = {}, "", threading.Event()

    def run(self):
        while not self._over.wait(0.02):
            try:
                for checkpoint in kit.checkpoints():
                    self.seen.setdefault(checkpoint.get("status", {}).get("phase"), time.time())
                    if not self.landing and "Dumping" in self.seen:
                        there = kit.node_path(FROM, f"{kit.LANDING_MEMORY}/landing/{checkpoint['metadata']['uid']}").exists()
                        self.landing = "memory" if there else "disk"
            except OSError:
                continue  # the next look is soon

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self.join()


def clean():
    kit.kubectl("delete", "deployments,checkpoints.holdfast.dev", "--all", "-n", "default", "--wait=true", "--timeout=120s", timeout=150)
    kit.wait("its pods are gone", lambda: not kit.pods(SELECTOR), 60)
    kit.wait("the store has forgotten it", lambda: not kit.checkpoints(), 60)


def move(image, mebibytes, seed):
    """One drain, and one more checkpoint: {what: value}, in seconds and bytes."""
    try:
        kit.kubectl("cordon", TO)
        kit.apply(DEPLOYMENT % {"image": image, "args": json.dumps([str(mebibytes), str(seed)])})
        old = kit.ready_pod(SELECTOR)
        kit.kubectl("uncordon", TO)
        kit.wait("it holds its memory", lambda: "ready" in meter.said(old["metadata"]["name"]), 180)
        written = meter.Written()
        with Phases() as phases:
            began = time.time()
            kit.drain(FROM, limit=300)
            new = kit.ready_pod(SELECTOR, limit=300, not_uid=old["metadata"]["uid"])["metadata"]["name"]
        dumped, ready = phases.seen["Storing"], phases.seen["Ready"]
        gap = meter.gap_around(new, ready)
        files, disk = written.until_now()
        stored = kit.checkpoints()[0]["status"]
        out = {"landing": phases.landing, "gap": gap.seconds, "drain": gap.first - began, "dump": dumped - began, "store": ready - dumped, "restore": gap.first - ready, "files": files,
               "disk": disk, "timings": stored["timings"], "size": stored["size"]}
        asked = time.time()
        kit.apply(CHECKPOINT % new)
        made = kit.ended("bench", limit=180)
        if made["status"]["phase"] != "Ready":
            raise kit.Failure(f"the checkpoint of the running process: {made['status']}")
        return {**out, "frozen": meter.freeze(new, asked).seconds, "frozen_timings": made["status"]["timings"]}
    finally:
        kit.uncordon_all()
        clean()
