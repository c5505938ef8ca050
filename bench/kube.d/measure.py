"""What bench/kube measures, a generator a run (processes.interleave): it notes its values and yields the seconds in which it only waits."""

import contextlib
import dataclasses
import pathlib
import random
import socket
import statistics
import time

import api_server
from processes import CLIENT_CORE, SERVER_CORE, Child, Failure, Replay

SETTLE = 10  # seconds from synced until the memory counts as settled
EVENTS = {"rate": 1000, "seconds": 11}
WARM_UP = 1000  # events that are not counted
RELIST_EVERY = 10  # every tenth object changes while nobody watches
PODS, OWN = "pods", "checkpoints"
LEASE = 15


@dataclasses.dataclass(frozen=True)
class Contender:
    name: str
    binary: pathlib.Path
    flags: tuple = ()

    def start(self, mode, kubeconfig, *more):
        return Child([self.binary, "--mode", mode, *self.flags, *more], CLIENT_CORE, {"KUBECONFIG": str(kubeconfig)})


class Bench:
    """Where the values go: values[what][contender] is a list, one value a run."""

    def __init__(self, folder, replay):
        self.folder, self.replay = folder, replay
        self.values = {}
        self.seen = {}  # contender → how it asked for pods

    def note(self, what, contender, value):
        self.values.setdefault(what, {}).setdefault(contender.name, []).append(value)

    def serve(self, objects=10000):
        return Replay(self.replay, self.folder, objects)

    def empty(self, contender):
        with self.serve() as server, contender.start("empty", server.kubeconfig) as child:
            child.line()
            yield 2
            self.note("empty", contender, child.memory()[0])

    def memory(self, contender, mode, objects):
        """`metadata` of pods or `full` own objects: settled and peak MB, seconds to synced; for `full` also what a 410 costs."""
        what, kind = f"{mode} {objects}", {"metadata": PODS, "full": OWN}[mode]
        with self.serve(objects) as server, contender.start(mode, server.kubeconfig, "--objects", objects) as child:
            line = child.line(limit=180)
            if line["objects"] != objects:
                raise Failure(f"{contender.name}: {line['objects']} of {objects} {kind} in its cache")
            self.note(f"{what} synced", contender, line["synced_s"])
            yield SETTLE
            settled, peak = child.memory()
            self.note(what, contender, settled)
            self.note(f"{what} peak", contender, peak)
            stats = server.ask("stats", kind)
            self.seen[f"{contender.name}, {mode}"] = {name: stats[name] for name in ("protocols", "lists", "pages", "watches", "metadata", "watchQueries")}
            if mode == "full":
                for what, every in (("relist", RELIST_EVERY), ("relist all", 1)):
                    settled, _ = child.memory()
                    self._relist(contender, kind, server, child, every)
                    yield 3
                    self.note(what, contender, child.memory()[1] / settled)

    def _relist(self, contender, kind, server, child, every):
        before = server.ask("stats", kind)["snapshots"]
        child.forget_peak()
        server.ask("expire", kind, "POST", every=every)
        end = time.monotonic() + 120
        while server.ask("stats", kind)["snapshots"] == before:
            if time.monotonic() > end:
                raise Failure(f"{contender.name} did not list again after 410")
            time.sleep(0.02)

    def reconcile(self, contender, objects):
        what = f"reconcile {objects}"
        with self.serve(objects) as server, contender.start("reconcile", server.kubeconfig, "--objects", objects) as child:
            line = child.line(limit=300)
            self.note(what, contender, objects / line["seconds"])
            self.note(f"{what} cold start", contender, line["cold_start_s"])
        return
        yield

    def events(self, contender):
        with self.serve() as server, contender.start("events", server.kubeconfig) as child:
            child.line()
            time.sleep(1)
            server.ask("stream", OWN, "POST", limit=EVENTS["seconds"] + 30, **EVENTS)
            time.sleep(0.5)
            child.end_input()
            latencies = child.line()["latencies_us"]
            if len(latencies) < 0.9 * EVENTS["rate"] * EVENTS["seconds"]:
                raise Failure(f"{contender.name}: {len(latencies)} reconciles after {EVENTS['rate'] * EVENTS['seconds']} events")
            self.percentiles("events", contender, latencies[WARM_UP:])
        return
        yield

    def percentiles(self, what, contender, latencies_us):
        ordered = sorted(latencies_us)
        for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
            self.note(f"{what} {name}", contender, ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1000)

    def admission(self, contender):
        port = api_server.free_port()
        with self.serve(1) as server, contender.start("admission", server.kubeconfig, "--port", port, "--certs", self.folder) as child:
            path = child.line()["path"]
            wait_for_port(port)
            load = ["--url", f"https://127.0.0.1:{port}{path}", "--ca", self.folder / "ca.crt", "--rate", 500, "--connections", 50, "--seconds", 5]
            with Child([self.replay, "load", *load], SERVER_CORE) as generator:
                result = generator.line()
            if result["errors"]:
                raise Failure(f"{contender.name}: {result['errors']} of {len(result['latencies_us'])} admission requests failed")
            self.percentiles("admission", contender, result["latencies_us"])
        return
        yield

    def real_metadata(self, contender, server):
        with contender.start("metadata", server.kubeconfig) as child:
            self.note("real synced", contender, child.line(limit=120)["synced_s"])
            yield SETTLE
            self.note("real", contender, child.memory()[0])

    def failover(self, contenders, server, pairs):
        """Seconds from the death of a leader until its standby leads; all pairs at a time, as they mostly wait."""
        chance = random.Random(1)
        with contextlib.ExitStack() as stack:
            def start(contender, lease, who):
                return stack.enter_context(contender.start("failover", server.kubeconfig, "--lease", lease, "--identity", f"{lease}-{who}"))

            running = []
            for pair in range(pairs):
                for contender in contenders:
                    lease = f"{contender.name}-{pair}"
                    leader = start(contender, lease, "a")
                    leader.line()
                    running.append([contender, leader, start(contender, lease, "b"), 0.0])
            time.sleep(LEASE)  # however slowly they started: every standby has seen its leader renew, or it would wait from when it does
            for entry in running:
                time.sleep(chance.uniform(0, 0.4))  # at any moment between two renewals
                entry[3] = time.time()
                entry[1].kill()
            for contender, _, standby, killed in running:
                self.note("failover", contender, standby.line(limit=3 * LEASE)["at"] - killed)


def wait_for_port(port, limit=20):
    end = time.monotonic() + limit
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if time.monotonic() > end:
            raise Failure(f"nothing listens on port {port}")
        time.sleep(0.05)


def over(values, empty):
    """What came on top of an empty process of the same contender."""
    return [v - statistics.median(empty) for v in values]
