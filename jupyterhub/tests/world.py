"""A small Kubernetes with Holdfast and one user's server, in virtual time: what the spawner sees of them, with answers that are refused or
lost on the way. Whose memory is where is all that it is exact about."""

import asyncio
import base64
import itertools
import sys
import types

from jupyterhub_holdfast.kept import FROM_CHECKPOINT
from kubernetes_asyncio.client import ApiException
from tornado.ioloop import IOLoop

TICK = 0.25  # s
BEGIN = 1_767_225_600  # 2026-01-01


class VirtualLoop(asyncio.SelectorEventLoop):
    """Jumps to the next timer whenever there is nothing to do."""

    now = 0.0

    def time(self):
        return self.now

    def _run_once(self):
        if not self._ready and self._scheduled:
            self.now = max(self.now, self._scheduled[0]._when)
        super()._run_once()


def run(scenario):
    """KubeSpawner's waits go by tornado's clock, which is made the loop's."""
    loop, clock = VirtualLoop(), IOLoop.time
    IOLoop.time = lambda self: loop.time()
    try:
        return loop.run_until_complete(scenario)
    finally:
        IOLoop.time = clock
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def stamp():
    at = asyncio.get_running_loop().time()
    return f"2026-01-{1 + int(at // 86400):02d}T{int(at // 3600) % 24:02d}:{int(at // 60) % 60:02d}:{at % 60:09.6f}Z"


class World:
    """`faults`: by the call's name, what becomes of its next ones."""

    def __init__(self):
        self.faults = {}
        self.secrets, self.checkpoints, self.pod = {}, {}, None
        self.seen = None  # the hub's cache of the pod, a moment behind
        self.numbers = itertools.count(1)
        self.room = self.store = True
        self.evict_again = False  # the next pod, while it waits: by name, as a drain does that asked before
        self.api_client = types.SimpleNamespace(sanitize_for_serialization=lambda found: found)

    # --- the API: what kubernetes_asyncio's clients are called for ----------------------------------------------------------------------

    async def _call(self, effect):
        faults = self.faults.get(sys._getframe(1).f_code.co_name)
        fault = faults.pop(0) if faults else None
        await asyncio.sleep(0.01)
        if fault == "refused":
            raise ApiException(status=500, reason="refused")
        if fault == "unreachable":
            raise OSError("no route to host")
        result = effect()
        if fault == "lost":
            await asyncio.sleep(3600)
        return result

    @staticmethod
    def _need(found):
        if found is None:
            raise ApiException(status=404, reason="Not Found")
        return found

    async def read_namespaced_secret(self, name, _ns):
        def effect():
            body = self._need(self.secrets.get(name))
            return types.SimpleNamespace(data={k: base64.b64encode(v.encode()).decode() for k, v in body["stringData"].items()})
        return await self._call(effect)

    async def create_namespaced_secret(self, _ns, body):
        def effect():
            if body["metadata"]["name"] in self.secrets:
                raise ApiException(status=409, reason="Conflict")
            self.secrets[body["metadata"]["name"]] = body
        return await self._call(effect)

    async def replace_namespaced_secret(self, name, _ns, body):
        return await self._call(lambda: self.secrets.__setitem__(name, body))

    async def delete_namespaced_secret(self, name, _ns):
        return await self._call(lambda: self._need(self.secrets.pop(name, None)))

    async def list_namespaced_custom_object(self, *_):
        return await self._call(lambda: {"items": [c["object"] for c in self.checkpoints.values()]})

    async def get_namespaced_custom_object(self, *args):
        return await self._call(lambda: self._need(self.checkpoints.get(args[-1]))["object"])

    async def create_namespaced_custom_object(self, *args):
        return await self._call(lambda: self.begin_checkpoint(args[-1]))

    async def delete_namespaced_custom_object(self, *args):
        return await self._call(lambda: self._need(self.checkpoints.pop(args[-1], None)))

    async def read_namespaced_pod(self, _name, _ns):
        return await self._call(lambda: self._need(self.pod)["object"])

    async def create_namespaced_pod(self, _ns, body):
        def effect():
            if self.pod is not None:
                raise ApiException(status=409, reason="Conflict")
            meta = {**body["metadata"], "uid": f"u{next(self.numbers)}"}
            self.pod = {"object": {**body, "metadata": meta, "status": {"phase": "Pending", "podIP": None, "containerStatuses": []}}, "age": 0, "memory": None}
        return await self._call(effect)

    async def delete_namespaced_pod(self, name, namespace, body, grace_period_seconds):
        def effect():
            self._need(self.pod)
            if grace_period_seconds == 0:
                self.pod = None
            else:
                self.end_pod()
        return await self._call(effect)

    # --- Kubernetes and Holdfast --------------------------------------------------------------------------------------------------------

    def begin_checkpoint(self, body):
        name = body["metadata"]["name"]
        if name in self.checkpoints:
            raise ApiException(status=409, reason="Conflict")
        meta = {**body["metadata"], "creationTimestamp": stamp()}
        self.checkpoints[name] = {"object": {**body, "metadata": meta, "status": {"phase": "Pending"}}, "age": 0, "memory": None}

    def drain(self):
        if self.pod is not None and self.pod["memory"] and "deletionTimestamp" not in self.pod["object"]["metadata"]:
            uid = self.pod["object"]["metadata"]["uid"]
            if f"drain-{uid}" not in self.checkpoints:
                self.begin_checkpoint({"metadata": {"name": f"drain-{uid}"}, "spec": {"podRef": {"name": "jupyter-alice", "uid": uid}, "final": True, "trigger": "Drain"}})

    def end_pod(self):
        self.pod["object"]["metadata"].setdefault("deletionTimestamp", stamp())

    def uid(self):
        return self.pod["object"]["metadata"]["uid"] if self.pod is not None else None

    async def live(self):
        while True:
            await asyncio.sleep(TICK)
            self.seen = self.pod and {**self.pod["object"], "status": dict(self.pod["object"]["status"])}
            self._pod_lives()
            for checkpoint in self.checkpoints.values():
                self._checkpoint_lives(checkpoint)

    def _pod_lives(self):
        pod = self.pod
        if pod is None:
            return
        pod["age"] += TICK
        meta, status = pod["object"]["metadata"], pod["object"]["status"]
        if "deletionTimestamp" in meta:
            pod["leaving"] = pod.get("leaving", 0) + TICK
            if pod["leaving"] >= 1:
                self.pod = None
        elif status["phase"] == "Pending" and self.evict_again:
            self.pod, self.evict_again = None, False
        elif status["phase"] == "Pending" and pod["age"] >= 1 and self.room:
            source = meta.get("annotations", {}).get(FROM_CHECKPOINT)
            if source is None:
                pod["memory"] = f"m{next(self.numbers)}"
            elif not self._restore(pod, self.checkpoints.get(source)):
                return
            status.update(phase="Running", podIP="10.0.0.1", containerStatuses=[{"name": "notebook", "ready": True, "state": {"running": {}}}])

    def _restore(self, pod, checkpoint):
        if checkpoint is None or checkpoint["object"]["status"]["phase"] != "Ready":
            return False
        claim = checkpoint["object"]["status"].setdefault("claim", {"podName": "jupyter-alice", "podUID": pod["object"]["metadata"]["uid"], "at": stamp()})
        if claim["podUID"] != pod["object"]["metadata"]["uid"] or pod["age"] < 2:
            return False
        pod["memory"] = checkpoint["memory"]
        checkpoint["says"] = 1.0
        return True

    def _checkpoint_lives(self, checkpoint):
        found, status = checkpoint["object"], checkpoint["object"]["status"]
        checkpoint["age"] += TICK
        uid = found["spec"]["podRef"]["uid"]
        if status["phase"] == "Pending" and checkpoint["age"] >= 2:
            there = self.pod is not None and self.uid() == uid and "deletionTimestamp" not in self.pod["object"]["metadata"] and self.pod["memory"]
            if self.store and there:
                status.update(phase="Ready", summary={"size": "1 MiB"}, completedAt=stamp())
                checkpoint["memory"] = self.pod["memory"]
                if found["spec"]["trigger"] == "Drain":
                    self.end_pod()
            else:
                status.update(phase="Failed", conditions=[{"type": "Ready", "reason": "StoreUnavailable", "message": "no store"}])
        claim = status.get("claim")
        if claim and "says" in checkpoint:
            checkpoint["says"] -= TICK
            if checkpoint["says"] <= 0:
                status["restores"] = [{"podName": claim["podName"], "outcome": "Restored", "at": stamp()}]
        elif claim and claim["podUID"] != self.uid():
            del status["claim"]  # it never ran

    def held(self):
        """Every memory that is not lost: of the pod, or of a checkpoint that may still be restored."""
        kept = {c["memory"] for c in self.checkpoints.values() if c["memory"] and "says" not in c}
        alive = self.pod is not None and "deletionTimestamp" not in self.pod["object"]["metadata"]
        return kept | ({self.pod["memory"]} if alive and self.pod["memory"] else set())

    def runs(self):
        alive = self.pod is not None and "deletionTimestamp" not in self.pod["object"]["metadata"]
        return self.pod["memory"] if alive and self.pod["memory"] else None
