#!/usr/bin/env python3
"""Records what a real cluster with Holdfast does to counters that are drained, deleted and forced, as a JSON-lines file of normalised changes, in the
order of their resource versions. replay.h plays the same against the simulation (docs/simulation.md).

    KUBECONFIG=... tests/sim/record.py --out tests/sim/recorded/drains.jsonl     # two workers, kubectl; makes its namespace, and removes it
    tests/sim/record.py --from-raw drains.raw --out drains.jsonl                  # once more, of what --raw kept

Names are by Deployment and order of appearance (counter-1, counter-2), times, addresses and texts are left out.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

from normalise import Normaliser

ROOT = pathlib.Path(__file__).resolve().parents[2]
SYSTEM = "holdfast-system"
NAMESPACE = "holdfast-record"
MARK = "holdfast-record/step"
WATCHED = {"Pod": "pods", "Checkpoint": "checkpoints.holdfast.dev", "ReplicaSet": "replicasets.apps", "Node": "nodes", "Event": "events.events.k8s.io"}
LIMIT = 285  # seconds for everything but the removal of the namespace


class Failure(Exception):
    """A command that failed, or a condition that did not come true."""


class Kubectl:
    """kubectl by the name that is given, with the KUBECONFIG of the environment."""

    def __init__(self, program):
        self.program = program

    def __call__(self, *args, check=True, timeout=120):
        done = subprocess.run([self.program, *args], capture_output=True, text=True, timeout=timeout, check=False)
        if check and done.returncode != 0:
            raise Failure(f"kubectl {' '.join(args)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def get(self, *args):
        return json.loads(self("get", *args, "-o", "json"))

    def start(self, *args, **kwargs):
        return subprocess.Popen([self.program, *args], **kwargs)


def documents(stream):
    """The JSON documents of a stream of text, one after the other, as soon as each is whole."""
    decoder, text = json.JSONDecoder(), ""
    for line in stream:
        text += line
        if line[:1].isspace() or not line.rstrip().endswith("}"):  # inside of a document that is printed over several lines
            continue
        while text := text.lstrip():
            try:
                document, end = decoder.raw_decode(text)
            except ValueError:
                break
            yield document
            text = text[end:]


class Watches:
    """Everything that was seen so far: `seen` is a list of (kind, type, object); `now` the objects as they are, by (kind, name)."""

    def __init__(self, kubectl, ns):
        self.seen, self.now, self.lock, self.processes = [], {}, threading.Lock(), []
        for kind, resource in WATCHED.items():
            where = () if kind == "Node" else ("-n", ns)
            process = kubectl.start(
                "get", resource, *where, "--watch", "--output-watch-events", "-o", "json", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            self.processes.append(process)
            threading.Thread(target=self.read, args=(kind, process.stdout), daemon=True).start()

    def read(self, kind, stream):
        for document in documents(stream):
            thing = document["object"]
            if thing.get("kind") in ("Status", None):
                continue
            with self.lock:
                self.seen.append((kind, document["type"], thing))
                key = (kind, thing["metadata"]["name"])
                if document["type"] == "DELETED":
                    self.now.pop(key, None)
                else:
                    self.now[key] = thing

    def all(self, kind):
        with self.lock:
            return [thing for (of, _), thing in self.now.items() if of == kind]

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


def ready(pod):
    return "deletionTimestamp" not in pod["metadata"] and any(
        c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions", [])
    )


class Recorder:
    """Does what users do, and notes when: `marks` are (resource version, what was done)."""

    def __init__(self, kubectl, ns):
        self.kubectl, self.ns, self.marks = kubectl, ns, []
        self.began = time.monotonic()

    def mark(self, verb, **more):
        """By a write of its own, whose version is the time at which it was."""
        version = self.kubectl(
            "annotate", "namespace", self.ns, f"{MARK}={len(self.marks)}", "--overwrite", "-o", "jsonpath={.metadata.resourceVersion}"
        )
        self.marks.append((int(version), {"do": verb, **more}))
        print(f"[{time.monotonic() - self.began:6.1f} s] {verb} {' '.join(more.values())}", file=sys.stderr, flush=True)

    def wait(self, what, condition, limit=60):
        end = time.monotonic() + limit
        while not (found := condition()):
            if time.monotonic() > end:
                raise Failure(f"not within {limit} s: {what}")
            time.sleep(0.01)
        return found

    def pod(self, app, unlike=""):
        """The one pod of a Deployment, once it is ready and not the one of that uid."""

        def look():
            pods = [p for p in self.watches.all("Pod") if p["metadata"].get("labels", {}).get("app") == app]
            return pods[0] if len(pods) == 1 and ready(pods[0]) and pods[0]["metadata"]["uid"] != unlike else None

        return self.wait(f"{app} is ready", look, 90)

    def prepare(self):
        self.kubectl("create", "namespace", self.ns)
        self.watches = Watches(self.kubectl, self.ns)
        labels = ("-l", "holdfast.dev/runtime=ready", "-o", "name")
        workers = [name.removeprefix("node/") for name in self.kubectl("get", "nodes", *labels).split()]
        if len(workers) < 2:
            raise Failure(f"two nodes with the label holdfast.dev/runtime=ready are needed, there is {workers}")
        return workers

    def deploy(self):
        self.mark("deploy")
        for example in ("counter.yaml", "two-containers.yaml"):
            self.kubectl("apply", "-n", self.ns, "-f", str(ROOT / "examples" / example))
        for app in ("witness", "counter", "two-containers"):
            self.pod(app)
        time.sleep(2)

    def drain(self, kill=None):
        """The node of the counter; `kill` is ended as soon as the counter's Checkpoint is under way."""
        before = {app: self.pod(app) for app in ("counter", "two-containers")}
        node = before["counter"]["spec"]["nodeName"]
        victim = self.victim(kill, node)
        self.mark("drain", node=node)
        options = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=120s")
        draining = self.kubectl.start("drain", node, *options, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if kill:
            self.wait("a Checkpoint of the counter is under way", lambda: self.phase(before["counter"]) not in ("", "Pending"), 60)
            ending = self.kubectl.start("delete", "pod", victim, "-n", SYSTEM, "--grace-period=1", "--wait=false", stdout=subprocess.DEVNULL)
            self.mark("kill", who=kill, node=node)
            if ending.wait(timeout=60) != 0:
                raise Failure(f"kubectl delete pod {victim}: exit {ending.returncode}")
        said, _ = draining.communicate(timeout=150)
        if draining.returncode != 0:
            raise Failure(f"kubectl drain: exit {draining.returncode}\n{said}")
        self.mark("drained", node=node)
        for app, pod in before.items():
            self.pod(app, pod["metadata"]["uid"] if pod["spec"]["nodeName"] == node else "")
        self.kubectl("uncordon", node)
        self.mark("uncordoned", node=node)
        self.settle(node)

    def phase(self, pod):
        mine = [c for c in self.watches.all("Checkpoint") if c["spec"]["podRef"].get("uid") == pod["metadata"]["uid"]]
        return mine[0].get("status", {}).get("phase", "") if mine else ""

    def victim(self, component, node):
        if component == "agent":
            found = self.kubectl.get("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component=agent", f"--field-selector=spec.nodeName={node}")
            return found["items"][0]["metadata"]["name"]
        if component == "controller":
            return self.kubectl.get("leases.coordination.k8s.io", "holdfast-controller", "-n", SYSTEM)["spec"]["holderIdentity"]
        return None

    def settle(self, node):
        """Until Holdfast is whole again, and what it does afterwards (events, the end of claims) is done."""
        for what in ("deployment/holdfast-controller", "daemonset/holdfast-agent"):
            self.kubectl("rollout", "status", what, "-n", SYSTEM, "--timeout=60s")
        self.wait(f"{node} is ready for checkpoints", lambda: "holdfast.dev/runtime" in self.kubectl("get", "node", node, "-o", "jsonpath={.metadata.labels}"), 30)
        time.sleep(3)

    def delete(self, app, *how):
        pod = self.pod(app)
        self.mark("delete", app=app, how=" ".join(how))
        self.kubectl("delete", "pod", pod["metadata"]["name"], "-n", self.ns, "--wait=false", *how)
        self.pod(app, pod["metadata"]["uid"])
        time.sleep(3)

    def play(self):
        self.deploy()
        self.drain()
        self.delete("counter")
        self.drain()
        self.delete("two-containers", "--force", "--grace-period=0")
        self.drain(kill="controller")
        self.drain(kill="agent")
        self.mark("end")

    def tidy(self, workers):
        self.kubectl("uncordon", *workers, check=False)
        self.kubectl("delete", "namespace", self.ns, "--wait=true", "--timeout=90s", check=False, timeout=120)


def too_late(*_):
    raise Failure(f"it has not come to its end within {LIMIT} s")


def record(options):
    recorder, workers = Recorder(Kubectl(options.kubectl), options.namespace), []
    for name in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(name, too_late)
    signal.alarm(LIMIT)
    failed = None
    try:
        workers = recorder.prepare()
        recorder.play()
        time.sleep(1)
    except (Failure, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        failed = error  # what there is is written all the same
    signal.alarm(0)
    if hasattr(recorder, "watches"):
        recorder.watches.stop()
    recorder.tidy(workers)
    seen = recorder.watches.seen if hasattr(recorder, "watches") else []
    return {"workers": sorted(workers), "marks": recorder.marks, "seen": seen}, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="the recording, normalised")
    parser.add_argument("--raw", help="also what was seen, as it was: with names and addresses, not to be kept")
    parser.add_argument("--from-raw", help="normalise this, and record nothing")
    parser.add_argument("--kubectl", default=os.environ.get("KUBECTL", "kubectl"))
    parser.add_argument("--namespace", default=NAMESPACE)
    options = parser.parse_args()
    raw, failed = (json.loads(pathlib.Path(options.from_raw).read_text()), None) if options.from_raw else record(options)
    if options.raw:
        pathlib.Path(options.raw).write_text(json.dumps(raw))
    lines = Normaliser(raw["workers"]).lines(raw["marks"], raw["seen"])
    pathlib.Path(options.out).write_text("".join(json.dumps(line, sort_keys=True) + "\n" for line in lines))
    print(f"{len(lines)} changes of {len(raw['seen'])} that were seen: {options.out}", file=sys.stderr)
    if failed:
        sys.exit(f"record.py: {failed}")


if __name__ == "__main__":
    main()
