"""Breaks Holdfast's processes, containerd and the kubelet at exact points of a drain (base/fault_point.h)."""

import contextlib
import time

import judge
import kit
import network

# Where a drain passes, in its order: on the node that is drained, on the one that takes the pod over, or where controller and store run.
OLD, NEW, SYSTEM = "old", "new", "system"
POINTS = {
    "controller.assigned": SYSTEM,
    "agent.intent_written": OLD,
    "agent.frozen": OLD,
    "runtime.frozen": OLD,
    "runtime.dumped_one": OLD,
    "runtime.beside_held": OLD,
    "runtime.before_result": OLD,
    "agent.dumped": OLD,
    "ingest.segment_sent": OLD,
    "store.put": SYSTEM,
    "agent.before_commit": OLD,
    "agent.commit_asked": OLD,
    "store.before_sync": SYSTEM,
    "store.before_manifest_rename": SYSTEM,
    "store.after_manifest_rename": SYSTEM,
    "agent.after_commit": OLD,
    "agent.before_ready": OLD,
    "controller.before_evict": SYSTEM,
    "controller.after_evict": SYSTEM,
    "runtime.before_kill": OLD,
    "runtime.before_thaw": OLD,
    "controller.claimed": SYSTEM,
    "agent.fetched": NEW,
    "agent.before_restore_answer": NEW,
    "runtime.before_restore": NEW,
    "runtime.after_restore": NEW,
}
HOLDFAST = ("controller", "agent", "store")
NODE = ("containerd", "kubelet")
ITSELF = "itself"  # the process that reaches the point
VICTIMS = (ITSELF, *HOLDFAST, *NODE)


def other(node):
    return next(n for n in kit.WORKERS if n != node)


def place(point, drained):
    """The node on which a point is reached when `drained` is drained."""
    return {OLD: drained, NEW: other(drained), SYSTEM: kit.SYSTEM_NODE}[POINTS[point]]


def leader():
    """The name of the controller's pod that leads. The other one answers webhooks."""
    return kit.get("lease", "holdfast-controller", kit.SYSTEM)["spec"]["holderIdentity"]


def kill(victim, node):
    """kill -9 of a component that serves this worker; whatever supervises it starts it again."""
    if victim == "controller":
        kit.kill_component(victim, name=leader())
    elif victim in NODE:
        kit.on_node(node, "sh", "-c", f"kill -9 $(cat /run/node/{victim}.pid)")
    else:
        kit.kill_component(victim, node if victim == "agent" else None)


class Hold:
    """A process that waits at a point from when it reaches it until go()."""

    def __init__(self, node, point):
        self.node, self.point = node, point
        self.order = kit.node_path(node, f"/run/holdfast/faults/{point}")
        self.hit = kit.node_path(node, f"/run/holdfast/faults/{point}.hit")

    def wait(self, limit=60):
        kit.wait(f"{self.point} on {self.node} to be reached", self.hit.exists, limit, every=0.05)

    def go(self):
        self.hit.unlink(missing_ok=True)
        self.order.unlink(missing_ok=True)


@contextlib.contextmanager
def held(node, point):
    """Arms a point so that whoever reaches it waits; gone on with at the end, whatever happens."""
    hold = Hold(node, point)
    kit.arm_fault(node, point, "wait")
    try:
        yield hold
    finally:
        hold.go()


@contextlib.contextmanager
def draining(node, limit=150):
    """A drain in the background. It must end, and succeed, within `limit` seconds after the block."""
    process = kit.drain_in_background(node)
    try:
        yield process
        output, _ = process.communicate(timeout=limit * kit.SLOW)
    finally:
        process.kill()
    if process.returncode != 0:
        raise kit.Failure(f"kubectl drain {node}: exit {process.returncode}\n{output}")


def plain_drain(witness, limit=60):
    """Drains the counter's node; nothing breaks."""
    with draining(kit.ready_pod("app=counter")["spec"]["nodeName"]):
        pass
    judge.assert_all_is_well(witness, limit=limit)
    kit.uncordon_all()


def drain_meanwhile(witness, point, do, limit=60):
    """Drains the counter's node, and calls do(node) while the drain waits at `point`. In the end the pod is elsewhere, and all is well."""
    node = kit.ready_pod("app=counter")["spec"]["nodeName"]
    with held(place(point, node), point) as hold, draining(node):  # points on the new node may come when the drain is over
        hold.wait()
        do(node)
        hold.go()
    judge.assert_all_is_well(witness, limit=limit)
    kit.uncordon_all()


def drain_with_kill(witness, point, victim):
    """Drains the counter's node; kills `victim` where the drain passes `point`. In the end the pod is elsewhere, and all is well."""
    if victim != ITSELF:
        drain_meanwhile(witness, point, lambda node: kill(victim, other(node) if POINTS[point] == NEW else node))
        return
    at = place(point, kit.ready_pod("app=counter")["spec"]["nodeName"])
    kit.arm_fault(at, point)
    plain_drain(witness)
    kit.assert_fault_hit(at, point)


def drain_with_reboot(witness, point):
    """Drains the counter's node; where the drain passes `point`, the worker that is at work there, or is drained, loses its power."""
    drain_meanwhile(witness, point, lambda node: kit.reboot(other(node) if POINTS[point] == NEW else node), limit=120)


def drain_with_broken_network(witness, point, path_of, how, seconds):
    """Drains the counter's node; when the drain passes `point`, breaks the path that path_of(that node) names for so long. In the end all is
    well."""
    node = kit.ready_pod("app=counter")["spec"]["nodeName"]
    with held(place(point, node), point) as hold, draining(node):
        hold.wait()
        with network.broken(path_of(node), how):
            hold.go()
            time.sleep(seconds)  # the fault itself: this long nothing passes
    judge.assert_all_is_well(witness, limit=90)
    kit.uncordon_all()
