"""Workloads of docs/compatibility.md on their way from node to node, checked by their content after each move."""

import concurrent.futures
import json
import pathlib
import subprocess
import time

import kit
import workloads


class Images:
    """Image name: reference; made where it is missing, and in both workers, when first asked for."""

    def __init__(self):
        self.made = {}

    def __call__(self, name):
        if name not in self.made:
            done = subprocess.run([str(workloads.SOURCES / "image.sh"), name], capture_output=True, text=True, timeout=1800)
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
            tar, self.made[name] = done.stdout.split("\n")[-2].split()
            with concurrent.futures.ThreadPoolExecutor() as pool:
                list(pool.map(lambda node: kit.load_image(node, pathlib.Path(tar), self.made[name]), kit.WORKERS))
        return self.made[name]


class Look:
    """What the containers of a workload's pod say of themselves."""

    def __init__(self, workload, pod):
        self.said = {}
        for status in [*pod["status"]["containerStatuses"], *pod["status"].get("initContainerStatuses", [])]:
            if status["name"] not in workload.run or status["name"] in workload.inits:
                continue
            container = status["containerID"].removeprefix("containerd://")
            text = in_container(pod["spec"]["nodeName"], container, workload.look_command())
            said = json.loads(text)
            if said["errors"]:
                raise Wrong(f"{status['name']}: {said['errors']}")
            self.said[status["name"]] = said

    def values(self, key):
        return {f"{container} {name}": value for container, said in self.said.items() for name, value in said[key].items()}

    def behind(self, other):
        """What has not gone on since the other look."""
        before = other.values("grows")
        return {name: value for name, value in self.values("grows").items() if name not in before or value <= before[name]}


class Wrong(Exception):
    """What cannot become right by waiting."""


def in_container(node, container, command):
    """What `kubectl exec` does, at a tenth of its cost."""
    pid = kit.init_pid(node, container)
    if pid is None:
        raise kit.Failure(f"container {container[:12]} does not run on {node}")
    return kit.on_node(node, "nsenter", "-t", pid, "-m", "-p", "-n", "-i", "-u", "--", "sh", "-c", command, timeout=60)


class Moving:
    """One workload on its way: `problem` is the first thing that was wrong."""

    def __init__(self, workload):
        self.workload, self.problem, self.first, self.pod, self.times = workload, "", None, None, []

    def guarded(self, step):
        if self.problem:
            return
        try:
            step()
        except (Wrong, kit.Failure, AssertionError) as error:
            self.problem = f"{self.workload.name}: {error}"
            if self.pod:
                self.problem += "".join(f"\n    {reason}: {note}" for reason, note in kit.events(self.pod["metadata"]["name"]) if "holdfast" in note.lower() or reason in TELLING)
                said = kit.kubectl("logs", self.pod["metadata"]["name"], "--all-containers", "--tail=5", check=False)
                self.problem += "".join(f"\n    it says: {line[:300]}" for line in said.splitlines())

    def selector(self):
        return f"app={self.workload.name}"

    def goes_on(self, since, limit=120):
        """The first look in which everything that grows has grown since another one."""
        try:
            return self.look(limit, until=lambda look: not look.behind(since))
        except kit.Failure as failure:
            raise kit.Failure(f"{failure}: stands still: {self.look().behind(since)}") from None

    def look(self, limit=120, until=None):
        """The first look that is whole, and of which until(look) is true."""
        kept = []

        def seen():
            try:
                kept[:] = [Look(self.workload, self.pod)]
            except Wrong as wrong:
                return wrong
            return until is None or until(kept[0])

        found = kit.wait(f"{self.workload.name} to say how it is", seen, limit, every=0.2)
        if isinstance(found, Wrong):
            raise found
        return kept[0]

    def start(self):
        self.pod = kit.ready_pod(self.selector(), limit=300)
        self.first = self.goes_on(self.look(240))

    def check_move(self, node):
        old = self.pod
        self.pod = kit.ready_pod(self.selector(), limit=300, not_uid=old["metadata"]["uid"])
        if self.pod["spec"]["nodeName"] != node:
            raise Wrong(f"it is on {self.pod['spec']['nodeName']}, not on {node}")
        restored_from = self.pod["metadata"].get("annotations", {}).get("holdfast.dev/restore")
        if not restored_from:
            raise Wrong(f"it started cold: {failed_checkpoint(old)}")
        outcomes = kit.restores(restored_from)
        if outcomes[0]["outcome"] != "Restored":
            raise Wrong(f"it was not restored: {outcomes}")
        now = self.look()
        self.same(now)
        self.same(self.goes_on(now))

    def same(self, now):
        was, now_values = self.first.values("same"), now.values("same")
        changed = {name: (value, now_values.get(name)) for name, value in was.items() if now_values.get(name) != value}
        if changed:
            raise Wrong("not as it was: " + "; ".join(f"{name}: {now}, was {before}" for name, (before, now) in changed.items())[:1500])
        before = self.first.values("grows")
        back = {name: (before[name], value) for name, value in now.values("grows").items() if value < before.get(name, 0)}
        if back:
            raise Wrong(f"went back: {back}")

    def finish(self):
        if not self.workload.last_act:
            return
        status = self.pod["status"]["containerStatuses"][0]
        in_container(self.pod["spec"]["nodeName"], status["containerID"].removeprefix("containerd://"), f"touch {self.workload.state}/finish")
        done = self.look(until=lambda look: look.values("same").get("main received"))
        self.same(done)
        self.same(self.goes_on(done))


TELLING = ("ColdStart", "RestartedCold", "Unsupported", "NotProtected", "BackOff", "Failed")


def failed_checkpoint(pod):
    for checkpoint in kit.checkpoints():
        if checkpoint["status"].get("podUID") == pod["metadata"]["uid"]:
            return kit.ready_reason(checkpoint)
    return "no checkpoint was made"


def move_all(batch, images, drains):
    """Moves them `drains` times between the workers; the problems of those that did not survive, and how many moves were right."""
    moving, moves = [Moving(workload) for workload in batch], 0
    kit.kubectl("cordon", "node2")
    kit.apply(workloads.as_list([workloads.scripts(), *(workloads.deployment(m.workload, images(m.workload.image)) for m in moving)]))
    kit.wait("all pods are on node1", lambda: all(p["spec"].get("nodeName") == "node1" for p in kit.pods("app")), 60)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:

        def each(step):
            begin = time.monotonic()
            list(pool.map(lambda m: m.guarded(lambda: step(m)), moving))
            print(f"  {time.monotonic() - begin:.1f} s", *(m.problem for m in moving if m.problem), sep="\n  not right: ", flush=True)

        each(Moving.start)
        for turn in range(drains):
            node, other = (("node1", "node2"), ("node2", "node1"))[turn % 2]
            kit.kubectl("uncordon", other)
            print(f"drain of {node}: {kit.drain(node, limit=600).seconds:.1f} s", flush=True)
            each(lambda m, to=other: m.check_move(to))
            moves += sum(not m.problem for m in moving)
        each(Moving.finish)
    return [m.problem for m in moving if m.problem], moves
